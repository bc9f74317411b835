package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"seckill/model"
)

// The database takes no order of one voucher for long. That one is refused when
// its orders have waited too long; the other one sells on and is rebuilt, and
// everything that was promised is kept.
func TestOneVouchersTroubleStopsNoOtherSale(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	s["SECKILL_BACKLOG_MAX_AGE"] = "6s" // longer than a busy machine leaves an order of the other voucher waiting
	a := start(t, s)
	bad, good := a.onSale(t, 10_000), a.onSale(t, 100) // the first must not be sold out before it is refused
	execute(t, s, "CREATE TRIGGER trouble BEFORE INSERT ON orders FOR EACH ROW IF NEW.voucher_id = '"+bad.ID+
		"' THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'the table is full'; END IF")
	waiting, next := map[string]string{}, 0
	until(t, 20*time.Second, "the voucher in trouble is refused", func() bool {
		next++
		got, err := a.place(t, bad.ID, a.user(next))
		if err == nil && got.status == http.StatusAccepted {
			waiting[decode[model.Order](t, got).ID] = a.user(next)
		}
		return err == nil && got.code() == model.CodeUnavailable
	})
	sold := map[string]string{}
	a.place(t, good.ID, a.user(0)) //nolint:errcheck // nobody has looked at its backlog yet, which takes a moment
	until(t, settlement, "the other one is known to be well", func() bool {
		got, err := a.place(t, good.ID, a.user(1))
		return err == nil && (got.status == http.StatusAccepted || got.code() == model.CodeAlreadyOrdered)
	})
	for n := 2; n < 22; n++ {
		order := a.accepted(t, good.ID, a.user(n))
		sold[order.ID] = order.UserID
		a.becomes(t, order, model.OrderUnpaid)
	}
	if got := a.call(t, http.MethodPost, "/admin/vouchers/"+good.ID+"/rebuild", a.admin(t), nil); got.status != http.StatusAccepted {
		t.Fatalf("rebuild: %d %s", got.status, got.body)
	}
	until(t, settlement, "it is rebuilt", func() bool { return a.audit(t, good.ID).Redis.State == string(model.CopyOpen) })
	if got, err := a.place(t, bad.ID, a.user(9999)); err != nil || got.code() != model.CodeUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("the voucher in trouble: %d %s, %v", got.status, got.body, err)
	}
	execute(t, s, "DROP TRIGGER trouble")
	orders := a.conserved(t, bad.ID, waiting)
	unbroken(t, orders, waiting)
	unbroken(t, a.conserved(t, good.ID, sold), sold)
}
