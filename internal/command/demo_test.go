//part:stores

package command

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/demo"
	"seckill/internal/payment"
	"seckill/internal/workshop/check"
)

// aging is what a demo prints. Where it says that orders are left to expire, their time is made to be over. Until then
// they have more time than a slow machine needs.
type aging struct {
	check.Log

	over func()
}

// Write implements io.Writer.
func (a *aging) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "left to expire") {
		a.over()
	}
	return a.Log.Write(p)
}

// demoInside runs a demo against an instance, and returns what it prints.
func demoInside(t *testing.T, s demo.Sale, cfg config.Config) (text string, err error) {
	t.Helper()
	s.Window = demo.Longest / 2
	out := &aging{over: func() {
		ofDatabase(t, cfg, "UPDATE orders SET expires_at = created_at WHERE status = 'unpaid'")
	}}
	s.Out = out
	err = s.Run(t.Context())
	return words(out.String()), err
}

// A demo sells, lets orders be paid and lapse, sells again what came back, and its counts agree.
func TestDemo(t *testing.T) {
	t.Parallel()
	const secret = "a secret of webhooks between the two"
	for mode, demos := range map[string][]struct {
		buyers int
		stock  int64
		want   []string // in its output
	}{ // make test runs the first of each mode
		"sync": {
			{120, 7, []string{
				"201 CREATED 7 ", "409 SOLD_OUT 113 ", "120 of 120 answered, 7 sold", "7 of 7 sold", "MEDIAN P99",
				"4 paid", "3 left to expire", "4 sold again", "the audit: 7 orders hold a unit (stock 7, remaining 0, balanced)",
				"expired 3 0.00 0.00 0.00 paid 2 20.00 0.00 20.00 redeemed 1 10.00 0.00 10.00 refunded 1 10.00 10.00 0.00 unpaid 4 0.00 ",
				"by our orders 11 40.00 10.00 30.00 by the provider's payments 5 40.00 10.00 30.00 the audit",
			}},
			{5, 50, []string{
				"201 CREATED 5 ", "5 of 50 sold", "remaining 45, balanced", "3 paid", "2 left to expire", "3 sold again",
				"by our orders 8 30.00 10.00 20.00 by the provider's payments 4 30.00 10.00 20.00",
			}},
			{1, 0, []string{"409 SOLD_OUT 1 ", "0 of 0 sold", "nothing is paid"}},
			{1, 1, []string{
				"1 paid", "0 left to expire", "0 sold again", "by our orders 1 10.00 0.00 10.00 by the provider's payments 2 10.00 0.00 10.00",
			}},
		},
		"async": {
			{120, 7, []string{
				"202 ACCEPTED 7 ", "409 SOLD_OUT 113 ", "7 orders were processing", "7 of 7 sold", "remaining 0, balanced",
				"4 sold again", "4 orders were processing", "by our orders 11 40.00 10.00 30.00 by the provider's payments 5 40.00 10.00 30.00",
			}},
			{5, 50, []string{"3 sold again", "(stock 50, remaining 45, balanced)"}},
		},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			instance, cfg := started(t, "SECKILL_ORDER_MODE="+mode, "SECKILL_WEBHOOK_SECRETS="+secret, "SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0")
			at := counterOf(t, instance, cfg)
			s := demo.Sale{Base: at.URL, Tokens: at.Tokens, HTTP: at.Client}
			s.OpenLedger = func(base string) (demo.Ledger, error) { return demo.ProviderLedger(base, secret) }
			if !check.Faults {
				demos = demos[:1]
			}
			for _, d := range demos {
				s.Buyers, s.Stock = d.buyers, d.stock
				text := check.Value(demoInside(t, s, cfg))(t)
				for _, want := range d.want {
					if !strings.Contains(text, want) {
						t.Errorf("%d buyers of %d: it lacks %q:\n%s", d.buyers, d.stock, want, text)
					}
				}
			}
			if mode == "sync" {
				noticesALedgerThatDiffers(t, s, cfg, secret)
			}
		})
	}
}

// The command has a server of its own, of whose settings only the order mode is said by the environment. It leaves
// nothing behind.
func TestDemoCleansUp(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	environ := []string{"SECKILL_LOCK_MODE=maybe", "SECKILL_ORDER_MODE=async"}
	got := call(t, environ, "", "demo", "--buyers", "2", "--stock", "1", "--payment-window", "30m", "--stock-strategy", "optimistic")
	if got.code != 0 || !strings.Contains(words(got.stdout), "202 ACCEPTED 1 ") {
		t.Fatalf("%+v", got)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
}

// meddled is a provider's ledger in which somebody gives a payment back by hand before we look at it.
type meddled struct{ *payment.Client }

func (m meddled) LookUp(ctx context.Context, id string) (payment.Payment, error) {
	p, err := m.Client.LookUp(ctx, id)
	if err != nil || p.Status != payment.Succeeded || p.Refunded > 0 {
		return p, err
	}
	by := payment.Refund{PaymentID: id, Money: payment.Money{Amount: 1, Currency: p.Currency}} // one cent
	if err := m.Refund(ctx, "by hand "+id, by); err != nil {
		return p, err
	}
	return m.Client.LookUp(ctx, id)
}

// A real ledger that differs by a cent is an error, with which the command exits with 1.
func noticesALedgerThatDiffers(t *testing.T, s demo.Sale, cfg config.Config, secret string) {
	t.Helper()
	s.Buyers, s.Stock = 4, 3
	s.OpenLedger = func(base string) (demo.Ledger, error) {
		client, err := payment.NewClient(base, check.Value(payment.Key(secret))(t))
		return meddled{client}, err
	}
	text, err := demoInside(t, s, cfg)
	if err == nil || !strings.Contains(err.Error(), "is redeemed, which is 10.00 received and 0.00 returned; the provider has 10.00 and 0.01") ||
		!strings.Contains(err.Error(), "our orders kept 10.00 and the provider 9.99") {
		t.Errorf("the demo says %v\n%s", err, text)
	}
	if !strings.Contains(text, "by our orders 5 20.00 10.00 10.00 by the provider's payments 3 20.00 10.01 9.99") {
		t.Errorf("its table:\n%s", text)
	}
}
