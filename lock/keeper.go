package lock

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

const (
	// renewFraction of a lease passes between two renewals, as in Redisson:
	// one may fail and the next one still comes in time.
	renewFraction = 3
	// renewBatch is how many leases one request renews (Redisson's number).
	renewBatch = 100
	// renewEarly gathers renewals that are due this soon after one another.
	renewEarly = 5 * time.Millisecond
)

// keeper is the watchdog of a client: one goroutine that renews the leases in
// the order in which that is due, many in one request.
type keeper struct {
	c *Client

	mu      sync.Mutex
	due     dueHeap
	awake   time.Time // when the goroutine looks again
	kick    chan struct{}
	running bool
}

func newKeeper(c *Client) *keeper {
	return &keeper{c: c, kick: make(chan struct{}, 1)}
}

// add begins to renew a holding.
func (k *keeper) add(h *holding) {
	h.mu.Lock()
	every := h.lease / renewFraction
	h.mu.Unlock()
	k.schedule(h, time.Now().Add(every))
}

func (k *keeper) schedule(h *holding, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.renewAt = at
	if h.index >= 0 {
		heap.Fix(&k.due, h.index)
	} else {
		heap.Push(&k.due, h)
	}
	if !k.running {
		k.running = k.c.spawn(k.run)
	}
	if k.awake.IsZero() || at.Before(k.awake) {
		select {
		case k.kick <- struct{}{}:
		default:
		}
	}
}

// remove ends the renewal of a holding.
func (k *keeper) remove(h *holding) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.index >= 0 {
		heap.Remove(&k.due, h.index)
	}
}

func (k *keeper) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		batch, pause := k.take()
		for len(batch) > 0 {
			n := min(len(batch), renewBatch)
			part := batch[:n]
			batch = batch[n:]
			k.c.spawn(func() { k.renew(part) })
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-k.kick:
		case <-k.c.base.Done():
			return
		}
	}
}

// take removes what is due, and tells how long nothing else will be.
func (k *keeper) take() ([]*holding, time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	var batch []*holding
	for len(k.due) > 0 && k.due[0].renewAt.Before(now.Add(renewEarly)) {
		h, _ := heap.Pop(&k.due).(*holding)
		batch = append(batch, h)
	}
	pause := time.Hour
	if len(k.due) > 0 {
		pause = k.due[0].renewAt.Sub(now)
	}
	k.awake = now.Add(pause)
	return batch, pause
}

// renew renews a batch. A failed request is repeated until the lease has run
// out by the local clock; "not there" ends the lease at once.
func (k *keeper) renew(batch []*holding) {
	limit := k.c.set.lease
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
	ctx, cancel := context.WithTimeout(k.c.base, limit)
	defer cancel()
	sent := time.Now()
	there, err := k.c.store.Renew(ctx, rs)
	if err != nil && k.c.base.Err() == nil {
		k.c.set.log.Warn("locks could not be renewed, trying again", logError(err))
	}
	for i, h := range live {
		every := rs[i].Lease / renewFraction
		switch {
		case err != nil:
			k.again(h, time.Now().Add(max(every/10, minRenewRetry)))
		case !there[i]:
			h.lose("found gone at a renewal")
		default:
			h.extend(sent, rs[i].Lease)
			k.again(h, sent.Add(every))
		}
	}
}

// minRenewRetry keeps a very short lease from renewing in a tight loop.
const minRenewRetry = 2 * time.Millisecond

// again schedules the next renewal of a holding that still wants one.
func (k *keeper) again(h *holding, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held && h.wanted() {
		k.schedule(h, at)
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

// Push is container/heap's.
func (d *dueHeap) Push(x any) {
	h, _ := x.(*holding)
	h.index = len(*d)
	*d = append(*d, h)
}

// Pop is container/heap's.
func (d *dueHeap) Pop() any {
	last := len(*d) - 1
	h := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	h.index = -1
	return h
}
