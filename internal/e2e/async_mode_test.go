package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// disagrees waits until an instance of another mode is not ready and says why.
func disagrees(t *testing.T, a *app, mode string) {
	t.Helper()
	check.Patiently(t, "an instance in "+mode+" mode is not ready and says why", func() bool {
		got, err := send(a.client, http.MethodGet, a.url+"/readyz", "", nil)
		return err == nil && got.status == http.StatusServiceUnavailable && strings.Contains(string(got.body), mode)
	})
}

// Buyers press on while the database is switched to sync and back: an instance
// of each mode is there, and each of them answers 503 while it is not its turn.
func TestModeSwitchesWithOrdersInFlight(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	inSync := s.with(settings{"SECKILL_ORDER_MODE": "sync"})
	async, other := start(t, s), start(t, inSync)
	stock := check.Count(t, "ORDERS", 400, 3000)
	voucher := async.onSale(t, stock)
	disagrees(t, other, "sync")
	other.refuses(t, voucher.ID, other.user(-1))
	check.Equal(t, "orders of an instance of the other mode", len(async.orders(t, voucher.ID)), 0)

	c := newCrowd(async, voucher.ID, other)
	sale := c.buying(t, users(async, 0, stock*5/4), 4)
	c.moreSales(t, stock/10)
	said, err := runs(t, inSync, "mode", "sync")
	check.Must(t, err)
	t.Log(said)
	other.ready(t)
	disagrees(t, async, "async")
	if sold := other.audit(t, voucher.ID); sold.Mode != model.ModeSync || !sold.Balanced {
		t.Errorf("after the switch to sync: %+v", sold)
	}
	c.moreSales(t, stock/10)
	check.Must(t, check.ErrorOf(runs(t, s, "mode", "async")))
	async.ready(t)
	disagrees(t, other, "sync")
	c.moreSales(t, stock/10)
	sale()

	async.kept(t, voucher.ID, c.promised)
	async.sellsOn(t, voucher.ID, 2*stock)
	if said, err := runs(t, s, "mode"); err != nil || !strings.Contains(said, "async") {
		t.Errorf("seckill mode says %q, %v", said, err)
	}
	t.Logf("%d promised, %d × 503", len(c.promised), c.refused)
}
