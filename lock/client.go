package lock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"seckill/lock/driver"
)

// Client takes locks from one store. It is safe for concurrent use and is meant
// to be made once per process and store: the waiters of one Client are served
// in the order they came, and share one subscription and one watchdog.
type Client struct {
	store  driver.Store
	passer driver.Passer // nil when the store cannot hand over
	set    settings
	id     string        // first half of every holder
	last   atomic.Uint64 // second half: never used twice

	base context.Context //nolint:containedctx // the life of the background work, ended by Close
	stop context.CancelFunc

	mu     sync.Mutex // guards what follows
	queues map[string]*queue
	live   map[*holding]struct{} // held now; for Close
	closed bool

	lines    waitLines // for locks of several parts
	watchdog *watchdog
	undoer   *undoer

	workMu  sync.Mutex // guards stopped, and that nothing starts after it
	stopped bool
	work    sync.WaitGroup // goroutines of watchdog and undoer

	underWay sync.WaitGroup // calls of Lock and Unlock that enter let in
}

// New makes a client of a store. The client owns the store from then on: Close
// closes both.
func New(store driver.Store, opts ...ClientOption) *Client {
	set := defaultSettings()
	for _, o := range opts {
		o(&set)
	}
	base, stop := context.WithCancel(context.Background())
	c := &Client{
		store: store, set: set, id: clientID(set),
		base: base, stop: stop,
		queues: make(map[string]*queue), live: make(map[*holding]struct{}),
		lines: waitLines{byKey: make(map[string]*waitLine)},
	}
	c.passer, _ = store.(driver.Passer)
	c.watchdog = &watchdog{c: c, kick: newBell()}
	c.undoer = &undoer{c: c}
	return c
}

// Mutex returns the lock of that name. It costs nothing and needs no closing;
// two Mutexes of one name are the same lock.
func (c *Client) Mutex(name string) *Mutex {
	return &Mutex{client: c, name: name}
}

// ForceUnlock frees a lock, whichever owner holds it, and wakes its waiters: for
// operators, after a holder has been found dead or stuck. A holder that lives
// learns of it at its next renewal (a third of its lease), Extend or Unlock, so
// for that time two may hold the lock. It answers whether the lock was held.
func (c *Client) ForceUnlock(ctx context.Context, name string) (bool, error) {
	was, err := c.store.ForceRelease(ctx, name)
	if err != nil {
		return false, fmt.Errorf("force the lock %s open: %w", name, err)
	}
	return was, nil
}

// Holder tells which holder has a lock, "" for none, and how long its lease still runs
// unless it is renewed; less than 0 when another program set none. A holder is called as in
// the store: "<uuid of the client>:<number>".
func (c *Client) Holder(ctx context.Context, name string) (holder string, left time.Duration, err error) {
	if holder, left, err = c.store.Holder(ctx, name); err != nil {
		return "", 0, fmt.Errorf("look at the lock %s: %w", name, err)
	}
	return holder, left, nil
}

// closeUndoTime is how long Close waits for locks to be given back once nothing
// else is under way: for a call that times out (2 s) and a repetition. A store
// that has not answered by then is gone.
const closeUndoTime = 5 * time.Second

// Close ends the client: no lock is given any more, waiters get ErrClosed, the
// contexts of the leases still held end with the cause ErrClosed and their
// locks are released. It waits until ctx ends for every Lock and Unlock under
// way, and then for 5 s at most for what is being given back. What is left then
// ends with its lease, and the error tells: the cause of ctx, or ErrUnknown when
// the store did not answer. It is safe to call twice.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	held := make([]*holding, 0, len(c.live))
	for h := range c.live {
		held = append(held, h)
	}
	for _, q := range c.queues {
		for w := q.head; w != nil; w = w.next {
			w.wake.ring()
		}
	}
	c.mu.Unlock()
	if !first {
		return nil
	}

	for _, h := range held {
		h.end(ErrClosed)
		c.undoer.add(h)
	}
	err := c.settled(ctx)
	c.stop()
	c.workMu.Lock()
	c.stopped = true
	c.workMu.Unlock()
	c.work.Wait()
	if e := c.store.Close(); err == nil && e != nil {
		err = fmt.Errorf("close the lock store: %w", e)
	}
	return err
}

// settled waits for the calls under way, and only then for what is being given
// back: a call whose outcome is unknown leaves something to be undone.
func (c *Client) settled(ctx context.Context) error {
	select {
	case <-finished(&c.underWay):
	case <-ctx.Done():
		return fmt.Errorf("close the lock client: %w", context.Cause(ctx))
	}
	select {
	case <-finished(&c.undoer.workers):
		return nil
	case <-time.After(closeUndoTime):
		return fmt.Errorf("close the lock client: locks are left to their leases: %w", ErrUnknown)
	case <-ctx.Done():
		return fmt.Errorf("close the lock client: %w", context.Cause(ctx))
	}
}

// enter counts a call that Close has to wait for, until underWay.Done; false
// when the client is closed. Under mu, so that no call enters after Close looked.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.underWay.Add(1)
	return true
}

// spawn starts a goroutine that ends soon after base does, unless Close has
// come so far that no caller would wait for it.
func (c *Client) spawn(work func()) bool {
	c.workMu.Lock()
	defer c.workMu.Unlock()
	if c.stopped {
		return false
	}
	c.work.Go(work)
	return true
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// validUntil is when a lease asked for at sent can no longer be relied on.
// sent is read before the request leaves, so the store starts counting later.
// The drift is one percent for clocks that run at different speeds, and 2 ms for
// the granularity of expiry in Redis and of timers here (as in Redlock).
func validUntil(sent time.Time, lease time.Duration) time.Time {
	drift := lease/100 + 2*time.Millisecond
	return sent.Add(lease - drift)
}
