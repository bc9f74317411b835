//part:queue

package e2e_test

import (
	"database/sql"
	"net/http"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// A worker stands still while it holds the voucher's row in a transaction: the
// database ends that, and another persists the orders.
func TestWorkerPausedWithTheHotRowDoesNoHarm(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	w, throughWire := throughDatabase(t, s.role("worker"))
	front := start(t, s.role("api"))
	start(t, throughWire)
	voucher := front.onSale(t, 10)
	came, release := w.holdAt(up, front.user(1), "COMMIT")
	defer release()
	order := front.accepted(t, voucher.ID, front.user(1))
	check.Receive(t, "the COMMIT", came)
	start(t, s.role("worker"))
	front.becomes(t, order, model.OrderUnpaid)
	release() // into a transaction that is over
	check.Equal(t, "orders", len(front.conserved(t, voucher.ID, map[string]string{order.ID: order.UserID})), 1)
	front.sellsOn(t, voucher.ID, 100)
}

// NATS is away for a while. A purchase meanwhile hears 503, and everything that
// was promised before is kept.
func TestQueueAwayPromisesNothing(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnNATS(t)
	a := start(t, s)
	voucher := a.onSale(t, 10)
	promised := a.buysAll(t, voucher.ID, users(a, 0, 3))
	own.Kill()
	check.Volley(2, func(n int) { a.refuses(t, voucher.ID, a.user(10+n)) })
	a.unready(t)
	own.Start()
	a.ready(t)
	a.kept(t, voucher.ID, promised)
	a.sellsOn(t, voucher.ID, 100)
}

// embeddedAsync is what somebody sets who only wants to try it out: the mode.
func embeddedAsync(t *testing.T) settings {
	t.Helper()
	return embeddedSettings(t).with(settings{"SECKILL_ORDER_MODE": "async"})
}

// One order, promised and not yet anywhere but in the queue, when the process
// is killed that is the whole service.
func TestEmbeddedAsyncGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	p := launch(t, embeddedAsync(t))
	voucher := p.onSale(t, 2)
	order := p.accepted(t, voucher.ID, p.user(1))
	p.kill()
	p.start(t)
	p.awaitReady(t)
	p.accepted(t, voucher.ID, p.user(2)) // it sells again
	p.becomes(t, order, model.OrderUnpaid)
	got := remote.Insist(t, "the same user buys again", func(int) (api.Answer, error) { return p.Place(t, voucher.ID, p.user(1)) })
	if got.Status != http.StatusConflict || remote.Decode[api.Problem](t, got).OrderID != order.ID {
		t.Errorf("the same user buys again: %d %s", got.Status, got.Body)
	}
	p.sellsOn(t, voucher.ID, 10)
}

// holdRow keeps a voucher's row locked, so that orders for it are on their way
// until the returned function lets them go.
func holdRow(t *testing.T, s settings, voucherID string) (release func()) {
	t.Helper()
	tx := check.Value(behind(t, s).BeginTx(t.Context(), nil))(t)
	check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), "SELECT id FROM vouchers WHERE id = ? FOR UPDATE", voucherID)))
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Errorf("let the row go: %v", err)
		}
	}
}

// absence is a database that cannot be written for a while.
type absence struct {
	name       string
	begin, end func(t *testing.T)
}

func absences(database *testserver.Server) []absence {
	admin := func(t *testing.T, statement string) {
		t.Helper()
		db := check.Value(sql.Open("mysql", database.AdminDSN("")))(t)
		defer db.Close()
		check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
	}
	return []absence{
		{"killed", func(*testing.T) { database.Kill() }, func(*testing.T) { database.Start() }},
		{"stopped in its tracks", func(*testing.T) { database.Pause() }, func(*testing.T) { database.Resume() }},
		{
			"read-only",
			func(t *testing.T) { t.Helper(); admin(t, "SET GLOBAL read_only = 1") },
			func(t *testing.T) { t.Helper(); admin(t, "SET GLOBAL read_only = 0") },
		},
	}
}
