package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"seckill/internal/listener"

	"seckill/config"
	"seckill/internal/conns"
	"seckill/internal/embedded"
	"seckill/internal/payment"
	"seckill/internal/payment/simulator"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/internal/vouchercode"
	"seckill/model"
	"seckill/service"
	"seckill/service/repair"
)

const (
	// claimPatience is how long a claim of the instance before, which has just died, is waited for.
	claimPatience = 2 * time.Second
	// shortWebhookSecret, in bytes, is the least that Standard Webhooks wants.
	shortWebhookSecret = 24
	// webhookPath is where the provider tells of payments.
	webhookPath = "/api/v1/webhooks/payments"
)

// payments is what this instance needs so that orders can be paid.
type payments struct {
	codes     *service.Codes // nil: there is no key, and nothing can be paid
	buyers    *payment.Buyers
	webhooks  *payment.Signatures
	client    *payment.Client   // nil: there is no provider
	simulator *simulator.Server // nil: it is not here

	service *service.Payments // nil until servePayments
}

// openPayments opens what the settings ask for, and the simulator's listener.
func (i *Instance) openPayments(ctx context.Context, db *Database) (p *payments, err error) {
	p = &payments{}
	key := i.cfg.CodeKey
	if key == "" && i.cfg.Embedded() {
		if key, err = embedded.CodeKey(ctx, i.cfg.DataDir); err != nil {
			return nil, err
		}
	}
	if key != "" {
		keys, err := vouchercode.NewKeys(key)
		if err != nil {
			return nil, fmt.Errorf("use SECKILL_CODE_KEY: %w", err)
		}
		p.codes = service.NewCodes(keys, i.log)
		if p.buyers, err = payment.NewBuyers(key); err != nil {
			return nil, err
		}
	}
	secrets := i.cfg.WebhookSecrets
	if len(secrets) == 0 && i.cfg.PaymentSimulator {
		secrets = []string{rand.Text()} // between the simulator in this process and the API in it
	}
	if p.webhooks, err = payment.NewSignatures(secrets); err != nil {
		return nil, fmt.Errorf("use SECKILL_WEBHOOK_SECRETS: %w", err)
	}
	for n, secret := range i.cfg.WebhookSecrets {
		if len(secret) < shortWebhookSecret {
			i.log.WarnContext(ctx, "a secret of webhooks is short, and whoever guesses it can pay without money: "+
				"take one from openssl rand -base64 32", slog.Int("secret", n+1), slog.Int("bytes", len(secret)))
		}
	}
	if err = i.openProvider(ctx, db, p, secrets); err == nil && p.client == nil {
		i.log.WarnContext(ctx, "orders cannot be paid here, there is no payment provider: "+
			"set SECKILL_PAYMENT_URL, or SECKILL_PAYMENT_SIMULATOR=on to try it out")
	}
	return p, err
}

// openProvider opens the way to the payment provider.
func (i *Instance) openProvider(ctx context.Context, db *Database, p *payments, secrets []string) (err error) {
	if len(secrets) == 0 {
		return nil
	}
	key, err := payment.Key(secrets[0])
	if err != nil {
		return err
	}
	url := i.cfg.PaymentURL
	if i.cfg.PaymentSimulator {
		switch err := i.claimLedger(ctx, db); {
		case errors.Is(err, errSecondLedger):
			i.log.WarnContext(ctx, "this is a second payment simulator", slog.Any("error", err))
		case err != nil:
			return err
		}
		if url, err = i.openSimulator(ctx, p, key); err != nil {
			return err
		}
	}
	if url == "" {
		return nil
	}
	if p.client, err = payment.NewClient(url, key); err != nil {
		return fmt.Errorf("use SECKILL_PAYMENT_URL: %w", err)
	}
	i.parts.OnClose("payment provider", func(context.Context) error { p.client.Close(); return nil })
	return nil
}

// claimLedger finds out whether this instance is the only one on its database that has the simulator. A second ledger does
// not know the first one's payments, and each instance asks its own: that does for trying out, and is said. Embedded, the claim on the data directory does the same.
func (i *Instance) claimLedger(ctx context.Context, db *Database) error {
	if i.cfg.Embedded() {
		return nil
	}
	claim := db.Exclusive("payment simulator") //nolint:contextcheck // it outlives the start
	i.parts.OnClose("claim on the payment simulator", func(context.Context) error { return claim.Close() })
	ctx, enough := context.WithTimeout(ctx, startTimeout)
	defer enough()
	var (
		held   bool
		failed error     // of the last question, unless it was cut short
		taken  time.Time // when another instance was first seen to have it; a question that fails says nothing of that
	)
	_ = poll.Until(ctx, claimPatience/10, func() (bool, error) {
		var err error
		held, err = claim.Held(ctx)
		if ctx.Err() == nil {
			failed = err
		}
		if err == nil && taken.IsZero() {
			taken = time.Now()
		}
		return held || !taken.IsZero() && time.Since(taken) >= claimPatience, nil
	})
	if held {
		return nil
	}
	if failed != nil {
		return fmt.Errorf("claim the payment simulator: %w", failed)
	}
	return errSecondLedger
}

// errSecondLedger tells of a second simulator.
var errSecondLedger = errors.New("another instance on this database has the payment simulator, and this one keeps a ledger of its own, which does not know the payments of the other: " +
	"set SECKILL_PAYMENT_SIMULATOR=off here, SECKILL_PAYMENT_URL to the other one's simulator, and SECKILL_WEBHOOK_SECRETS as there")

// openSimulator opens the simulated provider and its listener, and returns where that is.
func (i *Instance) openSimulator(ctx context.Context, p *payments, key string) (url string, err error) {
	if err := embedded.MakeDir(i.cfg.DataDir); err != nil {
		return "", err
	}
	p.simulator, err = simulator.New(ctx, simulator.Options{
		File: embedded.LedgerFile(i.cfg.DataDir), Key: key, Signatures: p.webhooks, Log: i.log,
	})
	if err != nil {
		return "", err
	}
	i.parts.OnClose("payment simulator", func(context.Context) error { return p.simulator.Close() })
	pages, err := i.listen(ctx, listener.Options{
		Name: "payment simulator", Address: i.cfg.PaymentSimulatorAddr, Patience: opsPatience,
		Handler: listener.KnownHosts(p.simulator, i.cfg.PaymentSimulatorAddr),
		Guard: conns.New(conns.Options{
			Name: "payments", Max: opsConnections, PerNetwork: opsConnections, Metrics: i.registry, Log: i.log,
		}),
	})
	if err != nil {
		return "", err
	}
	i.log.InfoContext(ctx, "payments are simulated: no money moves", slog.String("url", pages.URL()))
	return pages.URL(), nil
}

// servePayments makes the service of payments. Own finds a user's order; a worker, which starts no payment, has none.
func (i *Instance) servePayments(p *payments, db *Database, own func(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error)) {
	deps := service.PaymentDeps{
		Store: db.Payments, Refunds: db.Refunds, Codes: p.codes, Own: own,
		Buyers: p.buyers, ReturnURL: i.cfg.PaymentReturnURL,
		Title: func(ctx context.Context, voucherID string) (string, error) {
			voucher, err := db.Vouchers.Get(ctx, voucherID)
			return voucher.Title, err
		},
		Trace: i.tracer, Metrics: telemetry.NewPayments(i.registry), Log: i.log,
	}
	if p.client != nil && p.codes != nil {
		deps.Provider = p.client
	}
	p.service = service.NewPayments(deps)
}

// asker asks for payments before their orders expire; nil where there is no provider.
func (p *payments) asker() repair.Provider {
	if p.service == nil || p.service.Provider == nil {
		return nil
	}
	return p.service
}

// runPayments makes refunds and asks for payments until the stop, and has the simulator send its webhooks.
func (i *Instance) runPayments(p *payments) {
	if p.asker() != nil && i.cfg.Role != config.RoleAPI {
		i.parts.Loop("payments", workPatience, p.service.Run)
	}
	if p.simulator != nil && i.cfg.Role != config.RoleWorker {
		i.parts.Loop("payment simulator", lookPatience, func(ctx context.Context) { p.simulator.Run(ctx, i.main.URL()+webhookPath) })
	}
}
