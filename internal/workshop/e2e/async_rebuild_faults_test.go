//go:build faults

//part:queue

package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// rebuilds asks for a rebuild in the background. Somebody's COMMIT may keep it waiting.
func (a *app) rebuilds(t *testing.T, voucherID string) (answered func()) {
	t.Helper()
	waiting := a.later(t, http.MethodPost, "/admin/vouchers/"+voucherID+"/rebuild", a.Admin(t))
	return func() {
		if got := check.Receive(t, "the answer of the rebuild", waiting); got.Status != http.StatusAccepted && !remote.Again(got, nil) {
			t.Errorf("rebuild: %d %s", got.Status, got.Body)
		}
	}
}

// A COMMIT is under way while a rebuild is asked for: the new copy opens only
// once it knows what became of it.
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
		if opened := now.State == model.CopyOpen; opened && waiting {
			t.Errorf("it opened before the queue had been told: %+v", now)
		}
		if !waiting {
			return false
		}
	}
	return true
}

// A user cancels while the hot copy is rebuilt: before, behind and in the middle
// of what the rebuild reads.
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
				canceled := a.later(t, http.MethodPost, "/orders/"+order.ID+"/cancel", a.Token(t, order.UserID, model.RoleUser))
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
