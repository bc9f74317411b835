package lock

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"seckill/lock/driver"
)

const (
	// renewFraction of a lease passes between two renewals, as in Redisson: one may fail, and the next is in time.
	renewFraction = 3
	// renewBatch is how many leases one request renews (Redisson's number).
	renewBatch = 100
	// renewEarly gathers renewals that are due this soon after one another.
	renewEarly = swiftly
	// minRenewRetry keeps a very short lease from renewing in a tight loop.
	minRenewRetry = 2 * tick
)

// watchdog is one goroutine of a client that renews its leases in the order in which they are due, many in one request.
type watchdog struct {
	c *Client

	mu      sync.Mutex
	due     dueHeap
	awake   time.Time // when the goroutine looks again
	kick    bell
	running bool
}

// schedule says when a holding is to be renewed next.
func (w *watchdog) schedule(h *holding, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.renewAt = at
	if h.index >= 0 {
		heap.Fix(&w.due, h.index)
	} else {
		heap.Push(&w.due, h)
	}
	if !w.running {
		w.running = w.c.spawn(w.run)
	}
	if w.awake.IsZero() || at.Before(w.awake) {
		w.kick.ring()
	}
}

// remove ends the renewal of a holding.
func (w *watchdog) remove(h *holding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.index >= 0 {
		heap.Remove(&w.due, h.index)
	}
}

func (w *watchdog) run() {
	for {
		batch, pause := w.take()
		for part := range slices.Chunk(batch, renewBatch) {
			w.c.spawn(func() { w.renew(part) })
		}
		select {
		case <-time.After(pause):
		case <-w.kick:
		case <-w.c.base.Done():
			return
		}
	}
}

// take removes what is due, and returns how long nothing else will be.
func (w *watchdog) take() ([]*holding, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	var batch []*holding
	for len(w.due) > 0 && w.due[0].renewAt.Before(now.Add(renewEarly)) {
		h, _ := heap.Pop(&w.due).(*holding)
		batch = append(batch, h)
	}
	pause := never
	if len(w.due) > 0 {
		pause = w.due[0].renewAt.Sub(now)
	}
	w.awake = now.Add(pause)
	return batch, pause
}

// renew renews a batch. Failures are repeated until the lease ends by the local clock; "not there" ends it at once.
func (w *watchdog) renew(batch []*holding) {
	limit := w.c.set.lease
	rs := make([]driver.Request, 0, len(batch))
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
			h.note(nil)
			w.again(h, sent.Add(every))
		case isGone(err):
			h.lose("found gone at a renewal")
		default:
			failed = append(failed, err)
			h.note(err)
			w.again(h, time.Now().Add(max(every/10, minRenewRetry)))
		}
	}
	if len(failed) > 0 && w.c.base.Err() == nil {
		w.c.set.log.Warn("locks could not be renewed, trying again", slog.Int("locks", len(failed)), logError(failed[0]))
	}
}

// note remembers what became of a renewal.
func (h *holding) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble = err
}

// again schedules the next renewal of a holding that still wants one.
func (w *watchdog) again(h *holding, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held && h.wanted() {
		w.schedule(h, at)
	}
}

// dueHeap orders holdings by their next renewal (container/heap).
type dueHeap []*holding

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].renewAt.Before(d[j].renewAt) }

func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *dueHeap) Push(x any) {
	h, _ := x.(*holding)
	h.index = len(*d)
	*d = append(*d, h)
}

func (d *dueHeap) Pop() any {
	last := len(*d) - 1
	h := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	h.index = -1
	return h
}

const (
	// undoWorkers bounds the goroutines. Requests share pipelines, so it limits no speed while the store answers.
	undoWorkers = 32
	// maxUndos bounds what is remembered while the store does not answer. What is dropped beyond it ends with its lease.
	maxUndos = 10_000
	// minUndoTime is how long an undo is tried at least (10 s): a stopped store may still carry out a request.
	minUndoTime = 5 * defaultCallTimeout
)

// undoer gives back what unknown acquisitions may have taken, under the client's own context.
type undoer struct {
	c *Client

	mu      sync.Mutex
	pending []undo
	busy    int // workers
	workers sync.WaitGroup
}

type undo struct {
	h     *holding
	until time.Time
}

// add takes over a holding that no caller keeps.
func (u *undoer) add(h *holding) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.c.base.Err() != nil || len(u.pending) >= maxUndos {
		u.c.set.log.Warn("a lock of unknown state is left to its lease", logName(h.name), logHolder(h.id))
		return
	}
	u.pending = append(u.pending, undo{h, time.Now().Add(max(h.first, minUndoTime))})
	if u.busy < undoWorkers && u.c.spawn(u.run) {
		u.busy++
		u.workers.Add(1)
	}
}

func (u *undoer) run() {
	pause := newBackoff()
	for {
		u.mu.Lock()
		if len(u.pending) == 0 {
			u.busy--
			u.workers.Done()
			u.mu.Unlock()
			return
		}
		next := u.pending[0]
		u.pending = u.pending[1:]
		u.mu.Unlock()

		if u.once(next) {
			pause.reset()
			continue
		}
		pause.sleep(u.c.base)
	}
}

// once makes one attempt; false when it is to be repeated.
func (u *undoer) once(next undo) bool {
	h := next.h
	r := h.request(0, 0)
	r.Abandon = true
	_, err := u.c.store.Release(u.c.base, r)
	switch {
	case err == nil:
		u.c.nudge(h.name)
		return true
	case errors.Is(err, ErrRefused):
		return true
	case u.c.base.Err() != nil || time.Now().After(next.until):
		u.c.set.log.Warn("a lock of unknown state is left to its lease", logName(h.name), logHolder(h.id), logError(err))
		return true
	}
	u.mu.Lock()
	u.pending = append(u.pending, next)
	u.mu.Unlock()
	return false
}
