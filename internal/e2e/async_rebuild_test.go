package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/model"
)

// throughNATS is a deployment that reaches NATS through a wire.
func throughNATS(t *testing.T, s settings) (*wire, settings) {
	t.Helper()
	at, err := url.Parse(s["SECKILL_NATS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	w := newWire(t, at.Host)
	at.Host = w.addr()
	return w, s.with(settings{"SECKILL_NATS_URL": at.String()})
}

// throughDatabase is a deployment that reaches its database through a wire.
func throughDatabase(t *testing.T, s settings) (*wire, settings) {
	t.Helper()
	at, err := mysql.ParseDSN(s["SECKILL_DATABASE_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	w := newWire(t, at.Addr)
	at.Addr = w.addr()
	return w, s.with(settings{"SECKILL_DATABASE_DSN": at.FormatDSN()})
}

// rebuild asks for a rebuild.
func (a *app) rebuild(t *testing.T, voucherID string) {
	t.Helper()
	if got := a.call(t, http.MethodPost, "/admin/vouchers/"+voucherID+"/rebuild", a.admin(t), nil); got.status != http.StatusAccepted {
		t.Fatalf("rebuild: %d %s", got.status, got.body)
	}
}

// later makes a request in the background.
func (a *app) later(t *testing.T, method, path, token string) <-chan answer {
	t.Helper()
	done := make(chan answer, 1)
	go func() {
		got, err := send(a.client, method, a.url+"/api/v1"+path, token, nil)
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	return done
}

// happens waits for an event of a wire.
func happens(t *testing.T, what string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(10 * time.Second):
		t.Fatalf("it did not come: %s", what)
	}
}

// copyOf reads the hot copy itself.
func (c counterfeiter) copyOf(t *testing.T, voucherID string) model.HotCopy {
	t.Helper()
	copies, err := c.copies.Read(t.Context(), []string{voucherID})
	if err != nil {
		t.Fatal(err)
	}
	return copies[voucherID]
}

const (
	// heldFor is how long a message or a COMMIT that is not answered is waited for. Behind that nothing is under way any more.
	heldFor = 4 * time.Second
	// heldTries is how often a test holds something so that something else happens meanwhile. A machine on which that takes
	// longer than heldFor each time is none to test it on.
	heldTries = 5
)

// whileHeld repeats an attempt until it tells that everything happened while what it holds was waited for. The attempts
// have numbers, because each needs a voucher and users of its own.
func whileHeld(t *testing.T, attempt func(n int) (meanwhile bool)) {
	t.Helper()
	for n := range heldTries {
		if attempt(n) {
			return
		}
		t.Log("what was held was given up too early")
	}
	t.Fatalf("what was held was given up too early in %d attempts", heldTries)
}

var directions = map[string]direction{"on its way": up, "its answer": down}

// A publish is under way while the hot copy is rebuilt: what it promised to
// publish is no part of the new copy, or is part of it already. In either case
// nobody is told yes in the name of the copy that is gone.
func TestPublishHeldAcrossARebuildIsNotAnswered202(t *testing.T) {
	t.Parallel()
	for name, held := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := asyncOnServers(t)
			w, held202 := throughNATS(t, s.with(settings{"SECKILL_ROLE": "api"}))
			other, a := start(t, s), start(t, held202)
			c := newCounterfeiter(t, s)
			whileHeld(t, func(n int) (meanwhile bool) {
				voucher, user := other.onSale(t, 10), a.user(1000+n)
				other.becomes(t, other.accepted(t, voucher.ID, a.user(2)), model.OrderUnpaid)
				epoch := c.copyOf(t, voucher.ID).Epoch

				came, release := w.holdAt(held, user)
				defer release()
				bought := a.later(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.token(t, user, model.RoleUser))
				happens(t, "the message", came)
				if held == down { // it is consumed before the rebuild
					until(t, 10*time.Second, "the order is there", func() bool { return len(other.orders(t, voucher.ID)) == 2 })
				}
				other.rebuild(t, voucher.ID)
				until(t, settlement, "the new copy is open", func() bool {
					now := c.copyOf(t, voucher.ID)
					return now.Epoch > epoch && now.State == model.CopyOpen
				})
				meanwhile = len(bought) == 0
				release()
				got := <-bought
				promised := got.status == http.StatusAccepted
				if got.code() != model.CodeUnavailable && (meanwhile || !promised) {
					t.Errorf("the publish that was held: %d %s, want UNAVAILABLE", got.status, got.body)
				}
				// The user repeats it, and has an order in the end: that one, or another if
				// its message came behind the barrier and was superseded.
				until(t, settlement, "the user has an order", func() bool {
					again, err := other.place(t, voucher.ID, user)
					return err == nil && (again.status == http.StatusAccepted ||
						again.code() == model.CodeAlreadyOrdered && decode[problem](t, again).OrderStatus == model.OrderUnpaid)
				})
				other.sellsOn(t, voucher.ID, 100)
				owns := owners(other.orders(t, voucher.ID))[user]
				if len(owns) != 1 || promised && owns[0] != decode[model.Order](t, got).ID {
					t.Errorf("%s heard %d %s, and has the orders %v", user, got.status, got.body, owns)
				}
				return meanwhile
			})
		})
	}
}

// owners are the users with live orders, and these.
func owners(orders map[string]model.Order) map[string][]string {
	owns := map[string][]string{}
	for _, id := range sorted(orders) {
		if order := orders[id]; order.Live() {
			owns[order.UserID] = append(owns[order.UserID], id)
		}
	}
	return owns
}

// rebuilds asks for a rebuild that somebody's COMMIT keeps waiting, and returns
// once it waits.
func (a *app) rebuilds(t *testing.T, voucherID string) (answered func()) {
	t.Helper()
	waiting := a.later(t, http.MethodPost, "/admin/vouchers/"+voucherID+"/rebuild", a.admin(t))
	select {
	case got := <-waiting:
		return func() {
			if got.status != http.StatusAccepted {
				t.Errorf("rebuild: %d %s", got.status, got.body)
			}
		}
	case <-time.After(500 * time.Millisecond): // it waits for the voucher's row
	}
	return func() {
		if got := <-waiting; got.status != http.StatusAccepted {
			t.Errorf("rebuild: %d %s", got.status, got.body)
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
			w, throughWire := throughDatabase(t, s.with(settings{"SECKILL_ROLE": "worker"}))
			a := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
			start(t, throughWire)
			c := newCounterfeiter(t, s)
			whileHeld(t, func(n int) (meanwhile bool) {
				voucher, user := a.onSale(t, 10), a.user(1000+n)
				first := a.becomes(t, a.accepted(t, voucher.ID, a.user(2)), model.OrderUnpaid)
				epoch := c.copyOf(t, voucher.ID).Epoch

				came, release := w.holdAt(held, user, "COMMIT")
				defer release()
				began := time.Now()
				order := a.accepted(t, voucher.ID, user)
				happens(t, "the COMMIT", came)
				answered := a.rebuilds(t, voucher.ID)
				if meanwhile = true; held == down { // the order is there, but nobody has told the queue
					opened := a.staysClosed(t, c, voucher.ID, epoch)
					if meanwhile = time.Since(began) < heldFor; meanwhile && opened != "" {
						t.Error(opened)
					}
				}
				release()
				answered()
				until(t, settlement, "the new copy is open", func() bool {
					now := c.copyOf(t, voucher.ID)
					return now.Epoch > epoch && now.State == model.CopyOpen
				})
				promised := map[string]string{order.ID: user, first.ID: first.UserID}
				unbroken(t, a.conserved(t, voucher.ID, promised), promised)
				a.sellsOn(t, voucher.ID, 100)
				return meanwhile
			})
		})
	}
}

// staysClosed looks for a while that a sale that a rebuild closes does not open; else it says how that was seen.
func (a *app) staysClosed(t *testing.T, c counterfeiter, voucherID string, epoch int64) (opened string) {
	t.Helper()
	until(t, settlement, "the sale is closed", func() bool {
		now := c.copyOf(t, voucherID)
		return now.State != model.CopyOpen || now.Epoch > epoch
	})
	for range 20 {
		if got, err := a.place(t, voucherID, a.user(3)); err != nil || got.code() != model.CodeUnavailable {
			return fmt.Sprintf("while the sale is closed: %d %s %v", got.status, got.body, err)
		}
		if now := c.copyOf(t, voucherID); now.State == model.CopyOpen {
			return fmt.Sprintf("it opened before the queue had been told: %+v", now)
		}
		<-time.After(20 * time.Millisecond)
	}
	return ""
}

// A user cancels while the hot copy is rebuilt: before, behind and in the middle
// of what the rebuild reads.
func TestCancelDuringARebuildReturnsItsUnitOnce(t *testing.T) {
	t.Parallel()
	for name, held := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := asyncOnServers(t)
			w, throughWire := throughDatabase(t, s.with(settings{"SECKILL_ROLE": "api"}))
			other, a := start(t, s), start(t, throughWire)
			c := newCounterfeiter(t, s)
			whileHeld(t, func(n int) (meanwhile bool) {
				voucher := other.onSale(t, 10)
				order := other.becomes(t, other.accepted(t, voucher.ID, a.user(1000+n)), model.OrderUnpaid)
				epoch := c.copyOf(t, voucher.ID).Epoch

				came, release := w.holdAt(held, order.ID, "COMMIT")
				defer release()
				canceled := a.later(t, http.MethodPost, "/orders/"+order.ID+"/cancel", a.token(t, order.UserID, model.RoleUser))
				happens(t, "the COMMIT of the cancel", came)
				answered := other.rebuilds(t, voucher.ID)
				reopened := func() bool {
					now := c.copyOf(t, voucher.ID)
					return now.Epoch > epoch && now.State == model.CopyOpen
				}
				if meanwhile = true; held == down { // it is committed: the rebuild can go on
					until(t, settlement, "the new copy is open", reopened)
					meanwhile = len(canceled) == 0
				}
				release()
				answered()
				if got := <-canceled; got.status != http.StatusOK && got.code() != model.CodeUnavailable {
					t.Errorf("cancel: %d %s", got.status, got.body)
				}
				until(t, settlement, "the new copy is open", reopened)
				again := other.call(t, http.MethodPost, "/orders/"+order.ID+"/cancel", a.token(t, order.UserID, model.RoleUser), nil)
				if again.status != http.StatusOK || decode[model.Order](t, again).Status != model.OrderCanceled {
					t.Errorf("cancel once more: %d %s", again.status, again.body)
				}
				if bought := other.sellsOn(t, voucher.ID, 100); len(bought) != 10 {
					t.Errorf("%d were sold after the cancel, want 10", len(bought))
				}
				return meanwhile
			})
		})
	}
}

// The rebuild waits for a COMMIT that is held, and a user cancels meanwhile.
func TestCancelWhileARebuildWaits(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	w, throughWire := throughDatabase(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	a := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
	start(t, throughWire)
	c := newCounterfeiter(t, s)
	whileHeld(t, func(n int) (meanwhile bool) {
		voucher, user := a.onSale(t, 10), a.user(1000+n)
		order := a.becomes(t, a.accepted(t, voucher.ID, a.user(1)), model.OrderUnpaid)
		epoch := c.copyOf(t, voucher.ID).Epoch
		came, release := w.holdAt(down, user, "COMMIT")
		defer release()
		a.accepted(t, voucher.ID, user)
		happens(t, "the COMMIT", came)
		a.rebuild(t, voucher.ID)
		until(t, settlement, "the sale is closed", func() bool {
			now := c.copyOf(t, voucher.ID)
			return now.State != model.CopyOpen || now.Epoch > epoch
		})
		for range 2 {
			got := a.call(t, http.MethodPost, "/orders/"+order.ID+"/cancel", a.token(t, order.UserID, model.RoleUser), nil)
			if got.status != http.StatusOK || decode[model.Order](t, got).Status != model.OrderCanceled {
				t.Errorf("cancel: %d %s", got.status, got.body)
			}
		}
		meanwhile = c.copyOf(t, voucher.ID).State != model.CopyOpen
		release()
		if bought := a.sellsOn(t, voucher.ID, 100); len(bought) != 9 {
			t.Errorf("%d were sold after the cancel, want 9", len(bought))
		}
		return meanwhile
	})
}
