//go:build faults

//part:queue

package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// The queue has stored the order, and its answer is lost with the connection.
// Whoever asks again, the service or the buyer, has that order, and there is no
// other.
func TestLostAckMakesOneOrder(t *testing.T) {
	t.Parallel()
	w, s := throughNATS(t, asyncOnServers(t))
	a := start(t, s)
	voucher := a.onSale(t, 5)
	user := a.user(1)
	came, _ := w.holdAt(down, user)
	bought := a.later(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.Token(t, user, model.RoleUser))
	check.Receive(t, "the message", came)
	w.cut()
	if got := <-bought; got.Status != http.StatusAccepted && (got.Code() != model.CodeUnavailable || got.Header.Get("Retry-After") == "") {
		t.Errorf("without an ack: %d %s", got.Status, got.Body)
	}
	order := a.accepted(t, voucher.ID, user) // the user hears of the order
	orders := a.kept(t, voucher.ID, map[string]string{order.ID: user})
	check.Equal(t, "orders", len(orders), 1)
	a.sellsOn(t, voucher.ID, 10)
}

// A message that is stored twice, the second time when the queue has forgotten
// its id long ago, makes one order, also if that is canceled in between.
func TestRepeatedMessageMakesOneOrder(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	front := start(t, s.role("api"))
	voucher := front.onSale(t, 5)
	stream := streamOf(t, s)
	order := front.accepted(t, voucher.ID, front.user(1))
	promised := map[string]string{order.ID: order.UserID}
	message := stream.last(t)
	for range 3 {
		stream.repeat(t, message)
	}
	start(t, s.role("worker"))
	front.becomes(t, order, model.OrderUnpaid)
	check.Equal(t, "orders", len(front.conserved(t, voucher.ID, promised)), 1)
	front.cancels(t, order)
	stream.repeat(t, message)
	if orders := front.conserved(t, voucher.ID, promised); orders[order.ID].Status != model.OrderCanceled {
		t.Errorf("a late message revived %+v", orders[order.ID])
	}
	check.Equal(t, "sold after the cancel", len(front.sellsOn(t, voucher.ID, 10)), 5)
}

// A full queue refuses. Nothing that is in it is discarded, nobody is promised
// anything, and what is reserved becomes an order once there is room.
func TestFullQueueRefusesAndDiscardsNothing(t *testing.T) {
	t.Parallel()
	_, s := asyncOnOwnNATS(t, "max_file_store: 64KB")
	s["SECKILL_BACKLOG_MAX_AGE"] = "1h" // it is the room that is wanting here
	front := start(t, s.role("api"))
	const stock = 2000
	voucher := front.onSale(t, stock)
	promised, refused, next := map[string]string{}, map[string]bool{}, 0
	for ; len(refused) < 5 && next < stock; next++ {
		user := front.user(next)
		got, err := front.Place(t, voucher.ID, user)
		switch {
		case err == nil && got.Status == http.StatusAccepted:
			promised[remote.Decode[model.Order](t, got).ID] = user
		case err == nil && got.Code() == model.CodeUnavailable && got.Header.Get("Retry-After") != "":
			refused[user] = true
		default:
			t.Fatalf("%s: %d %s %v", user, got.Status, got.Body, err)
		}
	}
	if len(refused) < 5 {
		t.Fatalf("the queue was never full: %d orders", len(promised))
	}
	start(t, s.role("worker"))
	front.kept(t, voucher.ID, promised)
	check.Equal(t, "reservations that leaked", stats(t, front, voucher.ID).Reserved, 0)
	for user := range refused {
		front.accepted(t, voucher.ID, user)
	}
	front.kept(t, voucher.ID, promised)
	t.Logf("%d promised, %d refused", len(promised), len(refused))
}

// The database takes no order of one voucher for long. That one is refused when
// its orders have waited too long; the other one sells on and is rebuilt, and
// everything that was promised is kept.
func TestOneVouchersTroubleStopsNoOtherSale(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	s["SECKILL_BACKLOG_MAX_AGE"] = "6s"
	a := start(t, s)
	bad, good := a.onSale(t, 10_000), a.onSale(t, 100) // the first must not be sold out before it is refused
	execute(t, s, "CREATE TRIGGER trouble BEFORE INSERT ON orders FOR EACH ROW IF NEW.voucher_id = '"+bad.ID+
		"' THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1105, MESSAGE_TEXT = 'no order can be stored'; END IF")
	waiting, next := map[string]string{}, 0
	check.Patiently(t, "the voucher in trouble is refused", func() bool {
		next++
		got, err := a.Place(t, bad.ID, a.user(next))
		if err == nil && got.Status == http.StatusAccepted {
			waiting[remote.Decode[model.Order](t, got).ID] = a.user(next)
		}
		return err == nil && got.Code() == model.CodeUnavailable
	})
	sold := map[string]string{}
	for n := range 20 {
		order := a.accepted(t, good.ID, a.user(n))
		sold[order.ID] = order.UserID
		a.becomes(t, order, model.OrderUnpaid)
	}
	a.rebuild(t, good.ID)
	a.opens(t, good.ID)
	a.refuses(t, bad.ID, a.user(9999))
	execute(t, s, "DROP TRIGGER trouble")
	a.kept(t, bad.ID, waiting)
	a.kept(t, good.ID, sold)
}

// The queue loses everything while all that was promised is in it and no worker has seen it, as three servers do whose
// disks are all gone. Redis knows what was reserved: it is published again as soon as somebody has made the stream anew,
// which every start does.
func TestAQueueWithoutItsDisksLosesNoOrder(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnNATS(t)
	a := start(t, s.role("api").with(settings{"SECKILL_BACKLOG_MAX_AGE": "1h"}))
	voucher := a.onSale(t, 30)
	promised := a.buysAll(t, voucher.ID, users(a, 0, 10))
	own.Kill()
	own.ClearData()
	own.Start()
	start(t, s.role("worker"))
	a.kept(t, voucher.ID, promised)
	a.sellsOn(t, voucher.ID, 100)
}

// NATS takes far fewer orders in a message than are held when it comes back: they are published again in as many messages as it
// needs. Each unit is decided, for those who heard a promise and for those who heard that it is not known.
func TestASmallMessageSizeHoldsNoUnitForGood(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnNATS(t, "max_payload: 16KB")
	a := start(t, s)
	const buyers, together = 400, 200 // 16 KB are some 80 orders
	voucher := a.onSale(t, buyers+20)
	promised := a.buysAll(t, voucher.ID, users(a, buyers, 10))
	own.Pause()
	answers := make([]<-chan api.Answer, buyers)
	for n := range answers {
		answers[n] = a.later(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.Token(t, a.user(n), model.RoleUser))
	}
	check.Patiently(t, "many units are held", func() bool { return stats(t, a, voucher.ID).Reserved >= together })
	own.Kill()
	own.Start()
	unknown := 0
	for n, answer := range answers {
		switch got := <-answer; {
		case got.Status == http.StatusAccepted:
			promised[remote.Decode[model.Order](t, got).ID] = a.user(n)
		case got.Code() == model.CodeUnavailable && got.Header.Get("Retry-After") != "":
			unknown++
		default:
			t.Errorf("%s buys: %d %s", a.user(n), got.Status, got.Body)
		}
	}
	a.kept(t, voucher.ID, promised)
	a.sellsOn(t, voucher.ID, buyers+10)
	t.Logf("%d promised, %d not known", len(promised), unknown)
}
