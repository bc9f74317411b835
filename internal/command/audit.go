package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/token"
	"seckill/model"
	"seckill/repository"
	"seckill/service"
)

// auditToken is how long the token is good with which an audit asks a running
// server: longer than the audit of very many vouchers takes.
const auditToken = time.Hour

// auditor is who can be asked for audits: the database, everything there is, or
// a running server.
type auditor interface {
	voucherIDs(ctx context.Context) ([]string, error)
	audit(ctx context.Context, voucherID string) (model.Audit, error)
	// repair puts right what can be, and audits again.
	repair(ctx context.Context, voucherID string) (model.Audit, error)
}

// stockRepairer is an auditor that also repairs the database itself, and tells
// what it found there if it changed something.
type stockRepairer interface {
	repairStock(ctx context.Context, voucherID string) (*model.AuditDatabase, error)
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
		Args: noArgs,
	}
	cmd.Flags().StringVar(&o.voucher, "voucher", "", "only this voucher")
	cmd.Flags().StringVar(&o.url, "url", "", "ask the server there, for example http://127.0.0.1:8080")
	cmd.Flags().StringVar(&o.token, "token", "", "an administrator's token for --url")
	cmd.Flags().BoolVar(&o.repair, "repair", false, "repair what differs (in the order mode sync nothing can, without --stock)")
	cmd.Flags().BoolVar(&o.stock, "stock", false, "with --repair: set what remains from the live orders where the database does not add up")
	flags := settingFlags(cmd, "SECKILL_DATA_DIR")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.token != "" && o.url == "":
			return misused("--token is of use with --url only")
		case o.stock && !o.repair:
			return misused("--stock changes the database: it wants --repair, too")
		case o.stock && o.url != "":
			return misused("--stock is not offered over --url: run it with the settings of the database, an embedded server in the order mode async stopped")
		}
		return p.runAudit(cmd.Context(), o, flags())
	}
	return cmd
}

func (p Process) runAudit(ctx context.Context, o auditOptions, flags map[string]string) error {
	options := []config.Option{config.Flags(flags)}
	if o.url == "" || o.token != "" {
		options = append(options, config.WithoutTokens())
	}
	cfg, err := config.Load(p.Environ, options...)
	if err != nil {
		return err
	}
	if o.url != "" {
		return p.auditServer(ctx, cfg, o)
	}
	return p.auditServers(ctx, cfg, o)
}

// auditServers asks the servers of the settings.
func (p Process) auditServers(ctx context.Context, cfg config.Config, o auditOptions) error {
	if err := embeddedExists(cfg); err != nil {
		return err
	}
	everything, stopped := false, false
	err := p.withDatabase(ctx, cfg, func(db *repository.Database) error {
		mode, err := repository.NewModes(db).Read(ctx)
		if err != nil {
			return err
		}
		inside := cfg.RedisURL == "" || cfg.NATSURL == ""
		switch {
		case mode.Mode == model.ModeAsync && !inside:
			everything = true
			return nil
		case mode.Mode == model.ModeAsync && o.stock:
			stopped = true
			return backstageExists(cfg)
		case mode.Mode == model.ModeAsync && o.repair:
			return errors.New("what is embedded is inside the server's process: have it repaired over --url")
		case mode.Mode == model.ModeAsync:
			fmt.Fprintln(p.Stderr, "What is embedded is inside the server's process: this is the database alone. For all of\n"+
				"it ask the server with --url.")
		}
		return p.auditAll(ctx, databaseAuditor{repository.NewVouchers(db, cfg.Currency)}, o)
	})
	if err != nil || !everything && !stopped {
		return err
	}
	return p.withBackstage(ctx, cfg, func(_ *Instance, b *backstage) error {
		database := databaseAuditor{b.vouchers}
		if stopped { // the server's start makes the hot copies anew
			return p.auditAll(ctx, database, o)
		}
		return p.auditAll(ctx, backstageAuditor{database, b.auditor, b.rebuilder}, o)
	})
}

// databaseAuditor asks the database.
type databaseAuditor struct{ vouchers *repository.Vouchers }

func (d databaseAuditor) voucherIDs(ctx context.Context) ([]string, error) {
	return d.vouchers.IDs(ctx)
}

func (d databaseAuditor) audit(ctx context.Context, id string) (model.Audit, error) {
	return d.vouchers.Audit(ctx, id)
}

// repair finds nothing that it could do.
func (d databaseAuditor) repair(ctx context.Context, id string) (model.Audit, error) {
	return d.audit(ctx, id)
}

func (d databaseAuditor) repairStock(ctx context.Context, id string) (*model.AuditDatabase, error) {
	return d.vouchers.RepairStock(ctx, id)
}

// backstageAuditor asks database, Redis and queue.
type backstageAuditor struct {
	databaseAuditor
	auditor  *service.Auditor
	rebuilds service.RepairRoads
}

func (b backstageAuditor) audit(ctx context.Context, id string) (model.Audit, error) {
	return b.auditor.Audit(ctx, id)
}

func (b backstageAuditor) repair(ctx context.Context, id string) (model.Audit, error) {
	return b.auditor.Repair(ctx, id)
}

// repairStock has the hot copy rebuilt, which counts what remained before.
func (b backstageAuditor) repairStock(ctx context.Context, id string) (*model.AuditDatabase, error) {
	found, err := b.databaseAuditor.repairStock(ctx, id)
	if err != nil || found == nil {
		return found, err
	}
	return found, b.rebuilds.Rebuild(ctx, id)
}

func (p Process) auditServer(ctx context.Context, cfg config.Config, o auditOptions) error {
	target, err := url.Parse(o.url)
	if err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" {
		return misused("--url is not a URL such as http://127.0.0.1:8080")
	}
	if o.token == "" {
		tokens, err := openTokens(ctx, cfg)
		if err != nil {
			return err
		}
		o.token, err = tokens.Issue(token.Claims{Subject: "audit", Role: model.RoleAdmin}, auditToken)
		if err != nil {
			return err
		}
	}
	transport := newTransport(1)
	defer transport.CloseIdleConnections()
	client := apiClient{
		base: target.Scheme + "://" + target.Host, token: o.token, http: &http.Client{Transport: transport},
	}
	return p.auditAll(ctx, client, o)
}
