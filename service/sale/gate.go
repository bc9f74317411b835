package sale

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/budget"
	"seckill/model"
)

// gate bounds the requests inside, in all and of one voucher; others wait in order. In a rush all pass the cache before
// the first sale: those who wait are answered from it once nothing is left, and take no lock.
type gate struct {
	places *places
	one    int // of them are for one voucher

	mu       sync.Mutex
	vouchers map[string]*entrance // of the vouchers that have requests inside or waiting
}

type entrance struct {
	places   *places
	requests int // inside or waiting
}

func newGate(all, one int) *gate {
	return &gate{places: newPlaces(all), one: one, vouchers: map[string]*entrance{}}
}

// enter waits for room and tells whether that took time; leave makes room. An error: ctx ended, nothing to leave.
func (g *gate) enter(ctx context.Context, voucherID string) (waited bool, err error) {
	own := g.entrance(voucherID)
	waited, err = own.places.take(ctx)
	if err == nil {
		var again bool
		if again, err = g.places.take(ctx); err != nil {
			own.places.leave()
		}
		waited = waited || again
	}
	if err != nil {
		g.depart(voucherID, own)
	}
	return waited, err
}

func (g *gate) leave(voucherID string) {
	g.mu.Lock()
	own := g.vouchers[voucherID]
	g.mu.Unlock()
	g.places.leave()
	own.places.leave()
	g.depart(voucherID, own)
}

func (g *gate) entrance(voucherID string) *entrance {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.vouchers[voucherID]
	if own == nil {
		own = &entrance{places: newPlaces(g.one)}
		g.vouchers[voucherID] = own
	}
	own.requests++
	return own
}

func (g *gate) depart(voucherID string, own *entrance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own.requests--; own.requests == 0 {
		delete(g.vouchers, voucherID)
	}
}

const (
	// overloadedFor is how long all waits must exceed budget.Glance before refusals: no closed loop gets there.
	overloadedFor = 2 * budget.Blink
)

// places go to waiters in order. When all have waited long, for some time, new requests are refused until a wait is
// short again: a burst is served, and overload makes no long line (as CoDel, RFC 8289).
type places struct {
	taken   chan struct{}
	waiting atomic.Int32
	late    atomic.Pointer[time.Time] // since when all waits were long; nil: the latest was not
}

func newPlaces(count int) *places { return &places{taken: make(chan struct{}, count)} }

func (p *places) take(ctx context.Context) (waited bool, err error) {
	select {
	case p.taken <- struct{}{}:
		p.note(0)
		return false, nil
	default:
	}
	if since := p.late.Load(); since != nil && time.Since(*since) >= overloadedFor && p.waiting.Load() > 0 {
		return true, model.Unavailable("More orders come than can be made.", nil)
	}
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	ctx, done := budget.Own(ctx)
	defer done()
	began := time.Now()
	select {
	case p.taken <- struct{}{}:
		p.note(time.Since(began))
		return true, nil
	case <-ctx.Done():
		if wait := time.Since(began); wait >= budget.Glance { // whoever leaves earlier says nothing of the line
			p.note(wait)
		}
		return true, ctx.Err()
	}
}

func (p *places) leave() { <-p.taken }

func (p *places) note(wait time.Duration) {
	switch late := p.late.Load(); {
	case wait < budget.Glance && late != nil:
		p.late.Store(nil)
	case wait >= budget.Glance && late == nil:
		now := time.Now()
		p.late.Store(&now)
	}
}

// hold is one user's purchase, and the lock meanwhile, which its maker releases by defer. Only what settles an order
// behind an answered client takes it over: until then, the user could buy under the lock elsewhere.
type hold struct {
	deps      *Deps
	userID    string
	groups    []string // that the user's token names
	voucherID string
	draws     bool        // it enters a draw
	lease     model.Lease // nil: the lock is not taken, or not any more
}

// take takes the lock, waiting so long at most; zero is one try. LOCK_BUSY: somebody else kept it.
func (h *hold) take(ctx context.Context, wait time.Duration) error {
	began := time.Now()
	ctx, end := h.deps.Trace.Step(ctx, "lock")
	lease, err := h.deps.Locks.Lock(ctx, model.UserLock(h.userID), wait)
	end(err)
	h.deps.Metrics.LockWait.Observe(time.Since(began).Seconds())
	h.lease = lease
	return untaken(err)
}

// untaken is the answer to whose lock was not taken.
func untaken(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, model.ErrLockBusy):
		return lockBusy(err)
	} // any other error means that the store of locks cannot be used now
	return model.Unavailable("The user's lock could not be taken.", err)
}

func (h *hold) taken() bool { return h.lease != nil }

// lost is UNAVAILABLE when a lock was lost while it was held. One that is not taken is never lost.
func lost(lease model.Lease) error {
	if lease == nil {
		return nil
	}
	if cause := context.Cause(lease.Context()); cause != nil {
		return model.Unavailable("The user's lock was lost.", cause)
	}
	return nil
}

// handOver gives the lock to a new owner, who releases it. Here it is not held any more.
func (h *hold) handOver() *hold {
	over := *h
	h.lease = nil
	return &over
}

// release gives the lock back. Where it is not held, release does nothing.
func (h *hold) release(ctx context.Context) {
	if h.lease == nil {
		return
	}
	if err := h.lease.Unlock(); err != nil {
		h.deps.Log.WarnContext(ctx, "the user's lock was not given back and ends by itself",
			slog.String("user_id", h.userID), slog.Any("error", err))
	}
	h.lease = nil
}

func lockBusy(cause error) *model.Error {
	return &model.Error{
		Code:       model.CodeLockBusy,
		Detail:     "Another request of yours is under way.",
		RetryAfter: time.Second,
		Cause:      cause,
	}
}
