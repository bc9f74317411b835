package e2e_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

// embeddedAsync is what somebody sets who only wants to try it out: the mode.
// (And where, so that tests do not meet.)
func embeddedAsync(t *testing.T) settings {
	t.Helper()
	return settings{
		"SECKILL_ORDER_MODE": "async",
		"SECKILL_DATA_DIR":   t.TempDir(),
		"SECKILL_JWT_SECRET": secret,
		"SECKILL_RATE_USER":  "0",
		"SECKILL_RATE_ADDR":  "0",
	}
}

// The whole service is one process, killed at a random instant of a rush, twice.
// Its Redis is empty after each start; what was promised is there.
func TestEmbeddedAsyncSurvivesAKill(t *testing.T) {
	t.Parallel()
	chance := seeded(t)
	p := prepare(t, testserver.Program(t), embeddedAsync(t))
	p.start(t)
	p.awaitReady(t)
	const stock, buyers = 300, 500
	voucher := p.onSale(t, stock)
	c := newCrowd(p.app, voucher.ID)
	var load sync.WaitGroup
	load.Go(func() { c.buy(t, users(p.app, 0, buyers), 16) })
	for range 2 {
		c.moreSales(t, 10+chance.IntN(60))
		p.kill()
		p.start(t)
		p.awaitReady(t)
	}
	load.Wait()

	orders := p.conserved(t, voucher.ID, c.promised)
	unbroken(t, orders, c.promised)
	p.sellsOn(t, voucher.ID, buyers)
	t.Logf("%d × 202, %d × 503, %d without an answer", c.yes, c.refused, c.failed)
}

// One order, promised and not yet anywhere but in the queue, when the process
// is killed.
func TestEmbeddedAsyncGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	s := embeddedAsync(t)
	p := prepare(t, testserver.Program(t), s)
	p.start(t)
	p.awaitReady(t)
	voucher := p.onSale(t, 2)
	order := p.accepted(t, voucher.ID, p.user(1))
	p.kill()
	p.start(t)
	p.awaitReady(t)
	until(t, 10*time.Second, "it sells again", func() bool {
		got, err := p.place(t, voucher.ID, p.user(2))
		return err == nil && (got.status == http.StatusAccepted || got.code() == model.CodeAlreadyOrdered)
	})
	p.becomes(t, order, model.OrderUnpaid)
	if got, err := p.place(t, voucher.ID, p.user(1)); err != nil || got.code() != model.CodeAlreadyOrdered || decode[problem](t, got).OrderID != order.ID {
		t.Errorf("he buys again: %d %s %v", got.status, got.body, err)
	}
	p.sellsOn(t, voucher.ID, 10)
}
