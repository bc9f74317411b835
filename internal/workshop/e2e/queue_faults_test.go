//go:build faults

//part:queue

package e2e_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// The queue has stored the order, and its answer is lost with the connection. Whoever asks again, the service or the
// buyer, has that order, and there is no other.
func TestLostAckMakesOneOrder(t *testing.T) {
	t.Parallel()
	w, s := throughNATS(t, asyncOnServers(t))
	a := start(t, s)
	voucher := a.onSale(t, 5)
	user := a.user(1)
	came, _ := w.holdAt(down, user)
	bought := a.later(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.as(t, user))
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

// A message that is stored twice, the second time when the queue has forgotten its id long ago, makes one order, also
// if that is canceled in between.
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

// A full queue refuses. Nothing that is in it is discarded, nobody is promised anything, and what is reserved becomes
// an order once there is room.
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
	check.Need(t, len(refused) >= 5, "the queue was never full: %d orders", len(promised))
	start(t, s.role("worker"))
	front.kept(t, voucher.ID, promised)
	check.Equal(t, "reservations that leaked", stats(t, front, voucher.ID).Reserved, 0)
	for user := range refused {
		front.accepted(t, voucher.ID, user)
	}
	front.kept(t, voucher.ID, promised)
	t.Logf("%d promised, %d refused", len(promised), len(refused))
}

// The database takes no order of one voucher for long. That one is refused when its orders have waited too long; the
// other one sells on and is rebuilt, and everything that was promised is kept.
func TestOneVouchersTroubleStopsNoOtherSale(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	s["SECKILL_BACKLOG_MAX_AGE"] = "6s"
	a := start(t, s)
	bad, good := a.onSale(t, 10_000), a.onSale(t, 100) // the first must not be sold out before it is refused
	execute(t, s, refusing("trouble", bad.ID, "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1105"))
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
// disks are all gone. Redis knows what was reserved: it is published again as soon as somebody has made the stream
// anew, which every start does.
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

// NATS takes far fewer orders in a message than are held when it comes back: they are published again in as many
// messages as it needs. Each unit is decided, for those who heard a promise and for those who heard that it is not
// known.
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
		answers[n] = a.later(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.as(t, a.user(n)))
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

// rebuilds asks for a rebuild in the background. Somebody's COMMIT may keep it waiting.
func (a *app) rebuilds(t *testing.T, voucherID string) (answered func()) {
	t.Helper()
	waiting := a.later(t, http.MethodPost, "/admin/vouchers/"+voucherID+"/rebuild", a.Admin(t))
	return func() {
		got := check.Receive(t, "the answer of the rebuild", waiting)
		check.That(t, got.Status == http.StatusAccepted || remote.Again(got, nil), "rebuild: %d %s", got.Status, got.Body)
	}
}

// A COMMIT is under way while a rebuild is asked for: the new copy opens only once it knows what became of it.
func TestCommitHeldAcrossARebuild(t *testing.T) {
	t.Parallel()
	for name, held := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := asyncOnServers(t)
			w, throughWire := throughDatabase(t, s.role("worker"))
			a := start(t, s.role("api"))
			start(t, throughWire)
			c := newCounterfeiter(t, s)
			whileHeld(t, func(n int) (meanwhile bool) {
				voucher, user := a.onSale(t, 10), a.user(1000+n)
				first := a.becomes(t, a.accepted(t, voucher.ID, a.user(2)), model.OrderUnpaid)
				epoch := c.copyOf(t, voucher.ID).Epoch

				came, release := w.holdAt(held, user, "COMMIT")
				defer release()
				order := a.accepted(t, voucher.ID, user)
				check.Receive(t, "the COMMIT", came)
				answered := a.rebuilds(t, voucher.ID)
				if meanwhile = true; held == down { // the order is there, but nobody has told the queue
					meanwhile = c.staysClosed(t, voucher.ID, epoch)
				}
				release()
				answered()
				a.rebuild(t, voucher.ID) // it may have been told to come again
				c.reopens(t, voucher.ID, epoch)
				a.kept(t, voucher.ID, map[string]string{order.ID: user, first.ID: first.UserID})
				a.sellsOn(t, voucher.ID, 100)
				return meanwhile
			})
		})
	}
}

// staysClosed looks again and again whether a sale that a rebuild closes opens before the queue has been told. It tells
// whether the queue was not told as long as was looked.
func (c counterfeiter) staysClosed(t *testing.T, voucherID string, epoch int64) (untold bool) {
	t.Helper()
	check.Eventually(t, "the sale is closed", func() bool {
		now := c.copyOf(t, voucherID)
		return now.State != model.CopyOpen || now.Epoch > epoch
	})
	for range 100 {
		now := c.copyOf(t, voucherID)
		waiting := check.Value(c.queue.BacklogOf(t.Context(), voucherID))(t).Messages > 0
		opened := now.State == model.CopyOpen
		check.That(t, !opened || !waiting, "it opened before the queue had been told: %+v", now)
		if !waiting {
			return false
		}
	}
	return true
}

// A user cancels while the hot copy is rebuilt: before, behind and in the middle of what the rebuild reads.
func TestCancelDuringARebuildReturnsItsUnitOnce(t *testing.T) {
	t.Parallel()
	for name, held := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := asyncOnServers(t)
			w, throughWire := throughDatabase(t, s.role("api"))
			other, a := start(t, s), start(t, throughWire)
			c := newCounterfeiter(t, s)
			whileHeld(t, func(n int) (meanwhile bool) {
				voucher := other.onSale(t, 10)
				order := other.becomes(t, other.accepted(t, voucher.ID, a.user(1000+n)), model.OrderUnpaid)
				epoch := c.copyOf(t, voucher.ID).Epoch

				came, release := w.holdAt(held, order.ID, "COMMIT")
				defer release()
				canceled := a.later(t, http.MethodPost, "/orders/"+order.ID+"/cancel", a.as(t, order.UserID))
				check.Receive(t, "the COMMIT of the cancel", came)
				answered := other.rebuilds(t, voucher.ID)
				if meanwhile = true; held == down { // it is committed: the rebuild can go on
					c.reopens(t, voucher.ID, epoch)
					meanwhile = len(canceled) == 0
				}
				release()
				answered()
				if got := <-canceled; got.Status != http.StatusOK && got.Code() != model.CodeUnavailable {
					t.Errorf("cancel: %d %s", got.Status, got.Body)
				}
				other.rebuild(t, voucher.ID) // it may have been told to come again
				c.reopens(t, voucher.ID, epoch)
				other.cancels(t, order)
				check.Equal(t, "sold after the cancel", len(other.sellsOn(t, voucher.ID, 100)), 10)
				return meanwhile
			})
		})
	}
}

// drainMemory is what a worker may take at most, however long the queue is.
const drainMemory = 300 << 20

// One worker drains a queue that has grown while it was away. How fast it does is logged.
func TestWorkerDrainsALongQueue(t *testing.T) {
	t.Parallel()
	orders := check.Count(t, "DRAIN_ORDERS", 10_000, 50_000)
	s := asyncOnServers(t)
	s["SECKILL_BACKLOG_MAX_AGE"] = "1h"
	front := start(t, s.role("api"))
	voucher := front.onSale(t, orders+10)
	c := newCounterfeiter(t, s)
	fill(t, c, front, voucher.ID, orders)

	queued := front.Audit(t, voucher.ID)
	if queued.Queue == nil || queued.Queue.Pending == 0 || queued.Queue.OldestAgeMS <= 0 || queued.Redis.Reserved != int64(orders) {
		t.Errorf("the audit does not show what is queued: %+v %+v", queued.Redis, queued.Queue)
	}
	check.Eventually(t, "the metrics show that orders are waiting", func() bool {
		return front.metric(t, `seckill_\w*backlog\w*age\w*`) > 0 // as of the latest look at the queue
	})

	worker := prepare(t, testserver.Program(t), s.role("worker"))
	began := time.Now()
	worker.start(t)
	check.Patiently(t, "the queue is drained", func() bool { return check.Value(c.queue.Backlog(t.Context()))(t).Messages == 0 })
	took := time.Since(began) // the start of the process included
	check.Equal(t, "orders that are persisted", stats(t, front, voucher.ID).Sold, int64(orders))
	peak := testserver.PeakMemory(t, worker.cmd.Process.Pid)
	t.Logf("%d orders in %v: %.0f orders/s, %d MiB at most", orders, took, float64(orders)/took.Seconds(), peak>>20)
	check.That(t, peak <= drainMemory, "the worker took %d MiB, more than %d MiB", peak>>20, drainMemory>>20)
	audit := front.quiet(t, voucher.ID)
	check.That(t, audit.Database.LiveOrders == int64(orders) && audit.Queue.OldestAgeMS == 0,
		"after the drain: %+v %+v", audit.Database, audit.Queue)
	front.accepted(t, voucher.ID, front.user(-1))
}

// fill queues orders with their reservations, two writers at a time.
func fill(t *testing.T, c counterfeiter, a *app, voucherID string, orders int) {
	t.Helper()
	a.opens(t, voucherID)
	chunks := make(chan []string)
	var writers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for chunk := range chunks {
				c.publish(t, c.reserveAll(t, voucherID, chunk)...)
			}
		})
	}
	for chunk := range slices.Chunk(users(a, 0, orders), 500) {
		chunks <- chunk
	}
	close(chunks)
	writers.Wait()
}

// TestAFullDisk fills the disk of the embedded database and queue in the middle of a sale, three times. The sale stops,
// readiness says so, and it goes on by itself as soon as there is room, and after a start. Promises are kept.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			disk := testserver.SmallDisk(t, "96m")
			p := launch(t, embeddedSettings(t).with(settings{"SECKILL_ORDER_MODE": mode, "SECKILL_DATA_DIR": disk.Dir()}))
			p.connect(t, 8)
			voucher := p.onSale(t, 100_000)
			c := newCrowd(p.app, voucher.ID)
			stop := c.coming(t, 8)
			defer stop()
			for round := range 3 {
				c.moreSales(t, 50)
				disk.Fill()
				c.moreRefusals(t, 16)
				p.unready(t)
				disk.Free()
				freed := time.Now()
				c.moreSales(t, 50)
				t.Logf("round %d: 50 sales %s after there was room", round, time.Since(freed))
				p.ready(t)
			}
			disk.Fill()
			c.moreRefusals(t, 16)
			p.kill()
			disk.Free()
			p.serves(t)
			ready := time.Now()
			c.moreSales(t, 50)
			t.Logf("50 sales %s after the start", time.Since(ready))
			other := p.onSale(t, 10)
			p.sellsOn(t, other.ID, 1_000_000)
			stop()
			p.conserved(t, voucher.ID, c.promised)
		})
	}
}

// TestAFullDiskOfAServer fills the disk of each server in turn. Redis writes again by itself; NATS has to be started
// anew, as the runbook says, and so has MariaDB, which may end itself.
func TestAFullDiskOfAServer(t *testing.T) {
	t.Parallel()
	for what, filled := range map[string]func(t *testing.T) (own *testserver.Server, s settings, size string, renew bool){
		"MariaDB, sync": func(t *testing.T) (*testserver.Server, settings, string, bool) {
			t.Helper()
			own, s := asyncOnOwnDatabase(t)
			return own, s.with(settings{"SECKILL_ORDER_MODE": "sync", "SECKILL_NATS_URL": ""}), "400m", true
		},
		"MariaDB, async": func(t *testing.T) (*testserver.Server, settings, string, bool) {
			t.Helper()
			own, s := asyncOnOwnDatabase(t)
			return own, s.with(settings{"SECKILL_BACKLOG_MAX_AGE": "1s"}), "400m", true
		},
		"Redis": func(t *testing.T) (*testserver.Server, settings, string, bool) {
			t.Helper()
			own, s := asyncOnOwnRedis(t)
			return own, s, "64m", false
		},
		"NATS": func(t *testing.T) (*testserver.Server, settings, string, bool) {
			t.Helper()
			own, s := asyncOnOwnNATS(t)
			return own, s, "64m", true
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			own, s, size, renew := filled(t)
			disk := own.OnSmallDisk(t, size)
			p := launch(t, s)
			p.connect(t, 8)
			voucher := p.onSale(t, 100_000)
			c := newCrowd(p.app, voucher.ID)
			stop := c.coming(t, 8)
			defer stop()
			c.moreSales(t, 50)
			disk.Fill()
			c.moreRefusals(t, 16)
			p.unready(t)
			disk.Free()
			if renew {
				own.Kill()
				own.Start()
			}
			c.moreSales(t, 50)
			p.ready(t)
			stop()
			p.conserved(t, voucher.ID, c.promised)
		})
	}
}
