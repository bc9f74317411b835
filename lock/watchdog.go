package lock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// renewFraction of a lease passes between two renewals, as in Redisson: one may fail, and the next is in time.
	renewFraction = 3
	// renewBatch is how many leases one request renews (Redisson's number).
	renewBatch = 100
	// minRenewRetry keeps a very short lease from renewing in a tight loop.
	minRenewRetry = 2 * tick
)

// gathering is how long renewals wait for others that are due soon after them.
func gathering(every time.Duration) time.Duration { return min(swiftly, every/10) }

// watchdog renews the leases of a client, many in one request.
type watchdog struct {
	c *Client

	mu  sync.Mutex
	due []*holding
}

// add has a holding renewed, with those that come within that time.
func (w *watchdog) add(h *holding, within time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due = append(w.due, h); len(w.due) > 1 {
		return
	}
	w.c.spawn(func() {
		sleep(w.c.base, within)
		w.mu.Lock()
		due := w.due
		w.due = nil
		w.mu.Unlock()
		for batch := range slices.Chunk(due, renewBatch) {
			w.c.spawn(func() { w.renew(batch) })
		}
	})
}

// renew renews a batch. Failures are repeated until the lease ends by the local clock; "not there" ends it at once.
func (w *watchdog) renew(batch []*holding) {
	limit := w.c.set.lease
	rs := make([]Request, 0, len(batch))
	live := batch[:0]
	for _, h := range batch {
		h.mu.Lock()
		if h.held && h.wanted() {
			limit = min(limit, h.lease/renewFraction)
			rs = append(rs, h.request(0, h.lease))
			live = append(live, h)
		}
		h.mu.Unlock()
	}
	if len(rs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(w.c.base, limit)
	defer cancel()
	sent := time.Now()
	errs := w.c.store.Renew(ctx, rs)
	var failed []error
	for i, h := range live {
		every := rs[i].Lease / renewFraction
		switch err := errs[i]; {
		case err == nil:
			h.prolong(sent, rs[i].Lease)
			h.again(nil, sent.Add(every))
		case isGone(err):
			h.lose("found gone at a renewal")
		default:
			failed = append(failed, err)
			h.again(err, time.Now().Add(max(every/10, minRenewRetry)))
		}
	}
	if len(failed) > 0 && w.c.base.Err() == nil {
		w.c.set.log.Warn("locks could not be renewed, trying again", slog.Int("locks", len(failed)),
			logError(failed[0]))
	}
}

func (h *holding) again(trouble error, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble = trouble
	h.renewAt(at)
}

const (
	// undosAtOnce bounds the requests that give back what no caller keeps.
	undosAtOnce = 32
	// maxUndos bounds what is remembered while the store does not answer. What is dropped then ends with its lease.
	maxUndos = 10_000
	// minUndoTime is how long an undo is tried at least (10 s): a stopped store may still carry out a request.
	minUndoTime = 5 * defaultCallTimeout
)

// giveBack gives back in the background what an acquisition of unknown outcome may have taken.
func (c *Client) giveBack(h *holding) {
	c.undos.Add(1)
	switch {
	case c.undoing.Add(1) > maxUndos:
		h.undone(ErrOverloaded)
	case !c.spawn(h.giveBack):
		h.undone(ErrClosed)
	}
}

func (h *holding) giveBack() {
	c := h.client
	ctx, cancel := context.WithTimeout(c.base, max(h.first, minUndoTime))
	defer cancel()
	r := h.request(0, 0)
	r.Abandon = true
	err := c.insist(ctx, func(context.Context) error {
		c.undoPlaces <- struct{}{}
		defer func() { <-c.undoPlaces }()
		_, err := c.store.Release(c.base, r) //nolint:contextcheck // what waited for a place too long is sent once
		return err
	})
	if err == nil {
		c.nudge(h.name)
	}
	h.undone(err)
}

func (h *holding) undone(err error) {
	h.client.undoing.Add(-1)
	h.client.undos.Done()
	if err != nil && !errors.Is(err, ErrRefused) {
		h.client.set.log.Warn("a lock of unknown state is left to its lease", logName(h.name), logHolder(h.id),
			logError(err))
	}
}
