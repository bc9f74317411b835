package e2e_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/model"
)

// disagrees waits until an instance of another mode is not ready and says why.
func disagrees(t *testing.T, a *app, mode string) {
	t.Helper()
	until(t, 10*time.Second, "an instance in "+mode+" mode is not ready and says why", func() bool {
		got, err := send(a.client, http.MethodGet, a.url+"/readyz", "", nil)
		return err == nil && got.status == http.StatusServiceUnavailable && strings.Contains(string(got.body), mode)
	})
}

func TestSyncInstanceBesideAsyncOnesSellsNothing(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	async := start(t, s)
	voucher := async.onSale(t, 30)
	stray := start(t, s.with(settings{"SECKILL_ORDER_MODE": "sync"}))
	disagrees(t, stray, "sync")
	promised := map[string]string{}
	for n := range 40 {
		got, err := stray.place(t, voucher.ID, stray.user(n))
		if err != nil || got.code() != model.CodeUnavailable {
			t.Errorf("the sync instance: %d %s %v, want UNAVAILABLE", got.status, got.body, err)
		}
		if n < 20 {
			order := async.accepted(t, voucher.ID, async.user(n))
			promised[order.ID] = order.UserID
		}
	}
	if orders := async.conserved(t, voucher.ID, promised); len(orders) != len(promised) {
		t.Errorf("%d orders, %d were promised", len(orders), len(promised))
	}
	async.sellsOn(t, voucher.ID, 100)
}

// Buyers press on while the database is switched to sync and back: an instance
// of each mode is there, and each of them answers 503 while it is not its turn.
func TestModeSwitchesWithOrdersInFlight(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	inSync := s.with(settings{"SECKILL_ORDER_MODE": "sync"})
	async := launch(t, s)
	const stock, buyers = 3000, 3500
	voucher := async.onSale(t, stock)
	other := prepare(t, async.path, inSync)
	other.start(t)

	c := newCrowd(async.app, voucher.ID, other.app)
	var load sync.WaitGroup
	load.Go(func() { c.buy(t, users(async.app, 0, buyers), 4) })
	c.afterSales(t, 100)
	said, err := runs(t, inSync, "mode", "sync")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(said)
	until(t, 10*time.Second, "the sync instance is ready", func() bool { return other.status(t, "/readyz") == http.StatusOK })
	disagrees(t, async.app, "async")
	sold := other.audit(t, voucher.ID)
	if sold.Mode != model.ModeSync || !sold.Balanced {
		t.Errorf("after the switch to sync: %+v", sold)
	}
	c.moreSales(t, 100)
	if _, err := runs(t, s, "mode", "async"); err != nil {
		t.Fatal(err)
	}
	until(t, 10*time.Second, "the async instance is ready", func() bool { return async.status(t, "/readyz") == http.StatusOK })
	disagrees(t, other.app, "sync")
	c.moreSales(t, 100)
	load.Wait()

	orders := async.conserved(t, voucher.ID, c.promised)
	unbroken(t, orders, c.promised)
	async.sellsOn(t, voucher.ID, buyers)
	if said, err := runs(t, s, "mode"); err != nil || !strings.Contains(said, "async") {
		t.Errorf("seckill mode says %q, %v", said, err)
	}
	t.Logf("%d promised, %d × 503", len(c.promised), c.refused)
}
