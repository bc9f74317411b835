package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/api"
	"seckill/internal/app"
	"seckill/internal/budget"
	"seckill/internal/demo"
	"seckill/internal/embedded"
	"seckill/internal/redisdb"
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
	load := settings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load(p.Environ)
		if err != nil {
			return err
		}
		return p.serve(cmd.Context(), cfg)
	}
	return cmd
}

func (p Process) readyCommand() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Ask a server whether it is ready to sell",
		Long:  "Shows what /readyz says. What is not ready is an error: the health check of a container that has no other program.",
	}
	cmd.Flags().StringVar(&url, "url", "http://127.0.0.1:8080", "the server")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, transport, err := serverAt(url)
		if err != nil {
			return err
		}
		defer transport.CloseIdleConnections()
		answer, err := api.Send(cmd.Context(), client.HTTP, http.MethodGet, client.Base+"/readyz", "", nil)
		if err == nil {
			err = errors.Join(p.say("%s", answer.Body), answer.Err())
		}
		return err
	}
	return cmd
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
	// The stop has limits of its own; the signal that asked for it must not cut it short.
	instance.Stop(context.WithoutCancel(ctx))
	return err
}

// welcome tells what an embedded server is, where, and how to buy. Tokens go to a terminal only: a log has readers.
func (p Process) welcome(ctx context.Context, cfg config.Config, instance *app.Instance) error {
	door := p.consoleDoor(ctx, cfg)
	admin, buyer := "$ADMIN", "$BUYER"
	tokens := welcomeHow
	if onTerminal(p.Stdout) {
		authority, err := app.Tokens(ctx, cfg)
		if err != nil {
			return err
		}
		admin, err = authority.Issue(token.Claims{Subject: "admin", Role: model.RoleAdmin}, budget.Day)
		if err == nil {
			buyer, err = authority.Issue(token.Claims{Subject: "alice", Role: model.RoleUser}, budget.Day)
		}
		if err != nil {
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

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// welcomeHow makes the tokens where none are printed. A secret in the server's environment must be in the shell's too.
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

const firstAdmin = "admin" // the username of the administrator whom the first start makes

// consoleDoor tells the way into the console. For a person, not a log, it makes a first administrator. It never fails.
func (p Process) consoleDoor(ctx context.Context, cfg config.Config) string {
	if !cfg.Console {
		return ""
	}
	text, secret := doorOpen, ""
	err := p.withDatabase(ctx, cfg, func(db *app.Database) error {
		admins, err := db.Administrators().List(ctx)
		if err != nil || len(admins) > 0 {
			return err
		}
		text = doorWithoutAccounts
		if !onTerminal(p.Stdout) {
			return nil
		}
		letters := strings.ToLower(rand.Text()) // 80 random bits are not guessed, and a person can type them
		made := strings.Join([]string{letters[:4], letters[4:8], letters[8:12], letters[12:16]}, "-")
		_, err = db.Administrators().Create(ctx, firstAdmin, made, model.LevelAdmin)
		if model.CodeOf(err) == model.CodeConflict { // a buyer has the name
			return nil
		}
		if err == nil {
			text, secret = doorOnce, made
		}
		return err
	})
	if err != nil {
		p.newLogger(cfg).WarnContext(ctx, "there may be no administrator", slog.Any("error", err))
	}
	return strings.NewReplacer("{admin}", firstAdmin, "{password}", secret).Replace(text)
}

const (
	doorOpen = `
  Open in a browser:

    {base}/console
`
	doorOnce = doorOpen + `
    username     {admin}
    password     {password}     shown only now; another one: seckill admin passwd --data-dir {dir} --username {admin}
`
	doorWithoutAccounts = doorOpen + `
    for administrators; make an account: seckill admin create --data-dir {dir} --username NAME
`
)

const maxDemoBuyers = 100_000 // each is a goroutine with a token and an answer, some 20 kB

func (p Process) demoCommand() *cobra.Command {
	var s demo.Sale
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run one flash sale, start to finish, against an embedded server",
		Long: "Starts an embedded server on free ports, with its data in a temporary directory, puts one voucher up\n" +
			"and lets all buyers press the button at the same instant, over real HTTP. Then three independent counts\n" +
			"are compared: the buyers' answers, the orders the server exports, and its audit. Exit 1 when anything is off\n" +
			"by one. Of the environment only SECKILL_ORDER_MODE counts: in async, a buyer who got 202 then waits until the\n" +
			"order is unpaid.",
	}
	cmd.Flags().IntVar(&s.Buyers, "buyers", 2000, "how many buyers")
	cmd.Flags().Int64Var(&s.Stock, "stock", 100, "how many vouchers")
	load := settings(cmd, "SECKILL_STOCK_STRATEGY", "SECKILL_ORDER_MODE")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.Buyers < 1 || s.Buyers > maxDemoBuyers {
			return misused("--buyers must be from 1 to %d", maxDemoBuyers)
		}
		if s.Stock < 0 || s.Stock > model.MaxAmount {
			return misused("--stock must be from 0 to %d", int64(model.MaxAmount))
		}
		return p.demo(cmd.Context(), s, load)
	}
	return cmd
}

func (p Process) demo(ctx context.Context, s demo.Sale, load loader) (err error) {
	dir, err := os.MkdirTemp("", "seckill-demo-")
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w", err)
	}
	defer func() {
		if removed := os.RemoveAll(dir); removed != nil {
			err = errors.Join(err, fmt.Errorf("remove the temporary directory: %w", removed))
		}
	}()
	environ := slices.DeleteFunc(slices.Clone(p.Environ), func(entry string) bool {
		return !strings.HasPrefix(entry, "SECKILL_ORDER_MODE=")
	})
	cfg, err := load(append(environ, "SECKILL_DATA_DIR="+dir, "SECKILL_HTTP_ADDR=127.0.0.1:0",
		"SECKILL_OPS_ADDR=127.0.0.1:0", "SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0", "SECKILL_LOG_LEVEL=warn"))
	if err != nil {
		return err
	}
	if s.Tokens, err = app.Tokens(ctx, cfg); err != nil {
		return err
	}
	instance, err := app.Start(ctx, cfg, p.newLogger(cfg))
	if err != nil {
		return err
	}
	defer func() {
		// No load balancer must be given time to notice: stop at once.
		done, cancel := context.WithCancel(ctx)
		cancel()
		instance.Stop(done)
	}()
	s.Base, s.Out = instance.BaseURL(), p.Stdout
	return s.Run(ctx)
}
