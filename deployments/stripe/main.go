// Command stripe speaks the service's protocol of payments (payment.Serve) on one side and Stripe Checkout
// (provider.go, adapter.go) on the other. See deployments/payments.md. Another adapter is a payment.Provider too.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stripe/stripe-go/v85"

	"seckill/internal/budget"
	"seckill/internal/payment"
	"seckill/internal/sqlitefile"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8090", "where the service and Stripe call")
	file := flag.String("file", "payments.db", "what the adapter remembers")
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, *listen, *file, os.Getenv, log); err != nil { //nolint:forbidigo // its settings are its own
		log.Error("the adapter ends", slog.Any("error", err))
		os.Exit(1) //nolint:gocritic // nothing is deferred that matters
	}
}

func run(ctx context.Context, listen, file string, getenv func(string) string, log *slog.Logger) (err error) {
	a, err := newAdapter(ctx, file, getenv, stripe.NewBackendsWithConfig(backend()), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.book.db.Close()) }()
	server := &http.Server{
		Addr: listen, Handler: a.routes(), ReadTimeout: budget.Step, WriteTimeout: budget.Step,
		IdleTimeout: budget.Survey,
	}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		ending, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Step)
		defer enough()
		stopped <- server.Shutdown(ending)
	})
	log.InfoContext(ctx, "payments go to Stripe Checkout", slog.String("address", listen))
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return <-stopped
}

// backend repeats nothing by itself, because the service does, and tells Stripe nothing of how long calls take.
func backend() *stripe.BackendConfig {
	return &stripe.BackendConfig{
		MaxNetworkRetries: new(int64(0)), EnableTelemetry: new(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull}, // every error is logged where it is handled
	}
}

func newAdapter(
	ctx context.Context, file string, getenv func(string) string, backends *stripe.Backends, log *slog.Logger,
) (*adapter, error) {
	for _, name := range []string{"STRIPE_KEY", "STRIPE_WEBHOOK_SECRET", "SECKILL_WEBHOOK_SECRETS", "SHOP_WEBHOOK_URL"} {
		if getenv(name) == "" {
			return nil, fmt.Errorf("%s is missing", name)
		}
	}
	secrets := strings.Split(getenv("SECKILL_WEBHOOK_SECRETS"), ",")
	for i := range secrets {
		secrets[i] = strings.TrimSpace(secrets[i]) // as the service does
	}
	signatures, err := payment.NewSignatures(secrets)
	keys, wrong := payment.Keys(secrets)
	if err = cmp.Or(err, wrong); err != nil {
		return nil, fmt.Errorf("use SECKILL_WEBHOOK_SECRETS: %w", err)
	}
	kept, err := sqlitefile.Open(ctx, file, schema)
	if err != nil {
		return nil, err
	}
	return &adapter{
		book: &book{kept}, checkouts: checkouts{stripe.NewClient(getenv("STRIPE_KEY"), stripe.WithBackends(backends))},
		keys: keys, secret: getenv("STRIPE_WEBHOOK_SECRET"), signatures: signatures, shop: getenv("SHOP_WEBHOOK_URL"),
		client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, log: log,
	}, nil
}
