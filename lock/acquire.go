package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"seckill/lock/driver"
)

// acquire takes a lock that its owner does not hold yet.
func (c *Client) acquire(ctx context.Context, s *slot, a attempt) (_ *holding, err error) {
	name := s.lock.name
	// A new one each time: no late request is taken for one of a later acquisition.
	id := c.id + ":" + strconv.FormatUint(c.last.Add(1), 10)
	h := &holding{client: c, name: name, slot: s, id: id, first: a.lease, index: -1}
	defer func() {
		if err != nil {
			h.abandon()
		}
	}()
	var busy time.Duration
	if a.once() || !c.waitedFor(name) {
		ok, left, err := c.try(ctx, h)
		switch {
		case err != nil:
			return nil, err
		case ok:
			return h, nil
		case a.try:
			return nil, fmt.Errorf("lock %s: %w", name, ErrHeld)
		case a.once():
			return nil, fmt.Errorf("lock %s: %w", name, ErrTimeout)
		}
		busy = left
	}
	return c.await(ctx, h, a, busy)
}

// try makes one attempt. An error leaves nothing behind; busy is how long the
// lease in the way still runs.
func (c *Client) try(ctx context.Context, h *holding) (ok bool, busy time.Duration, err error) {
	grant, sent, err := h.ask(ctx, h.request(1, h.first))
	if err != nil {
		h.undo(err)
		return false, 0, cutBy(ctx, err)
	}
	switch grant.State {
	case driver.StateBusy:
		return false, grant.Remaining, nil
	case driver.StateLost:
		// Only a holding that is being undone is refused like this.
		return false, 0, fmt.Errorf("lock %s: %w", h.name, ErrLost)
	case driver.StateHeld:
	}
	err = c.got(ctx, h, sent, grant)
	return err == nil, 0, err
}

// cutBy adds the cause for which ctx has ended to the error of a call that this
// may have cut. Stores and drivers may say no more than that it was canceled, and a
// driver's timer of the same deadline may run out before that of ctx.
func cutBy(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// got turns a granted request into a holding, unless its caller is gone, replicas lack it,
// or the answer took longer than the lease.
func (c *Client) got(ctx context.Context, h *holding, sent time.Time, grant driver.Grant) error {
	var why error
	switch {
	case grant.Unsynced:
		why = ErrUnsynced
	case ctx.Err() != nil:
		why = context.Cause(ctx)
	case c.isClosed():
		why = ErrClosed
	case !h.begin(sent, grant.Token, grant.Once):
		why = fmt.Errorf("the answer took longer than the lease: %w", ErrLost)
	default:
		return nil
	}
	h.undo(nil)
	return fmt.Errorf("lock %s: %w", h.name, why)
}

// free gives a lock back: to the first waiter of this process if no other
// process waits, and to the first request otherwise. It reports whether the
// lock was still held.
func (c *Client) free(ctx context.Context, h *holding) (bool, error) {
	w := c.offer(h.name)
	if w == nil {
		was, err := c.release(ctx, h.last())
		c.nudge(h.name)
		return was, err
	}
	var passed driver.Passed
	var sent time.Time
	var refused error
	err := c.insist(ctx, func(ctx context.Context) (err error) {
		sent = time.Now()
		passed, refused = c.passer.Pass(ctx, h.last(), w.h.request(1, w.h.first))
		if refused == nil || errors.Is(refused, ErrUnknown) {
			return refused
		}
		// To hand over takes more than to free: memory, the right to count who listens.
		passed.Was, err = c.store.Release(ctx, h.last())
		return err
	})
	c.settle(w, passed, sent, cmp.Or(err, refused))
	return passed.Was, err
}

func (c *Client) release(ctx context.Context, r driver.Request) (was bool, err error) {
	err = c.insist(ctx, func(ctx context.Context) (err error) {
		was, err = c.store.Release(ctx, r)
		return err
	})
	return was, err
}

// insist repeats a call, as the store's may be, until it is answered: with a
// pause that doubles, while ctx lasts.
func (c *Client) insist(ctx context.Context, call func(context.Context) error) error {
	for pause := retryPause; ; pause = min(2*pause, maxRetryPause) {
		err := call(ctx)
		if err == nil || errors.Is(err, ErrRefused) || errors.Is(err, ErrClosed) || !sleep(ctx, pause) {
			return err
		}
	}
}

const (
	// retryPause is about what a Redis needs to take new connections after
	// one broke; it doubles up to maxRetryPause, which keeps a store that
	// comes back from being met by all callers at once.
	retryPause    = 10 * time.Millisecond
	maxRetryPause = 500 * time.Millisecond
)

// sleep waits for d, or until ctx ends: false.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// bell wakes one goroutine, at once or when it looks next.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

// ring never blocks.
func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// finished returns a channel that is closed once the work is done.
func finished(work *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() { // lasts as long as the work
		work.Wait()
		close(done)
	}()
	return done
}
