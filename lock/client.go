package lock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
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
	passer Passer  // nil when the store cannot hand over
	groups grouper // nil when the store answers one request at a time
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
	if g, ok := store.(grouper); ok && g.grouped() {
		c.groups = g
	}
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

type ownerKey struct{}

// owner is what holds locks: every goroutine with the context of a lease, because work is handed on.
type owner struct {
	mu     sync.Mutex
	slots  []*slot
	room   [1]*slot          // for slots: most owners use one lock
	fences map[string]*fence // by Quorum.key: of the fenced locks of several parts that it holds
}

// fence is the token of a lock of several parts. Every re-entry has the same one.
type fence struct {
	token int64
	refs  int
}

func (o *owner) fence(key string, get func() (int64, error)) (int64, error) {
	o.mu.Lock()
	if f := o.fences[key]; f != nil {
		f.refs++
		o.mu.Unlock()
		return f.token, nil
	}
	o.mu.Unlock()
	token, err := get()
	if err != nil {
		return 0, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fences == nil {
		o.fences = make(map[string]*fence, 1)
	}
	o.fences[key] = &fence{token, 1}
	return token, nil
}

func (o *owner) unfence(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f := o.fences[key]; f != nil {
		if f.refs--; f.refs == 0 {
			delete(o.fences, key)
		}
	}
}

// slot is one owner's share in a lock. Changes take turns: two goroutines of an owner must not acquire at once.
type slot struct {
	owner *owner
	lock  Mutex
	turn  chan struct{} // a mutex that can be waited for with a context
	held  *holding      // nil when the owner does not hold the lock
	refs  int           // guarded by owner.mu
}

var errTurn = fmt.Errorf("%w: another call of its owner asks for it", ErrHeld)

func (s *slot) take(ctx context.Context, a attempt) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-a.budget():
		if a.try {
			return errTurn
		}
		return ErrTimeout
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *slot) give() { <-s.turn }

// withOwner returns the owner that travels in ctx, or sends a new one along.
func withOwner(ctx context.Context) (context.Context, *owner) {
	if o, _ := ctx.Value(ownerKey{}).(*owner); o != nil {
		return ctx, o
	}
	o := &owner{}
	o.slots = o.room[:0]
	return context.WithValue(ctx, ownerKey{}, o), o
}

// Detach returns a context that belongs to no owner. A goroutine that is started with it competes for the locks its
// parent holds, rather than sharing them. Cancellation, deadline and values stay as they are.
func Detach(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownerKey{}, (*owner)(nil))
}

// slot returns the owner's slot for a lock. Each call needs a drop.
func (o *owner) slot(m Mutex) *slot {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.find(m)
	if s == nil {
		s = &slot{owner: o, lock: m, turn: make(chan struct{}, 1)}
		o.slots = append(o.slots, s)
	}
	s.refs++
	return s
}

// find returns the slot for a lock, if there is one. Under o.mu.
func (o *owner) find(m Mutex) *slot {
	if i := slices.IndexFunc(o.slots, func(s *slot) bool { return s.lock == m }); i >= 0 {
		return o.slots[i]
	}
	return nil
}

func (s *slot) drop() {
	o := s.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.refs--; s.refs == 0 {
		o.slots = slices.DeleteFunc(o.slots, func(other *slot) bool { return other == s })
	}
}

// holds reports whether the owner has a lock, or is about to.
func (o *owner) holds(m *Mutex) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.find(*m) != nil
}

// newUUID returns a random (version 4) UUID, as Redisson's client ids are.
func newUUID() string { return uuidOf(4, 0) }

// clientID begins the names of a client's holders: a UUID, of version 4 as Redisson's. Where leases are bounded it is
// of version 8, and its last eight digits are the bound in milliseconds, for every client to see.
func clientID(s settings) string {
	if s.longest == 0 {
		return newUUID()
	}
	return uuidOf(8, uint32(s.longest.Milliseconds())) //nolint:gosec // bounded
}

func uuidOf(version byte, last uint32) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	if version == 8 {
		binary.BigEndian.PutUint32(b[12:], last)
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

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
