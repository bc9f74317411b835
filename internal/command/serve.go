package command

import (
	"context"
	"fmt"
	"log/slog"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"seckill/internal/budget"
	"seckill/internal/redisdb"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/app"
	"seckill/internal/embedded"
	"seckill/internal/token"
	"seckill/internal/version"
	"seckill/model"
)

func (p Process) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve until SIGTERM, SIGINT or SIGHUP (what seckill does without a command)",
		Long: "Serves the API, after applying schema migrations. In async, --role api leaves the orders in the queue to\n" +
			"others, and --role worker brings them into the database and serves only its health. Every setting that is\n" +
			"no secret has a flag; secrets come from the environment or from files, see 'seckill config'.",
	}
	p.serveOn(cmd)
	return cmd
}

// serveOn makes a command serve.
func (p Process) serveOn(cmd *cobra.Command) {
	load := p.settings(cmd)
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		return p.serve(cmd.Context(), cfg)
	}
}

// serve runs an instance until ctx ends or the instance fails.
func (p Process) serve(ctx context.Context, cfg config.Config) error {
	signal.Ignore(syscall.SIGPIPE) // whoever reads the log may go away: that must not end a sale
	log := p.newLogger(cfg)
	redisdb.Log(log)
	instance, err := app.Start(ctx, cfg, log)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "listening", slog.String("version", version.Read().Version),
		slog.String("url", instance.BaseURL()), slog.String("operations", instance.OpsURL()))
	if cfg.Embedded() && cfg.Role != config.RoleWorker { // a worker serves nothing that could be tried
		err = p.welcome(ctx, cfg, instance)
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-instance.Failed():
		}
	}
	// The stop has limits of its own; the signal that asked for it must not
	// cut it short.
	instance.Stop(context.WithoutCancel(ctx))
	return err
}

// welcome tells the operator of an embedded server what it is, where it is, and how
// to buy something at once. Tokens are printed to a terminal only: any other output is
// a log, which more people read and which is kept for longer than a token should be.
func (p Process) welcome(ctx context.Context, cfg config.Config, instance *app.Instance) error {
	door := p.consoleDoor(ctx, cfg)
	admin, buyer := "$ADMIN", "$BUYER"
	tokens := welcomeHow
	if onTerminal(p.Stdout) {
		var err error
		if admin, buyer, err = welcomeTokens(ctx, cfg); err != nil {
			return err
		}
		tokens = ""
	}
	redis := "inside this process"
	if cfg.RedisURL != "" {
		redis = "as SECKILL_REDIS_URL says"
	}
	orders := "in the database before they are answered (201)"
	if cfg.Async() {
		orders = "queued before they are answered (202), as SECKILL_NATS_URL says"
		if cfg.NATSURL == "" {
			orders = "queued in " + filepath.Join(cfg.DataDir, "nats") + " before they are answered (202)"
		}
	}
	if err := instance.Disagrees(ctx); err != nil {
		orders = "NONE FOR NOW: " + explain(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	api := instance.BaseURL() + "/api/v1"
	_, err := fmt.Fprint(p.Stdout, strings.NewReplacer(
		"{dir}", quoted(cfg.DataDir),
		"{base}", instance.BaseURL(),
		"{ops}", instance.OpsURL(),
		"{api}", api,
		"{file}", embedded.SQLiteFile(cfg.DataDir),
		"{redis}", redis,
		"{orders}", orders,
		"{admin}", admin,
		"{buyer}", buyer,
		"{begin}", now.Add(-time.Minute).Format(time.RFC3339),
		"{end}", now.Add(30*budget.Day).Format(time.RFC3339),
	).Replace(strings.NewReplacer("{door}", door, "{tokens}", tokens).Replace(welcomeText)))
	if err != nil {
		return fmt.Errorf("print the welcome: %w", err)
	}
	return nil
}

// welcomeTokens makes tokens of an administrator and of a buyer.
func welcomeTokens(ctx context.Context, cfg config.Config) (admin, buyer string, err error) {
	tokens, err := app.Tokens(ctx, cfg)
	if err != nil {
		return "", "", err
	}
	if admin, err = tokens.Issue(token.Claims{Subject: "admin", Role: model.RoleAdmin}, budget.Day); err != nil {
		return "", "", err
	}
	buyer, err = tokens.Issue(token.Claims{Subject: "alice", Role: model.RoleUser}, budget.Day)
	return admin, buyer, err
}

// quoted writes a text for a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// welcomeHow makes the tokens where none are printed. A secret in the server's
// environment must be in the shell's too.
const welcomeHow = `ADMIN=$(seckill token --data-dir {dir} --users 1 --role admin)
BUYER=$(seckill token --data-dir {dir} --users 1)
`

const welcomeText = `
  seckill is running, embedded: for trying out, not for real sales.
{door}
    API          {base}     documentation: {api}/docs
    operations   {ops}     /metrics, /debug/pprof
    database     SQLite in {file}; orders survive a restart
    Redis        {redis}
    orders       {orders}

  Put 100 vouchers up, buy one, and look at the order (paste line by line, or all at once):

{tokens}VOUCHER=$(curl -sS {api}/admin/vouchers -H "Authorization: Bearer {admin}" -H 'Content-Type: application/json' -d '{"title":"Coffee for two","price":1000,"face_value":2500,"stock":100,"begin_at":"{begin}","end_at":"{end}"}' | grep -o '"id":"[^"]*' | cut -d'"' -f4)
curl -sS -X POST {api}/vouchers/$VOUCHER/seckill -H "Authorization: Bearer {buyer}"
curl -sS "{api}/orders?voucher_id=$VOUCHER" -H "Authorization: Bearer {buyer}"

  More buyers: seckill token --users 10. A whole sale: seckill demo. For real sales set SECKILL_DATABASE_DSN,
  SECKILL_REDIS_URL and SECKILL_JWT_SECRET; seckill config lists all settings. Stop with Ctrl-C.

`
