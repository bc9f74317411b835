//go:build faults

//part:weather

package e2e_test

import (
	"cmp"
	"net/http"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// fairCrowd buys where units come back. Whoever has an order of a sold-out sale gives it up, or pays, as soon as
// somebody wants to wait; whoever waits gets it, or leaves. In a draw whoever has won does so.
type fairCrowd struct {
	*crowd

	till  *till
	cools bool // who cancels has to cool down
	waits bool // who is refused takes a place

	// These are guarded by the crowd's lock.
	turns  int
	served int                          // users who found that a place had become an order
	holds  []model.Order                // orders with which their users have done nothing yet
	line   []string                     // users who wait, and have not heard of an order
	places map[string]bool              // users who got a place, and have not canceled its order: whether they want to keep it
	gone   map[string]bool              // users who have canceled
	made   map[string]model.OrderStatus // what their users have made of orders
}

// newFairCrowd is one of a new voucher.
func newFairCrowd(t *testing.T, x *till, fields map[string]any, instances ...*app) *fairCrowd {
	t.Helper()
	v := instances[0].Create(t, fields)
	c := &fairCrowd{
		crowd: newCrowd(instances[0], v.ID, instances[1:]...), till: x, cools: v.Cooldown > 0, waits: v.Waitlist && v.Allocation != model.ByDraw, places: map[string]bool{},
		gone: map[string]bool{}, made: map[string]model.OrderStatus{},
	}
	switch {
	case c.waits:
		c.lives = c.buysOrWaits
	case v.Allocation == model.ByDraw:
		c.late = map[string]bool{}
	}
	return c
}

// asks makes a call of a user until it is answered for good, and reports whether an earlier answer was none.
func (c *fairCrowd) asks(t *testing.T, user, method, path string) (got api.Answer, again bool) {
	t.Helper()
	token, first := c.instances[0].Token(t, user, model.RoleUser), int(user[len(user)-1])
	got = remote.Insist(t, user+": "+method+" "+path, func(attempt int) (api.Answer, error) {
		again = attempt > 0
		return c.instances[(first+attempt)%len(c.instances)].Send(method, path, token, nil)
	})
	return got, again
}

// hold keeps an order that its user has heard of.
func (c *fairCrowd) hold(order model.Order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds = append(c.holds, order)
	c.promised[order.ID], c.told[order.UserID], c.heard[order.ID] = order.UserID, order, time.Now()
}

// buysOrWaits is the life of a user who wants a unit. Until there is an order or a place, each of both may say for a
// moment that the other is to be had.
func (c *fairCrowd) buysOrWaits(t *testing.T, user string) {
	waits := false
	check.Patiently(t, user+" has an order or a place", func() bool {
		if got := c.insist(t, user); got.Code() != model.CodeSoldOut {
			c.mu.Lock()
			order := c.told[user]
			c.mu.Unlock()
			c.hold(order)
			return true
		}
		waits = c.joins(t, user)
		return waits
	})
	if waits {
		c.moves(t)
	}
}

// joins has a user ask for a place, and reports whether that is answered for good.
func (c *fairCrowd) joins(t *testing.T, user string) bool {
	t.Helper()
	got, again := c.asks(t, user, http.MethodPost, "/vouchers/"+c.voucher+"/waitlist")
	switch code := got.Code(); {
	case code == model.CodeConflict: // a unit is free
		return false
	case code == model.CodeAlreadyOrdered && again: // an answer was lost, and the place has become an order
		c.hold(model.Order{ID: remote.Decode[api.Problem](t, got).OrderID, UserID: user})
	case code == "":
		c.mu.Lock()
		defer c.mu.Unlock()
		c.places[user], c.line = true, append(c.line, user)
	default:
		t.Errorf("%s wants to wait: %d %s", user, got.Status, got.Body)
	}
	return true
}

// moves has the first order given up, or paid, and who waits first look whether there is one, or leave.
func (c *fairCrowd) moves(t *testing.T) {
	t.Helper()
	var order model.Order
	var user string
	c.mu.Lock()
	c.turns++
	turn := c.turns
	if len(c.holds) > 0 {
		order, c.holds = c.holds[0], c.holds[1:]
	}
	if len(c.line) > 0 {
		user, c.line = c.line[0], c.line[1:]
	}
	c.mu.Unlock()
	if order.ID != "" {
		c.settles(t, order, turn)
	}
	if user != "" && (turn%7 > 0 || !c.leaves(t, user)) {
		c.looks(t, user)
	}
}

// settles has every fourth order paid, and every second one canceled.
func (c *fairCrowd) settles(t *testing.T, order model.Order, turn int) {
	t.Helper()
	switch turn % 4 {
	case 0:
		c.changes(t, order, "pay", model.OrderPaid)
	case 1, 2:
		if c.changes(t, order, "cancel", model.OrderCanceled); c.late == nil {
			c.comesAgain(t, order.UserID)
		}
	}
}

// comesAgain has a user who has canceled wait behind all others, or hear of a cool-down: who buys may hear SOLD_OUT
// instead.
func (c *fairCrowd) comesAgain(t *testing.T, user string) {
	if !c.cools {
		c.joins(t, user)
		return
	}
	for path, instead := range map[string]model.Code{"/seckill": model.CodeSoldOut, "/waitlist": model.CodeCoolingDown} {
		got, _ := c.asks(t, user, http.MethodPost, "/vouchers/"+c.voucher+path)
		check.That(t, got.Code() == model.CodeCoolingDown || got.Code() == instead, "%s has canceled, and comes again: %d %s", user, got.Status, got.Body)
	}
}

// changes makes something of an order once it is there.
func (c *fairCrowd) changes(t *testing.T, order model.Order, how string, to model.OrderStatus) {
	t.Helper()
	var got api.Answer
	check.Patiently(t, "it comes to that: "+how, func() bool {
		got, _ = c.asks(t, order.UserID, http.MethodPost, "/orders/"+order.ID+"/"+how)
		return got.Code() != model.CodeIllegalState || remote.Decode[api.Problem](t, got).OrderStatus != model.OrderProcessing
	})
	if got.Code() == model.CodeIllegalState && remote.Decode[api.Problem](t, got).OrderStatus == model.OrderFailed {
		return // it was promised, and is judged in the end
	}
	check.Equal(t, how+" "+order.ID+" of "+order.UserID, got.Code(), "")
	c.mu.Lock()
	c.made[order.ID] = to
	delete(c.promised, order.ID)
	if to == model.OrderCanceled {
		c.gone[order.UserID] = true
		delete(c.told, order.UserID)
		delete(c.places, order.UserID)
	}
	c.mu.Unlock()
	if to == model.OrderPaid {
		c.till.approve(t, remote.Decode[handler.PaymentStart](t, got))
	}
}

// leaves has a user give a place up, and reports whether there still was one.
func (c *fairCrowd) leaves(t *testing.T, user string) bool {
	t.Helper()
	got, again := c.asks(t, user, http.MethodDelete, "/vouchers/"+c.voucher+"/waitlist")
	switch {
	case got.Code() == model.CodeAlreadyOrdered:
		return false
	case got.Code() != "" && (got.Code() != model.CodeNotFound || !again):
		t.Errorf("%s gives a place up: %d %s", user, got.Status, got.Body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places[user] = false
	return true
}

// looks has a user who waits look whether the place has become an order.
func (c *fairCrowd) looks(t *testing.T, user string) {
	t.Helper()
	place := c.place(t, user)
	if place.OrderID != "" {
		c.hold(model.Order{ID: place.OrderID, UserID: user})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if place.OrderID != "" {
		c.served++
	} else {
		c.line = append([]string{user}, c.line...)
	}
}

// handedOver is how many users have found that.
func (c *fairCrowd) handedOver() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.served
}

// place is that of a user, if there is one.
func (c *fairCrowd) place(t *testing.T, user string) model.WaitlistPlace {
	t.Helper()
	return own[model.WaitlistPlace](t, c, user, "waitlist")
}

// own is what a user has of the voucher, if there is anything.
func own[T any](t *testing.T, c *fairCrowd, user, what string) (found T) {
	t.Helper()
	got, _ := c.asks(t, user, http.MethodGet, "/vouchers/"+c.voucher+"/"+what)
	if got.Status == http.StatusOK {
		return remote.Decode[T](t, got)
	}
	check.Equal(t, user+" looks for the own "+what+", and hears", got.Code(), model.CodeNotFound)
	return found
}

// checkKept checks, when nobody asks any more, that all orders and places are as their users were told, and that units
// were handed on in the order of the places. An order may have failed that was heard of at an instant that is forgiven,
// or not at all.
func (c *fairCrowd) checkKept(t *testing.T, forgiven func(heard time.Time) bool) map[string]model.Order {
	a := c.instances[len(c.instances)-1]
	check.Patiently(t, "all money is heard of", func() bool { return check.Value(c.till.Balance(t.Context()))(t).Unsent == 0 })
	orders := a.conserved(t, c.voucher, c.promised)
	for id, order := range orders {
		if want := cmp.Or(c.made[id], model.OrderUnpaid); order.Status != want && (order.Status != model.OrderFailed || !forgiven(c.heard[id])) {
			t.Errorf("order %s of %s is %s (%s), want %s", id, order.UserID, order.Status, order.Reason, want)
		}
	}
	waiting, owns := int64(0), owners(orders)
	for user, kept := range c.places {
		place := c.place(t, user)
		if place.Position > 0 {
			waiting++
		}
		if kept != (place.Position > 0 || len(owns[user]) > 0) {
			t.Errorf("%s wants to keep a place: %t; it is %+v, and the live orders are %v", user, kept, place, owns[user])
		}
	}
	report := a.reportOf(t, c.voucher)
	if list := report.Waitlist; list == nil || list.Overtaken != 0 || list.Waiting != waiting || waiting > 0 && report.Audit.Database.Remaining > 0 {
		t.Errorf("%d wait, and the report says %+v %+v", waiting, list, report.Audit.Database)
	}
	return orders
}

// draws has the sale end while users enter, of whom many have entered and some come too late; what they have won is
// paid, canceled or left.
func (c *fairCrowd) draws(t *testing.T, parallel int) {
	t.Helper()
	const entries, tooLate = 150, 10
	stop := c.coming(t, parallel)
	c.moreSales(t, entries)
	c.instances[0].closeSale(t, c.voucher)
	check.Eventually(t, "users come too late", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.late) >= tooLate
	})
	stop()
	c.instances[0].awaitDrawn(t, c.voucher)
	for _, leaf := range sorted(c.entered) {
		user := c.entered[leaf]
		if entry := c.entry(t, user); entry.Status == model.EntryWon {
			c.hold(model.Order{ID: entry.OrderID, UserID: user})
			c.moves(t)
		} else if entry.Leaf != leaf || entry.Status != model.EntryWaiting {
			t.Errorf("%s has entered with %s, and hears %+v", user, leaf, entry)
		}
	}
}

// entry is that of a user, if there is one.
func (c *fairCrowd) entry(t *testing.T, user string) model.Entry {
	t.Helper()
	return own[model.Entry](t, c, user, "entry")
}

// checkDrawn checks a draw, when nobody asks any more.
func (c *fairCrowd) checkDrawn(t *testing.T) {
	for user, again := range c.late {
		if entry := c.entry(t, user); entry.Leaf != "" {
			check.That(t, again, "%s came too late, and has entered: %+v", user, entry)
			c.entered[entry.Leaf] = user // with an answer that was lost
		}
	}
	a := c.instances[len(c.instances)-1]
	check.Patiently(t, "all money is heard of", func() bool { return check.Value(c.till.Balance(t.Context()))(t).Unsent == 0 })
	a.drawn(t, c.voucher, c.entered, c.gone)
	for id, order := range a.orders(t, c.voucher) {
		check.Equal(t, "order "+id+" of "+order.UserID, order.Status, cmp.Or(c.made[id], model.OrderUnpaid))
	}
}
