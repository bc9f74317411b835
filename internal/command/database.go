package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/app"
	"seckill/internal/budget"
	"seckill/internal/token"
	"seckill/model"
)

// auditor can be asked for audits: the database, everything there is, or a running server.
type auditor struct {
	voucherIDs func(ctx context.Context) ([]string, error)
	audit      func(ctx context.Context, voucherID string) (model.Audit, error)
	// repair puts right what can be, and audits again.
	repair func(ctx context.Context, voucherID string) (model.Audit, error)
	// repairStock repairs the database itself, and returns the row before, nil without a change. No server offers it.
	repairStock func(ctx context.Context, voucherID string) (*model.AuditDatabase, error)
}

type auditOptions struct {
	voucher, url, token string
	repair, stock       bool
}

func (p Process) auditCommand() *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check that units and orders add up; exit 1 when they do not",
		Long: "Checks of every voucher that its stock is what remains plus its live orders, and in the order mode async\n" +
			"that database, Redis and queue agree about every single order. It asks those of the settings, or with\n" +
			"--url a running server, as an administrator: with the token given, or with one signed with the settings'\n" +
			"secret. An embedded Redis or queue is inside its server's process and needs --url.\n\n" +
			"--repair settles, publishes again or releases orders by their ids, and rebuilds a hot copy that is wrong;\n" +
			"over --url it has what does not add up rebuilt. It adjusts no count.\n\n" +
			"--repair --stock does: where the database itself does not add up, live orders are the truth, and what\n" +
			"remains is set to the stock less the live orders. It locks the voucher, works in both order modes, and has\n" +
			"the hot copy rebuilt. It is not offered over --url: an embedded server in the order mode async is stopped first.",
	}
	cmd.Flags().StringVar(&o.voucher, "voucher", "", "only this voucher")
	cmd.Flags().StringVar(&o.url, "url", "", "ask the server there, for example http://127.0.0.1:8080")
	cmd.Flags().StringVar(&o.token, "token", "", "an administrator's token for --url")
	cmd.Flags().BoolVar(&o.repair, "repair", false,
		"repair what differs (in the order mode sync nothing can, without --stock)")
	cmd.Flags().BoolVar(&o.stock, "stock", false,
		"with --repair: set what remains from the live orders where the database does not add up")
	load := settings(cmd, "SECKILL_DATA_DIR")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.token != "" && o.url == "":
			return misused("--token is of use with --url only")
		case o.stock && !o.repair:
			return misused("--stock changes the database: it wants --repair, too")
		case o.stock && o.url != "":
			return misused("--stock is not offered over --url: run it with the settings of the database, an embedded server in the order mode async stopped")
		}
		var options []config.Option
		if o.url == "" || o.token != "" {
			options = append(options, config.WithoutTokens())
		}
		cfg, err := load(p.Environ, options...)
		if err != nil {
			return err
		}
		if o.url != "" {
			return p.auditServer(cmd.Context(), cfg, o)
		}
		return p.auditServers(cmd.Context(), cfg, o)
	}
	return cmd
}

func (p Process) auditServers(ctx context.Context, cfg config.Config, o auditOptions) error {
	mode, err := p.orderMode(ctx, cfg)
	if err != nil {
		return err
	}
	if mode == model.ModeAsync {
		switch inside := cfg.RedisURL == "" || cfg.NATSURL == ""; {
		case !inside:
			return p.withAsyncParts(ctx, cfg, func(a *app.AsyncParts) error { return p.auditAll(ctx, everything(a), o) })
		case o.stock: // the server's start makes the hot copies anew
			if err := app.QueueExists(cfg); err != nil {
				return err
			}
			return p.withAsyncParts(ctx, cfg, func(a *app.AsyncParts) error {
				return p.auditAll(ctx, databaseAlone(a.DB), o)
			})
		case o.repair:
			return errors.New("what is embedded is inside the server's process: have it repaired over --url")
		}
		fmt.Fprintln(p.Stderr,
			"What is embedded is inside the server's process: this is the database alone. For all of\n"+
				"it ask the server with --url.")
	}
	return p.withDatabase(ctx, cfg, func(db *app.Database) error { return p.auditAll(ctx, databaseAlone(db), o) })
}

// databaseAlone asks the database. It has nothing to compare the orders with, so it repairs none.
func databaseAlone(db *app.Database) auditor {
	return auditor{db.IDs, db.Audit, db.Audit, db.RepairStock}
}

// everything asks database, Redis and queue. A repaired stock has the hot copy rebuilt, which counted the old units.
func everything(a *app.AsyncParts) auditor {
	repair := func(ctx context.Context, id string) (model.Audit, error) { return a.Auditor.Repair(ctx, id, noAdmin) }
	return auditor{
		a.DB.IDs, a.Auditor.Audit, repair,
		func(ctx context.Context, id string) (*model.AuditDatabase, error) {
			found, err := a.DB.RepairStock(ctx, id)
			if err != nil || found == nil {
				return found, err
			}
			return found, a.Rebuilder.Do(ctx, id, model.AnyEpoch)
		},
	}
}

func (p Process) auditServer(ctx context.Context, cfg config.Config, o auditOptions) error {
	client, transport, err := serverAt(o.url)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	if o.token == "" {
		tokens, err := app.Tokens(ctx, cfg)
		if err != nil {
			return err
		}
		o.token, err = tokens.Issue(token.Claims{Subject: "audit", Role: model.RoleAdmin}, budget.Hour)
		if err != nil {
			return err
		}
	}
	client.Token = o.token
	return p.auditAll(ctx, auditor{client.VoucherIDs, client.Audit, client.Repair, nil}, o)
}

// auditAll prints one line per voucher, and fails when one does not add up.
func (p Process) auditAll(ctx context.Context, from auditor, o auditOptions) error {
	ids := []string{o.voucher}
	if o.voucher == "" {
		var err error
		if ids, err = from.voucherIDs(ctx); err != nil {
			return fmt.Errorf("list the vouchers: %w", err)
		}
	}
	ask := from.audit
	if o.repair {
		ask = from.repair
	}
	table := p.table()
	wrong := 0
	for i, id := range ids {
		if o.stock {
			found, err := from.repairStock(ctx, id)
			p.printStockRepair(id, found)
			if err != nil {
				return errors.Join(table.Flush(), err)
			}
		}
		audit, err := ask(ctx, id)
		if err != nil {
			return errors.Join(table.Flush(), err)
		}
		if i == 0 { // a heading without a row would be of no use
			hot := ""
			if audit.Redis != nil {
				hot = "HOT COPY\tREMAINING\tRESERVED\tBUYERS\tQUEUED\tOLDEST\t"
			}
			fmt.Fprintf(table, "VOUCHER\tSTOCK\tREMAINING\tLIVE ORDERS\t%sADDS UP\n", hot)
			if o.repair && !o.stock && audit.Mode == model.ModeSync {
				fmt.Fprintln(p.Stderr,
					"There is nothing to repair in sync mode without --stock: the database is the only copy\n"+
						"of what was sold. The audit follows.")
			}
		}
		if !audit.Balanced {
			wrong++
		}
		printAudit(table, audit)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d vouchers do not add up", wrong, len(ids))
	}
	return p.say("%d of %d vouchers add up\n", len(ids), len(ids))
}

// printAudit prints one voucher, and below it the orders that do not add up.
func printAudit(table io.Writer, audit model.Audit) {
	d, hot := audit.Database, ""
	if r := audit.Redis; r != nil {
		hot = fmt.Sprintf("%s\t%d\t%d\t%d\t", r.State, r.Remaining, r.Reserved, r.Buyers)
		if q := audit.Queue; q != nil {
			hot += fmt.Sprintf("%d\t%s\t", q.Pending, time.Duration(q.OldestAgeMS)*time.Millisecond)
		} else {
			hot += "-\t-\t"
		}
	}
	verdict := "yes"
	if !audit.Balanced {
		verdict = "NO"
	}
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s%s\n", audit.VoucherID, d.Stock, d.Remaining, d.LiveOrders, hot, verdict)
	if difference := d.Stock - d.Remaining - d.LiveOrders; difference != 0 {
		advice := "; --repair --stock sets what remains from the live orders"
		if d.LiveOrders > d.Stock && d.Remaining == 0 {
			advice = fmt.Sprintf("; oversold by %d, which only more stock or fewer orders can mend", -difference)
		}
		fmt.Fprintf(table, "  the database itself: stock %d, remaining %d, live orders %d, difference %d%s\n",
			d.Stock, d.Remaining, d.LiveOrders, difference, advice)
	}
	for _, wrong := range audit.Wrong {
		fmt.Fprintf(table, "  the database itself: %s; only a backup has them: see the runbook\n", wrong)
	}
	for _, drift := range audit.Drift {
		fmt.Fprintf(table, "  order %s: %s\n", drift.OrderID, drift.Found)
	}
}

func (p Process) printStockRepair(id string, found *model.AuditDatabase) {
	if found == nil {
		return
	}
	left := found.Stock - found.LiveOrders
	fmt.Fprintf(p.Stdout,
		"voucher %s: remaining was %d and is %d now, because of a stock of %d units live orders hold %d\n",
		id, found.Remaining, max(left, 0), found.Stock, found.LiveOrders)
	if left < 0 {
		fmt.Fprintf(p.Stdout, "voucher %s: it is oversold by %d\n", id, -left)
	}
}

func (p Process) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Apply schema migrations (serve does so too, unless SECKILL_MIGRATE=off)",
		Long: "Applies the schema migrations that are missing. Of several processes that do so at the same time\n" +
			"one works and the others wait.",
	}
	p.onSettings(cmd, func(ctx context.Context, cfg config.Config, _ []string) error {
		return p.withDatabase(ctx, cfg, func(db *app.Database) error {
			if err := db.Migrate(ctx); err != nil {
				return err
			}
			return p.showMigrations(ctx, db)
		})
	})
	status := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations were applied, and change nothing",
	}
	p.onSettings(status, func(ctx context.Context, cfg config.Config, _ []string) error {
		return p.lookInto(ctx, cfg, func(db *app.Database) error { return p.showMigrations(ctx, db) })
	})
	cmd.AddCommand(status)
	return cmd
}

func (p Process) showMigrations(ctx context.Context, db *app.Database) error {
	list, err := db.MigrationStatus(ctx)
	if err != nil {
		return err
	}
	table := p.table()
	fmt.Fprintln(table, "VERSION\tMIGRATION\tAPPLIED")
	for _, m := range list {
		applied := "no"
		if m.Applied {
			applied = m.AppliedAt.Format(time.RFC3339)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\n", m.Version, m.Name, applied)
	}
	return table.Flush()
}

func (p Process) modeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mode [sync|async]",
		Short: "Show or change how the database is sold from",
		Long: "Without an argument it shows the database's order mode. With one it changes the mode while no instance sells\n" +
			"and no order waits; otherwise it changes nothing, and says which of the two stands against it. Instances of\n" +
			"the other mode are not ready, say so, and sell nothing; once the mode is theirs they begin within a second.\n\n" +
			"It needs the settings of the async instances, also on the way to sync. What is embedded is inside its\n" +
			"server's process, which must be stopped first.",
		Example: "  seckill mode\n  seckill mode async",
	}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 || len(args) == 1 && args[0] != string(model.ModeSync) && args[0] != string(model.ModeAsync) {
			return misused("mode takes sync, async or nothing, not %q", args)
		}
		return nil
	}
	p.onSettings(cmd, func(ctx context.Context, cfg config.Config, args []string) error {
		mode, err := p.orderMode(ctx, cfg)
		switch {
		case err != nil:
			return err
		case len(args) == 0:
			return p.say("%s\n", mode)
		case args[0] == string(mode):
			return p.say("The order mode is %s already.\n", mode)
		case mode == model.ModeAsync: // what is queued must be found
			if err := app.QueueExists(cfg); err != nil {
				return err
			}
		}
		for variable, url := range map[string]string{"SECKILL_REDIS_URL": cfg.RedisURL, "SECKILL_NATS_URL": cfg.NATSURL} {
			if url == "" && !cfg.Embedded() {
				fmt.Fprintln(p.Stderr, variable+" is not set: this must be so for the instances, too.")
			}
		}
		return p.withAsyncParts(ctx, cfg, func(a *app.AsyncParts) error {
			if err := a.ChangeMode(ctx, model.OrderMode(args[0])); err != nil {
				return err
			}
			return p.say("The database is sold from in order mode %s.\n", args[0])
		})
	})
	return cmd
}

func (p Process) orderMode(ctx context.Context, cfg config.Config) (model.OrderMode, error) {
	var record model.ModeRecord
	err := p.lookInto(ctx, cfg, func(db *app.Database) (err error) {
		record, err = db.Modes.Read(ctx)
		return err
	})
	return record.Mode, err
}
