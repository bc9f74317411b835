//part:races

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
		got, err := a.Get("/readyz")
		return err == nil && got.Status == http.StatusServiceUnavailable && strings.Contains(string(got.Body), mode)
	})
}

// Buyers press on while the database is switched to sync and back: an instance
// of each mode is there, and each of them answers 503 while it is not its turn.
func TestModeSwitchesWithOrdersInFlight(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	inSync := s.with(settings{"SECKILL_ORDER_MODE": "sync"})
	async := start(t, s)
	const stock = 1_000_000 // the sale lasts for as long as the switches take
	voucher := async.onSale(t, stock)
	other := start(t, inSync) // an instance adopts a database without a voucher for its own mode
	disagrees(t, other, "sync")
	other.refuses(t, voucher.ID, other.user(-1))
	check.Equal(t, "orders of an instance of the other mode", len(async.orders(t, voucher.ID)), 0)

	c := newCrowd(async, voucher.ID, other)
	over := c.coming(t, 4)
	some := check.Count(t, "ORDERS", 20, 500)
	c.moreSales(t, some)
	said, err := runs(t, inSync, "mode", "sync")
	check.Must(t, err)
	t.Log(said)
	other.ready(t)
	disagrees(t, async, "async")
	if sold := other.Audit(t, voucher.ID); sold.Mode != model.ModeSync || !sold.Balanced {
		t.Errorf("after the switch to sync: %+v", sold)
	}
	c.moreSales(t, some)
	check.Must(t, check.ErrorOf(runs(t, s, "mode", "async")))
	async.ready(t)
	disagrees(t, other, "sync")
	c.moreSales(t, some)
	over()

	sold := len(async.kept(t, voucher.ID, c.promised))
	async.Call(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/stock", async.Admin(t), map[string]any{"stock": sold + 10})
	check.Equal(t, "units sold to the last", len(async.sellsOn(t, voucher.ID, stock)), 10)
	if said, err := runs(t, s, "mode"); err != nil || !strings.Contains(said, "async") {
		t.Errorf("seckill mode says %q, %v", said, err)
	}
	t.Logf("%d promised, %d × 503", len(c.promised), c.refused)
}
