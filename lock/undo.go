package lock

import (
	"errors"
	"sync"
	"time"
)

const (
	// undoWorkers bounds the goroutines; their requests share pipelines, so
	// it does not limit the speed while the store answers.
	undoWorkers = 32
	// maxUndos bounds what is remembered while the store does not answer.
	// What is dropped beyond it ends with its lease.
	maxUndos = 10_000
	// minUndoTime is how long at least an undo is tried: a stopped store may
	// carry out a request, and start its lease, only once it runs again.
	minUndoTime = 10 * time.Second
)

// undoer gives back what acquisitions with an unknown outcome may have taken.
// It works on contexts of its own, since that of the caller has often ended.
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
	pause := retryPause
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
			pause = retryPause
			continue
		}
		sleep(u.c.base, pause)
		pause = min(2*pause, maxRetryPause)
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
