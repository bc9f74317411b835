package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/token"
	"seckill/model"
	"seckill/repository"
)

// auditToken is how long the token is good with which an audit asks a running
// server: longer than the audit of very many vouchers takes.
const auditToken = time.Hour

// auditor is who can be asked for audits: the database, or a running server.
type auditor interface {
	voucherIDs(ctx context.Context) ([]string, error)
	audit(ctx context.Context, voucherID string) (model.Audit, error)
}

type auditOptions struct {
	voucher, url, token string
	repair              bool
}

func (p Process) auditCommand() *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check that units and orders add up; exit 1 when they do not",
		Long: "Checks of every voucher that its stock is what remains plus its live orders. It asks the database of\n" +
			"the settings, or with --url a running server, as an administrator: with the token given, or with one\n" +
			"signed with the settings' secret.",
		Args: noArgs,
	}
	cmd.Flags().StringVar(&o.voucher, "voucher", "", "only this voucher")
	cmd.Flags().StringVar(&o.url, "url", "", "ask the server there, for example http://127.0.0.1:8080")
	cmd.Flags().StringVar(&o.token, "token", "", "an administrator's token for --url")
	cmd.Flags().BoolVar(&o.repair, "repair", false, "repair what differs (in sync mode there is nothing to repair)")
	flags := settingFlags(cmd, "SECKILL_DATA_DIR")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.token != "" && o.url == "" {
			return misused("--token is of use with --url only")
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
	if o.repair {
		fmt.Fprintln(p.Stderr, "There is nothing to repair in sync mode: the database is the only copy of what was\n"+
			"sold, and what does not add up there needs a person. The audit follows.")
	}
	if o.url != "" {
		return p.auditServer(ctx, cfg, o)
	}
	if err := embeddedExists(cfg); err != nil {
		return err
	}
	return p.withDatabase(ctx, cfg, func(db *repository.Database) error {
		return p.auditAll(ctx, databaseAuditor{repository.NewVouchers(db, cfg.Currency)}, o.voucher)
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
	return p.auditAll(ctx, client, o.voucher)
}

// auditAll prints one line per voucher, and fails when one does not add up.
func (p Process) auditAll(ctx context.Context, from auditor, only string) error {
	ids := []string{only}
	if only == "" {
		var err error
		if ids, err = from.voucherIDs(ctx); err != nil {
			return fmt.Errorf("list the vouchers: %w", err)
		}
	}
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	wrong := 0
	for i, id := range ids {
		audit, err := from.audit(ctx, id)
		if err != nil {
			return errors.Join(table.Flush(), err)
		}
		if i == 0 { // not before there is something to put under it
			fmt.Fprintln(table, "VOUCHER\tSTOCK\tREMAINING\tLIVE ORDERS\tADDS UP")
		}
		verdict := "yes"
		if !audit.Balanced {
			verdict = "NO"
			wrong++
		}
		d := audit.Database
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", id, d.Stock, d.Remaining, d.LiveOrders, verdict)
		for _, drift := range audit.Drift {
			fmt.Fprintf(table, "  order %s: %s\n", drift.OrderID, drift.Found)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the audit: %w", err)
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d vouchers do not add up", wrong, len(ids))
	}
	fmt.Fprintf(p.Stdout, "%d of %d vouchers add up\n", len(ids), len(ids))
	return nil
}
