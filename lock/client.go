package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Client takes locks from one store. It is safe for concurrent use. A process makes one for each store: the waiters of
// one Client are served in the order they came, and share one subscription and one watchdog.
type Client struct {
	store  Store
	passer Passer // nil when the store cannot hand over
	set    settings
	id     string        // first half of every holder
	last   atomic.Uint64 // second half: never used twice

	base context.Context //nolint:containedctx // the life of the background work, ended by Close
	stop context.CancelFunc

	mu     sync.Mutex // guards what follows
	queues map[string]*queue
	live   map[*holding]struct{} // held now; for Close
	closed bool

	watchdog   *watchdog
	undos      sync.WaitGroup // see giveBack
	undoing    atomic.Int64
	undoPlaces chan struct{}

	workMu  sync.Mutex // guards stopped, and that nothing starts after it
	stopped bool
	work    sync.WaitGroup // goroutines of the watchdog and of giveBack

	underWay sync.WaitGroup // calls of Lock and Unlock that enter let in
}

// New makes a client of a store. The client owns the store from then on: Close closes both.
func New(store Store, opts ...ClientOption) *Client {
	set := defaultSettings()
	for _, o := range opts {
		o(&set)
	}
	base, stop := context.WithCancel(context.Background())
	c := &Client{
		store: store, set: set, id: clientID(set),
		base: base, stop: stop,
		queues: make(map[string]*queue), live: make(map[*holding]struct{}),
		undoPlaces: make(chan struct{}, undosAtOnce),
	}
	c.passer, _ = store.(Passer)
	c.watchdog = &watchdog{c: c}
	return c
}

// Mutex returns the lock of that name. It costs nothing and needs no closing; the name alone says which lock it is.
func (c *Client) Mutex(name string) *Mutex { return &Mutex{client: c, name: name} }

// ForceUnlock frees a lock, whoever holds it, wakes its waiters, and returns whether it was held. It is for operators.
// A live holder learns of it at its next renewal (a third of its lease), Extend or Unlock; until then two may hold it.
func (c *Client) ForceUnlock(ctx context.Context, name string) (bool, error) {
	was, err := c.store.ForceRelease(ctx, name)
	if err != nil {
		return false, fmt.Errorf("force the lock %s open: %w", name, err)
	}
	return was, nil
}

// Holder returns which holder has a lock, "" for none, and how long its lease still runs unless it is renewed; less
// than 0 when another program set none. A holder has its name in the store: "<uuid of the client>:<number>".
func (c *Client) Holder(ctx context.Context, name string) (holder string, left time.Duration, err error) {
	if holder, left, err = c.store.Holder(ctx, name); err != nil {
		return "", 0, fmt.Errorf("look at the lock %s: %w", name, err)
	}
	return holder, left, nil
}

// closeUndoTime bounds how long Close waits for locks to be given back (5 s): a call that times out and a repetition.
const closeUndoTime = 5 * defaultCallTimeout / 2

// Close ends the client: no lock can be taken, waiters get ErrClosed, and held leases are released and end with that
// cause. It waits until ctx ends for calls of Lock and Unlock, then 5 s at most for releases. What is left then ends
// with its lease; the error is ctx's cause, or ErrUnknown when the store did not answer. It is safe to call twice.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	held := slices.Collect(maps.Keys(c.live))
	for _, q := range c.queues {
		for _, w := range q.waiting {
			w.wake.ring()
		}
	}
	c.mu.Unlock()
	if !first {
		return nil
	}

	for _, h := range held {
		h.end(ErrClosed)
		c.giveBack(h)
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

// settled waits for the calls under way, then for what is given back: an unknown outcome leaves something to undo.
func (c *Client) settled(ctx context.Context) error {
	select {
	case <-finished(&c.underWay):
	case <-ctx.Done():
		return fmt.Errorf("close the lock client: %w", context.Cause(ctx))
	}
	select {
	case <-finished(&c.undos):
		return nil
	case <-time.After(closeUndoTime):
		return fmt.Errorf("close the lock client: locks are left to their leases: %w", ErrUnknown)
	case <-ctx.Done():
		return fmt.Errorf("close the lock client: %w", context.Cause(ctx))
	}
}

// enter counts a call that Close waits for; false when the client is closed.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.underWay.Add(1)
	return true
}

// spawn starts a goroutine that ends soon after base, unless Close has come so far that nobody would wait for it.
func (c *Client) spawn(work func()) bool {
	c.workMu.Lock()
	defer c.workMu.Unlock()
	if c.stopped {
		return false
	}
	c.work.Go(work)
	return true
}

func finished(work *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() { // lasts as long as the work
		work.Wait()
		close(done)
	}()
	return done
}

// Do does the work under the lock and frees it, also after a panic. The work's context ends with ctx, or with cause
// ErrLost when the lock is lost; it is held until the work returns. The error is Lock's, or the work's and Unlock's.
func (c *Client) Do(
	ctx context.Context, name string, work func(ctx context.Context) error, opts ...Option,
) (err error) {
	ctx, _ = withOwner(ctx)
	lease, err := c.Mutex(name).Lock(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Unlock()) }() //nolint:contextcheck // an unlock bounds itself
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	lease.notify(end)
	return work(ctx)
}

// Campaign has one process at a time lead: it waits until this process holds the lock of that name, and calls lead.
// When the lock is lost, it ends lead's context, waits for lead to return, and campaigns again. It returns lead's error
// when lead returns by itself, else the cause of ctx, ErrClosed or ErrRefused. Client.Holder says who leads.
func (c *Client) Campaign(ctx context.Context, name string, lead func(ctx context.Context) error) error {
	for {
		var led, lost bool
		err := c.Do(ctx, name, func(leading context.Context) error {
			err := lead(leading)
			led, lost = true, leading.Err() != nil && ctx.Err() == nil
			return err
		})
		if led && !lost || !led && (errors.Is(err, ErrClosed) || errors.Is(err, ErrRefused)) {
			return err
		}
		if !led && !sleep(ctx, defaultProbe) || ctx.Err() != nil {
			return fmt.Errorf("campaign for %s: %w", name, context.Cause(ctx))
		}
	}
}
