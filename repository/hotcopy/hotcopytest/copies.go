// Package hotcopytest is a hotcopy.Store in memory, for the tests of what works
// with hot copies. The tests of hotcopy hold it to what the real one does.
package hotcopytest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"seckill/model"
)

// tombstoneRetention and maxDue are those of hotcopy, and versionShift too.
const (
	tombstoneRetention = 10 * time.Minute
	maxDue             = 1000
	versionShift       = 40
)

// Call is one call of a method about a voucher; VoucherID is empty when it is
// about several, or about Redis itself.
type Call struct{ Method, VoucherID string }

// Copies are the hot copies of any number of vouchers. Its clock is that of
// package time, and it starts no goroutine, so that it works in a bubble of
// testing/synctest. It behaves as a Store whose option LockKeys is set.
//
// What tests change in Sales while others call belongs into With.
type Copies struct {
	// Before runs before each call, without a lock. Its error becomes the call's.
	Before func(ctx context.Context, call Call) error
	// Took is how long a call takes, and Takes that of single methods.
	Took  time.Duration
	Takes map[string]time.Duration
	// Yields is how long Buyers takes from what it reads to what it yields.
	Yields time.Duration
	// Down fails every call with UNAVAILABLE, as a Redis does that is away.
	Down error
	// Away are vouchers that cannot be asked, as of a Cluster's node that is away.
	Away map[string]error
	// Nodes are the servers of vouchers; empty: there is one. Read waits for that of a Silent voucher until it is given up.
	Nodes  map[string]string
	Silent map[string]bool
	// Answer answers an order of Reserve instead of the copy, unless it is nil.
	Answer func(model.ReserveRequest) *model.ReserveResult

	Sales  map[string]*Sale
	Locked map[string]bool // users whose lock another program holds

	mu       sync.Mutex
	calls    map[string]int64
	losses   int
	watchers []*watcher
}

// Sale is the head of one voucher's hot copy, and its epochs.
type Sale struct {
	State                  model.CopyState
	Epoch, Opened, Missing int64 // as in head.lua
	Changes                int64
	Voucher                model.Voucher // ID, Revision, Stock, Price, Currency, State, BeginAt, EndAt, Groups, Early, Cooldown
	Epochs                 map[int64]*Epoch
}

// Epoch is what the keys of one epoch hold.
type Epoch struct {
	Marks   map[string]string // user → order id
	Pending map[string]model.Reservation
	Due     map[string]time.Time
	Closed  map[string]time.Time // the tombstones
	Cooling map[string]time.Time // user → until when the user has to wait before another order
}

// New has no copy yet.
func New() *Copies {
	return &Copies{
		Takes: map[string]time.Duration{}, Away: map[string]error{}, Sales: map[string]*Sale{}, Locked: map[string]bool{},
		calls: map[string]int64{},
	}
}

// Add opens an empty copy of a voucher in epoch 1.
func (c *Copies) Add(v model.Voucher) *Sale {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &Sale{State: model.CopyOpen, Epoch: 1, Opened: 1, Voucher: kept(v), Epochs: map[int64]*Epoch{1: newEpoch()}}
	c.Sales[v.ID] = s
	return s
}

func newEpoch() *Epoch {
	return &Epoch{
		Marks: map[string]string{}, Pending: map[string]model.Reservation{}, Due: map[string]time.Time{}, Closed: map[string]time.Time{},
		Cooling: map[string]time.Time{},
	}
}

// Node is that of hotcopy.Store.
func (c *Copies) Node(voucherID string) string { return c.Nodes[voucherID] }

// Sale is the copy of a voucher; a closed one when there is none.
func (c *Copies) Sale(voucherID string) *Sale {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.Sales[voucherID]; s != nil {
		return s
	}
	return &Sale{State: model.CopyClosed}
}

// With lets a test change copies between calls. It counts as a change of each.
func (c *Copies) With(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	for _, s := range c.Sales {
		s.Changes++
	}
}

// Lose is a FLUSHALL.
func (c *Copies) Lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losses++
	clear(c.Sales)
}

// Calls tells how often a method was called.
func (c *Copies) Calls(method string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[method]
}

// Epoch is that of a voucher's copy.
func (c *Copies) Epoch(voucherID string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Sales[voucherID].Epoch
}

// Rebuild takes all that the copy holds to its next epoch.
func (s *Sale) Rebuild() {
	s.Epochs[s.Epoch+1] = s.Now()
	delete(s.Epochs, s.Epoch)
	s.Epoch++
	s.Opened = s.Epoch
}

// Of is what an epoch holds; nothing when it is not loaded.
func (s *Sale) Of(epoch int64) *Epoch {
	if s != nil && s.Epochs[epoch] != nil {
		return s.Epochs[epoch]
	}
	return newEpoch()
}

// Now is what the head's epoch holds.
func (s *Sale) Now() *Epoch {
	if s == nil {
		return newEpoch()
	}
	return s.Of(s.Epoch)
}

// Free are the units that may still be reserved.
func (s *Sale) Free() int64 {
	return s.Voucher.Stock - s.Missing - int64(len(s.Now().Marks))
}

// open reports whether a copy can be worked with.
func (s *Sale) open() bool { return s != nil && s.State == model.CopyOpen && s.Epochs[s.Epoch] != nil }

// Put reserves a unit as Reserve does, whatever is left.
func (s *Sale) Put(orderID, userID string) model.Reservation {
	now := time.Now()
	r := entry(s.Voucher.ID, model.Reservation{Epoch: s.Epoch, Order: model.Order{
		ID: orderID, UserID: userID, CreatedAt: now, Price: s.Voucher.Price, Currency: s.Voucher.Currency,
	}})
	e := s.Now()
	e.Marks[userID], e.Pending[orderID], e.Due[orderID] = orderID, r, now.Truncate(time.Millisecond)
	s.Changes++
	return r
}

// kept is what a head keeps of a voucher.
func kept(v model.Voucher) model.Voucher {
	return model.Voucher{
		ID: v.ID, Revision: v.Revision, Stock: v.Stock, Price: v.Price, Currency: v.Currency, State: v.State,
		BeginAt: v.BeginAt.Truncate(time.Microsecond).UTC(), EndAt: v.EndAt.Truncate(time.Microsecond).UTC(),
		Groups: v.Groups, Early: v.Early, Cooldown: v.Cooldown, Waitlist: v.Waitlist,
	}
}

// entry is what a pending entry keeps of a reservation.
func entry(voucherID string, r model.Reservation) model.Reservation {
	return model.Reservation{Epoch: r.Epoch, Order: model.Order{
		ID: r.ID, VoucherID: voucherID, UserID: r.UserID, Status: model.OrderProcessing,
		CreatedAt: r.CreatedAt.Truncate(time.Microsecond).UTC(), Price: r.Price, Currency: r.Currency,
	}}
}

// do makes a call: it counts it, lets the test have its way before it, and then
// works on a voucher's copy, which is nil when there is none.
func (c *Copies) do(ctx context.Context, method, voucherID string, work func(*Sale) error) error {
	c.mu.Lock()
	c.calls[method]++
	before, took := c.Before, c.Took
	if special, ok := c.Takes[method]; ok {
		took = special
	}
	c.mu.Unlock()
	if before != nil {
		if err := before(ctx, Call{method, voucherID}); err != nil {
			return err
		}
	}
	if err := pause(ctx, took); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Down != nil {
		return model.Unavailable("Redis does not answer.", c.Down)
	}
	if err := c.Away[voucherID]; err != nil {
		return model.Unavailable("Redis does not answer.", err)
	}
	return work(c.Sales[voucherID])
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return model.Unavailable("There was no time left to ask Redis.", ctx.Err())
	}
}

// opened is do for a call that needs the copy open.
func (c *Copies) opened(ctx context.Context, method, voucherID string, work func(*Sale) error) error {
	return c.do(ctx, method, voucherID, func(s *Sale) error {
		if !s.open() {
			return failed(method, voucherID, model.ErrCopyClosed)
		}
		return work(s)
	})
}

func failed(method, voucherID string, err error) error {
	return fmt.Errorf("%s of voucher %s: %w", strings.ToLower(method), voucherID, err)
}

// watcher is one subscription.
type watcher struct {
	ids    []string
	missed bool
	wake   chan struct{}
}

// Watch is that of hotcopy.Store.
func (c *Copies) Watch(ctx context.Context, settled func(orderIDs []string), missed func()) {
	w := &watcher{missed: true, wake: make(chan struct{}, 1)}
	w.wake <- struct{}{}
	c.mu.Lock()
	c.watchers = append(c.watchers, w)
	c.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		c.mu.Lock()
		ids, anew := w.ids, w.missed
		w.ids, w.missed = nil, false
		c.mu.Unlock()
		if anew {
			missed()
		}
		if len(ids) > 0 {
			settled(ids)
		}
	}
}

// Resubscribe makes every subscription anew: what is told meanwhile is lost.
func (c *Copies) Resubscribe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watchers {
		w.missed = true
		w.signal()
	}
}

// Tell tells every watcher that orders are not pending any more.
func (c *Copies) Tell(orderIDs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell(orderIDs)
}

// tell tells every watcher.
func (c *Copies) tell(ids []string) {
	for _, w := range c.watchers {
		w.ids = append(w.ids, ids...)
		w.signal()
	}
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake
	}
}
