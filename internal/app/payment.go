package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"

	"seckill/config"
	"seckill/internal/budget"
	"seckill/internal/embedded"
	"seckill/internal/payment"
	"seckill/internal/payment/simulator"
	"seckill/internal/telemetry"
	"seckill/internal/vouchercode"
	"seckill/repository/hotcopy"
	"seckill/service"
	"seckill/service/repair"
	"seckill/service/sale"
)

const webhookPath = "/api/v1/webhooks/payments" // where the provider tells of payments

type payments struct {
	codes     *service.Codes // nil: there is no key, and nothing can be paid
	buyers    func(userID string) string
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
		db.Codes = p.codes.New
		if p.buyers, err = payment.Buyers(key); err != nil {
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
	if err = i.openProvider(ctx, db, p, secrets); err == nil && p.client == nil {
		i.log.WarnContext(ctx, "orders cannot be paid here, there is no payment provider: "+
			"set SECKILL_PAYMENT_URL, or SECKILL_PAYMENT_SIMULATOR=on to try it out")
	}
	return p, err
}

func (i *Instance) openProvider(ctx context.Context, db *Database, p *payments, secrets []string) (err error) {
	if len(secrets) == 0 {
		return nil
	}
	keys, err := payment.Keys(secrets)
	if err != nil {
		return err
	}
	url := i.cfg.PaymentURL
	if i.cfg.PaymentSimulator {
		if url, err = i.openSimulator(ctx, db, p, keys); err != nil {
			return err
		}
	}
	if url == "" {
		return nil
	}
	if p.client, err = payment.NewClient(url, keys[0]); err != nil {
		return fmt.Errorf("use SECKILL_PAYMENT_URL: %w", err)
	}
	i.parts.OnClose("payment provider", func(context.Context) error { p.client.Close(); return nil })
	return nil
}

// openSimulator opens the simulated provider and its listener, and returns where that is.
func (i *Instance) openSimulator(
	ctx context.Context, db *Database, p *payments, keys []string,
) (url string, err error) {
	if !i.cfg.Embedded() { // there the claim on the data directory keeps a second simulator out
		claim := db.Exclusive("payment simulator") //nolint:contextcheck // it outlives the start
		i.parts.OnClose("claim on the payment simulator", func(context.Context) error { return claim.Close() })
		starting, enough := context.WithTimeout(ctx, budget.Step)
		defer enough()
		if err := simulator.Claim(starting, claim.Held, i.log); err != nil {
			return "", err
		}
	}
	if err := embedded.MakeDir(i.cfg.DataDir); err != nil {
		return "", err
	}
	p.simulator, err = simulator.New(ctx, simulator.Options{
		File: embedded.LedgerFile(i.cfg.DataDir), Keys: keys, Signatures: p.webhooks, Log: i.log,
	})
	if err != nil {
		return "", err
	}
	i.parts.OnClose("payment simulator", func(context.Context) error { return p.simulator.Close() })
	pages, err := i.listenInside(ctx, "payment simulator", "payments", i.cfg.PaymentSimulatorAddr, p.simulator)
	if err != nil {
		return "", err
	}
	i.log.InfoContext(ctx, "payments are simulated: no money moves", slog.String("url", pages.URL()))
	return pages.URL(), nil
}

// servePayments makes the service of payments. A worker, which starts no payment, has no orders to look at.
func (i *Instance) servePayments(p *payments, s servers, orders *sale.Orders) {
	deps := service.PaymentDeps{
		Store: s.db.Payments, Refunds: s.db.Refunds, Returned: hotcopy.NewVoucherChanges(s.redis).AnnounceReturn,
		Codes:  p.codes,
		Buyers: p.buyers, ReturnURL: i.cfg.PaymentReturnURL,
		Title: func(ctx context.Context, voucherID string) (string, error) {
			voucher, err := s.db.Vouchers.Get(ctx, voucherID)
			return voucher.Title, err
		},
		Trace: i.tracer, Metrics: telemetry.NewPayments(i.registry), Log: i.log,
	}
	if orders != nil {
		deps.Own, deps.Detail = orders.Get, orders.Detail
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
		i.parts.Loop("payments", budget.Call, p.service.Run)
	}
	if p.simulator != nil && i.cfg.Role != config.RoleWorker {
		i.parts.Loop("payment simulator", budget.Brief,
			func(ctx context.Context) { p.simulator.Run(ctx, i.main.URL()+webhookPath) })
	}
}
