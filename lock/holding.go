package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// holding is one outermost acquisition: what the store knows under one holder. Re-entry adds leases to it.
type holding struct {
	client *Client
	name   string
	slot   *slot
	id     string // the holder in the store
	first  time.Duration

	mu       sync.Mutex
	held     bool // the store said so, and end has not been called
	cause    error
	number   int64     // the token
	repeated bool      // an attempt was not Grant.Once
	stray    bool      // Grant.Stray, of any attempt, and nothing has been done about it
	until    time.Time // by the monotonic clock: not to be relied on after this
	due      time.Time // of the next renewal; zero: none
	timer    *time.Timer
	leases   []*Lease
	lease    time.Duration // what a renewal asks for
	longest  time.Duration // see limit; 0: none
	trouble  error         // of the last renewal
}

func (h *holding) request(holds int, lease time.Duration) Request {
	return Request{Name: h.name, Holder: h.id, Holds: holds, Lease: lease}
}

func (h *holding) last() Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Request{Name: h.name, Holder: h.id, Once: !h.repeated}
}

// asked notes an answer to Acquire. After an error other than ErrRefused the caller undoes the attempt.
func (h *holding) asked(grant Grant, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.repeated = true // it may still be under way, and arrive behind the release
		return fmt.Errorf("acquire the lock %s: %w", h.name, err)
	}
	h.repeated = h.repeated || !grant.Once
	h.stray = h.stray || !grant.Once && grant.Stray
	return nil
}

// begin makes the holding count as held until the lease asked for at sent runs out, unless that has been already.
func (h *holding) begin(sent time.Time, token int64, once bool) error {
	until := validUntil(sent, h.first)
	if time.Until(until) <= 0 {
		return fmt.Errorf("the answer took longer than the lease: %w", ErrLost)
	}
	c := h.client
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.live[h] = struct{}{}
	c.mu.Unlock()

	h.mu.Lock()
	h.held, h.number, h.until = true, token, until
	h.repeated = h.repeated || !once
	h.mu.Unlock()
	return nil
}

// arm sets the timer, a monotonic one, to the next renewal or to the end of the lease. Under h.mu.
func (h *holding) arm() {
	next := h.until
	if !h.due.IsZero() && h.due.Before(next) {
		next = h.due
	}
	if h.timer == nil {
		h.timer = time.AfterFunc(time.Until(next), h.ring)
	} else {
		h.timer.Reset(time.Until(next))
	}
}

// ring is the timer's. It hands the holding to the watchdog, or ends it before the store gives the lock to another.
func (h *holding) ring() {
	h.mu.Lock()
	now := time.Now()
	over, due := !now.Before(h.until), !h.due.IsZero() && !now.Before(h.due)
	if h.held && !over {
		if due {
			h.due = time.Time{}
		}
		h.arm()
	}
	every := h.lease / renewFraction
	h.mu.Unlock()
	switch {
	case over:
		h.lose("the lease ran out")
	case due:
		h.client.watchdog.add(h, gathering(every))
	}
}

// renewAt has a holding renewed then, if it still wants to be; else its lease ends it. Under h.mu.
func (h *holding) renewAt(at time.Time) {
	if !h.held {
		return
	}
	if h.wanted() {
		h.due = at.Add(-gathering(h.lease / renewFraction))
	}
	h.arm()
}

// prolong is called when a request sent then has renewed the lease. It never shortens a lease, nor do the stores.
func (h *holding) prolong(sent time.Time, lease time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.longest > 0 {
		lease = min(lease, h.longest)
	}
	until := validUntil(sent, lease)
	if !h.held || !until.After(h.until) {
		return
	}
	h.until = until
	h.arm()
}

// shorten ends the holding by then if the lease is its only one and not renewed: others rely on none.
func (h *holding) shorten(l *Lease, until time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.watchdog || len(h.leases) != 1 {
		return false
	}
	if h.held && until.Before(h.until) {
		h.until = until
		h.arm()
	}
	return true
}

// limit is for a shortening request that may have been sent twice: no later extension counts for longer.
func (h *holding) limit(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.longest == 0 || d < h.longest {
		h.longest = d
	}
}

// lose ends a holding that the store does not have any more, or may not have. why becomes part of the cause.
func (h *holding) lose(why string) {
	h.mu.Lock()
	lost := fmt.Errorf("%w: %s", ErrLost, why)
	if h.trouble != nil {
		lost = fmt.Errorf("%w; the last renewal failed: %w", lost, h.trouble)
	}
	h.mu.Unlock()
	if h.end(lost) {
		h.client.set.log.Warn("a lock was lost", logName(h.name), logHolder(h.id), slog.String("why", why))
	}
}

// end ends the holding: no renewal, and its leases' contexts end. It reports whether it was held until now.
func (h *holding) end(cause error) bool {
	h.mu.Lock()
	if !h.held {
		h.mu.Unlock()
		return false
	}
	h.held, h.cause = false, cause
	if h.timer != nil {
		h.timer.Stop()
	}
	for _, l := range h.leases {
		l.end(cause)
	}
	h.mu.Unlock()

	c := h.client
	c.mu.Lock()
	delete(c.live, h)
	c.mu.Unlock()
	return true
}

func (h *holding) state() (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held, h.cause
}

// add puts one more lease on the holding; false when it has ended. Each lease with a watchdog schedules a renewal, as
// those before it may have ended, so early that two more still come in time, however long the lock's answer took.
func (h *holding) add(l *Lease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.held {
		return false
	}
	h.leases = append(h.leases, l)
	if !l.watchdog {
		h.arm()
		return true
	}
	h.lease = max(h.lease, l.term)
	every := h.lease / renewFraction
	at := h.until.Add(-(renewFraction - 1) * every)
	if soon := time.Now().Add(every); soon.Before(at) {
		at = soon
	}
	h.renewAt(at)
	return true
}

// lend makes a lease of a holding that has just been taken.
func (h *holding) lend(l *Lease) error {
	l.hold = h
	if h.add(l) {
		return nil
	}
	h.undo(ErrLost)
	return fmt.Errorf("lock %s: %w", h.name, ErrLost)
}

func (h *holding) remove(l *Lease) (left int, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.leases, l); i >= 0 {
		h.leases = slices.Delete(h.leases, i, i+1)
	}
	return len(h.leases), h.held
}

// wanted reports whether to renew the holding: for a lease with a watchdog whose life (While) goes on. Under h.mu.
func (h *holding) wanted() bool {
	return slices.ContainsFunc(h.leases, func(l *Lease) bool { return l.watchdog && l.life.Err() == nil })
}

func (h *holding) token() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.number
}

func (h *holding) validUntil() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

func (h *holding) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.leases)
}

// undo gives back what may have been taken, in the background. ErrUnknown outweighs the errors by which nothing was
// taken: err may carry the cause of a context, and that may be another lock's.
func (h *holding) undo(err error) {
	nothing := errors.Is(err, ErrRefused) || errors.Is(err, ErrNotSent)
	if !nothing || errors.Is(err, ErrUnknown) {
		h.mu.Lock()
		h.stray = false
		h.mu.Unlock()
		h.client.giveBack(h)
	}
}

// abandon sees to it that no copy of a request that was refused takes the lock when no caller wants it any more.
func (h *holding) abandon() {
	h.mu.Lock()
	stray := h.stray
	h.mu.Unlock()
	if stray {
		h.undo(nil)
	}
}

func (h *holding) reenter(ctx context.Context, l *Lease) error {
	l.hold = h
	if _, err := h.confirm(ctx, h.request(h.count()+1, l.term), "re-enter"); err != nil {
		return err
	}
	if !h.add(l) {
		return fmt.Errorf("re-enter the lock %s: %w", h.name, ErrLost)
	}
	return nil
}

func (h *holding) raise(ctx context.Context, token int64) error {
	r := h.request(h.count(), h.first)
	r.Token = token
	token, err := h.confirm(ctx, r, "raise the token of")
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.number = max(h.number, token)
	h.mu.Unlock()
	return nil
}

// confirm asks once more for a lock that the owner holds, and returns its token.
func (h *holding) confirm(ctx context.Context, r Request, to string) (int64, error) {
	sent := time.Now()
	grant, err := h.client.store.Acquire(ctx, r)
	if err = h.asked(grant, err); err != nil {
		return 0, cutBy(ctx, err)
	}
	if grant.State != StateHeld {
		return 0, h.gone(to)
	}
	h.prolong(sent, r.Lease)
	return grant.Token, nil
}

func (h *holding) gone(to string) error {
	h.lose("found gone, asked to " + to + " it")
	return fmt.Errorf("%s the lock %s: %w", to, h.name, ErrLost)
}

func (h *holding) extend(ctx context.Context, l *Lease, d time.Duration) error {
	if err := h.slot.take(ctx, attempt{forever: true}); err != nil { // nobody re-enters meanwhile
		return fmt.Errorf("extend the lock %s: %w: %w", h.name, ErrNotSent, err)
	}
	defer h.slot.give()
	d = h.client.set.bound(d)
	r := h.request(0, d)
	sent := time.Now()
	r.Exact = h.shorten(l, validUntil(sent, d))
	err := h.client.store.Renew(ctx, []Request{r})[0]
	if r.Exact && (err != nil || time.Since(sent) >= swiftly) {
		h.limit(d)
	}
	switch {
	case isGone(err):
		return h.gone("extend")
	case err != nil:
		return fmt.Errorf("extend the lock %s: %w", h.name, err)
	}
	h.prolong(sent, d)
	if ok, cause := h.state(); !ok {
		return fmt.Errorf("extend the lock %s: %w", h.name, cause)
	}
	return nil
}

// unlock ends the lease's context, then gives back one hold. unlockTimeout bounds the wait for the turn and the call.
func (h *holding) unlock(ctx context.Context, l *Lease) error {
	c := h.client
	ctx, cancel := context.WithTimeout(ctx, c.set.unlockTimeout)
	defer cancel()
	l.end(ErrUnlocked)
	if held, _ := h.state(); held {
		select {
		case h.slot.turn <- struct{}{}:
		case <-ctx.Done():
			// A goroutine of the same owner is in the middle of a re-entry.
			c.spawn(func() { //nolint:contextcheck // the caller's has ended
				h.slot.turn <- struct{}{}
				defer h.slot.give()
				ctx, cancel := context.WithTimeout(c.base, c.set.unlockTimeout)
				defer cancel()
				_ = h.unlockNow(ctx, l)
			})
			return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
		}
		defer h.slot.give()
	}
	return h.unlockNow(ctx, l)
}

func (h *holding) unlockNow(ctx context.Context, l *Lease) error {
	c := h.client
	defer h.slot.drop()
	left, held := h.remove(l)
	if !c.enter() { // Close gives it back, if it was not lost before
		if _, cause := h.state(); cause != nil && !errors.Is(cause, ErrClosed) {
			return cause
		}
		return nil
	}
	defer c.underWay.Done()
	if left == 0 {
		h.end(ErrUnlocked)
	}
	_, cause := h.state()
	switch {
	case left > 0 && held:
		was, err := c.release(ctx, h.request(left, 0))
		if err == nil && !was {
			h.lose("found gone at an unlock")
			_, err = h.state()
		}
		return err
	case left > 0:
		return cause
	case errors.Is(cause, ErrClosed): // Close gives it back
		return nil
	}
	return h.freed(c.free(ctx, h))
}

// freed is what an unlock returns, by what was found when the lock was freed.
func (h *holding) freed(was bool, err error) error {
	if err != nil {
		h.undo(nil) // goes on in the background, also what was not sent
	}
	if _, cause := h.state(); !errors.Is(cause, ErrUnlocked) {
		return cause
	}
	if err == nil && !was {
		return fmt.Errorf("%w: found gone at an unlock", ErrLost)
	}
	return err
}

// Lease is a lock that is held. It is safe for concurrent use.
type Lease struct {
	hold     held
	name     string
	life     context.Context //nolint:containedctx // what Context derives from, when it is asked for
	term     time.Duration
	watchdog bool

	mu       sync.Mutex
	ctx      context.Context //nolint:containedctx // made at the first call of Context, which is what leases are for
	cancel   context.CancelCauseFunc
	ended    error
	unlocked bool
	onEnd    func(cause error) // for a lease of several parts
}

// held is what a lease is made of: one store's holding, or several leases.
type held interface {
	unlock(ctx context.Context, l *Lease) error
	extend(ctx context.Context, l *Lease, d time.Duration) error
	// raise makes the token at least that, in the store too.
	raise(ctx context.Context, token int64) error
	token() int64
	validUntil() time.Time
}

// Context returns the context for the work the lock protects. Locking the same name with it re-enters. It has the
// values of the one given to Lock, but not its end: see While and Client.Do. It ends with the cause ErrLost at the
// latest a drift (1 % of the lease + 2 ms) before another owner can hold the lost lock; with ErrUnlocked after Unlock.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(l.life)
		if l.ended != nil {
			l.cancel(l.ended)
		}
	}
	return l.ctx
}

// Token returns the fencing token: greater than every earlier acquisition's, the same for a re-entry, 0 when the store
// keeps none. What the lock protects should refuse one below the greatest it has seen, in the transaction of the write.
func (l *Lease) Token() int64 { return l.hold.token() }

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.name }

// ValidUntil returns until when the lock can be relied on if it is not renewed, by the monotonic clock of this process.
func (l *Lease) ValidUntil() time.Time { return l.hold.validUntil() }

// Extend makes the lock last d from now, 10 ms at least. A lock that is renewed, or that its owner has re-entered,
// lasts at least as long as before; one with LeaseTime may be shortened. It returns ErrLost when the lock has been
// lost, ErrNotHeld after Unlock, else the store's own error; the lock then lasts for the shorter of the two terms.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	l.mu.Lock()
	done, ended := l.unlocked, l.ended
	l.mu.Unlock()
	switch {
	case done:
		return fmt.Errorf("extend the lock %s: %w", l.name, ErrNotHeld)
	case ended != nil:
		return fmt.Errorf("extend the lock %s: %w", l.name, ended)
	}
	return l.hold.extend(ctx, l, max(d, minLease))
}

// Unlock gives the lock back, or one hold of it after a re-entry, and wakes the next waiter. It uses its own context,
// as the work's may have ended, and takes 3 s at most (UnlockTimeout). It returns ErrLost when the lock had been lost,
// so that another owner may have been at work too; ErrNotHeld when this lease was unlocked already; else the store's
// error: the lock is then no longer renewed and ends with its lease.
func (l *Lease) Unlock() error { return l.UnlockContext(context.Background()) }

// UnlockContext is Unlock under a caller's context. When that ends first, the lock is given back in the background.
func (l *Lease) UnlockContext(ctx context.Context) error {
	l.mu.Lock()
	if l.unlocked {
		l.mu.Unlock()
		return fmt.Errorf("unlock %s: %w", l.name, ErrNotHeld)
	}
	l.unlocked = true
	l.mu.Unlock()
	if err := l.hold.unlock(ctx, l); err != nil {
		return fmt.Errorf("unlock %s: %w", l.name, err)
	}
	return nil
}

// end ends the lease's context, at once or when it is made. The first cause counts.
func (l *Lease) end(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return
	}
	l.ended = cause
	if l.cancel != nil {
		l.cancel(cause)
	}
	if l.onEnd != nil {
		l.onEnd(cause)
	}
}

// notify has f called once when the lease ends, at once if it has.
func (l *Lease) notify(f func(cause error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		f(l.ended)
		return
	}
	l.onEnd = f
}

// cause is what ended the lease; nil while it lasts.
func (l *Lease) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}
