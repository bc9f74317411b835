//part:queue
//part:races

package e2e_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// throughNATS is a deployment that reaches NATS through a wire.
func throughNATS(t *testing.T, s settings) (*wire, settings) {
	t.Helper()
	at := check.Value(url.Parse(s["SECKILL_NATS_URL"]))(t)
	w := newWire(t, at.Host)
	at.Host = w.Addr()
	return w, s.with(settings{"SECKILL_NATS_URL": at.String()})
}

// throughDatabase is a deployment that reaches its database through a wire.
func throughDatabase(t *testing.T, s settings) (*wire, settings) {
	at := check.Value(mysql.ParseDSN(s["SECKILL_DATABASE_DSN"]))(t)
	w := newWire(t, at.Addr)
	at.Addr = w.Addr()
	return w, s.with(settings{"SECKILL_DATABASE_DSN": at.FormatDSN()})
}

// rebuild asks for a rebuild.
func (a *app) rebuild(t *testing.T, voucherID string) {
	t.Helper()
	got := a.Insist(t, http.MethodPost, "/admin/vouchers/"+voucherID+"/rebuild", a.Admin(t), nil)
	check.Need(t, got.Status == http.StatusAccepted, "rebuild: %d %s", got.Status, got.Body)
}

// copyOf reads the hot copy itself.
func (c counterfeiter) copyOf(t *testing.T, voucherID string) model.HotCopy {
	t.Helper()
	return check.Value(c.copies.Read(t.Context(), []string{voucherID}))(t)[voucherID]
}

// reopens waits until a voucher has an open copy that is newer than an epoch.
func (c counterfeiter) reopens(t *testing.T, voucherID string, epoch int64) {
	check.Patiently(t, "the new copy is open", func() bool {
		now := c.copyOf(t, voucherID)
		return now.Epoch > epoch && now.State == model.CopyOpen
	})
}

// heldTries is how often a test holds something so that something else happens meanwhile. What is held is given up by
// the service after some seconds, in which a machine that stands still gets nothing done: there the test shows nothing.
const heldTries = 3

// whileHeld repeats an attempt until it tells that everything happened while what it holds was waited for. The attempts
// have numbers, because each needs a voucher and users of its own.
func whileHeld(t *testing.T, attempt func(n int) (meanwhile bool)) {
	for n := range heldTries {
		if attempt(n) {
			return
		}
		t.Log("what was held was given up too early")
	}
	t.Logf("what was held was given up too early in all %d attempts: the machine is too busy to show anything", heldTries)
}

var directions = map[string]direction{"on its way": up, "its answer": down}

// A publish is under way while the hot copy is rebuilt: what it promised to publish is no part of the new copy, or is
// part of it already. In either case nobody is told yes in the name of the copy that is gone.
func TestPublishHeldAcrossARebuildIsNotAnswered202(t *testing.T) {
	t.Parallel()
	for name, held := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := asyncOnServers(t)
			w, held202 := throughNATS(t, s.role("api"))
			other, a := start(t, s), start(t, held202)
			c := newCounterfeiter(t, s)
			whileHeld(t, func(n int) (meanwhile bool) {
				voucher, user := other.onSale(t, 10), a.user(1000+n)
				other.becomes(t, other.accepted(t, voucher.ID, a.user(2)), model.OrderUnpaid)
				epoch := c.copyOf(t, voucher.ID).Epoch

				came, release := w.holdAt(held, user)
				defer release()
				bought := a.later(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.as(t, user))
				check.Receive(t, "the message", came)
				if held == down { // it is consumed before the rebuild
					check.Patiently(t, "the order is there", func() bool { return len(other.orders(t, voucher.ID)) == 2 })
				}
				other.rebuild(t, voucher.ID)
				c.reopens(t, voucher.ID, epoch)
				meanwhile = len(bought) == 0
				release()
				got := <-bought
				promised := got.Status == http.StatusAccepted
				check.That(t, got.Code() == model.CodeUnavailable || !meanwhile && promised,
					"the publish that was held: %d %s, want UNAVAILABLE", got.Status, got.Body)
				// The user repeats it, and has an order in the end: that one, or another if its message came behind the barrier and
				// was superseded.
				check.Patiently(t, "the user has an order", func() bool {
					again, err := other.Place(t, voucher.ID, user)
					return err == nil && (again.Status == http.StatusAccepted ||
						again.Code() == model.CodeAlreadyOrdered && remote.Decode[api.Problem](t, again).OrderStatus == model.OrderUnpaid)
				})
				other.sellsOn(t, voucher.ID, 100)
				owns := owners(other.orders(t, voucher.ID))[user]
				check.That(t, len(owns) == 1 && (!promised || owns[0] == remote.Decode[model.Order](t, got).ID),
					"%s heard %d %s, and has the orders %v", user, got.Status, got.Body, owns)
				return meanwhile
			})
		})
	}
}
