package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// acquire takes a lock that its owner does not hold yet.
func (c *Client) acquire(ctx context.Context, s *slot, a attempt) (_ *holding, err error) {
	name := s.lock.name
	h := &holding{client: c, name: name, slot: s, id: c.holder(), first: a.lease}
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

// holder names a new holder: no late request is taken for one of a later acquisition.
func (c *Client) holder() string { return c.id + ":" + strconv.FormatUint(c.last.Add(1), 10) }

// try makes one attempt. An error leaves nothing behind; busy is how long the lease in the way still runs.
func (c *Client) try(ctx context.Context, h *holding) (ok bool, busy time.Duration, err error) {
	sent := time.Now()
	grant, err := c.store.Acquire(ctx, h.request(1, h.first))
	return c.tried(ctx, h, grant, sent, err)
}

func (c *Client) tried(
	ctx context.Context, h *holding, grant Grant, sent time.Time, err error,
) (ok bool, busy time.Duration, _ error) {
	if err = h.asked(grant, err); err != nil {
		h.undo(err)
		return false, 0, cutBy(ctx, err)
	}
	switch grant.State {
	case StateBusy:
		return false, grant.Remaining, nil
	case StateLost: // only a holding that is being undone is refused like this
		return false, 0, fmt.Errorf("lock %s: %w", h.name, ErrLost)
	case StateHeld:
	}
	err = c.got(ctx, h, sent, grant)
	return err == nil, 0, err
}

// cutBy adds ctx's cause to an error that may not name it. A driver's timer may run out just before that of ctx.
func cutBy(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// got makes a holding of a granted request, unless its caller left, replicas lack it, or the lease is over already.
func (c *Client) got(ctx context.Context, h *holding, sent time.Time, grant Grant) error {
	var why error
	switch {
	case grant.Unsynced:
		why = ErrUnsynced
	case ctx.Err() != nil:
		why = context.Cause(ctx)
	default:
		if why = h.begin(sent, grant.Token, grant.Once); why == nil {
			return nil
		}
	}
	h.undo(nil)
	return fmt.Errorf("lock %s: %w", h.name, why)
}

// free gives a lock to this process' first waiter if no other process waits, else to anybody. False: it was lost.
func (c *Client) free(ctx context.Context, h *holding) (bool, error) {
	w := c.offer(h.name)
	if w == nil {
		was, err := c.release(ctx, h.last())
		c.nudge(h.name)
		return was, err
	}
	var passed Passed
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

func (c *Client) release(ctx context.Context, r Request) (was bool, err error) {
	err = c.insist(ctx, func(ctx context.Context) (err error) {
		was, err = c.store.Release(ctx, r)
		return err
	})
	return was, err
}

// insist repeats a call, which every store allows, until it is answered or ctx ends.
func (c *Client) insist(ctx context.Context, call func(context.Context) error) error {
	pause := backoff{shortest: moment / 2, longest: defaultProbe} // a Redis needs that to accept connections again
	for {
		err := call(ctx)
		if err == nil || errors.Is(err, ErrRefused) || errors.Is(err, ErrClosed) || !pause.sleep(ctx) {
			return err
		}
	}
}

// grouper is a Store that answers many requests together, each as it would by itself.
type grouper interface {
	grouped() bool // reports whether it can
	acquireAll(ctx context.Context, rs []Request) ([]Grant, []error)
	releaseAll(ctx context.Context, rs []Request) ([]bool, []error)
}

// TryAll takes those of the locks that no owner holds, all in one request where the store can, and says why the others
// were not taken; of a name that comes twice, one is. They are renewed until unlock, which is called once; its error
// says what was lost, or was not given back yet.
func (c *Client) TryAll(ctx context.Context, names ...string) (errs []error, unlock func() error) {
	if !c.enter() {
		return slices.Repeat([]error{ErrClosed}, len(names)), func() error { return nil }
	}
	defer c.underWay.Done()
	all, rs := make([]*holding, len(names)), make([]Request, len(names))
	for i, name := range names {
		all[i] = &holding{client: c, name: name, id: c.holder(), first: c.set.bound(c.set.lease)}
		rs[i] = all[i].request(1, all[i].first)
	}
	keep := func(h *holding, ok bool, err error) error {
		if ok {
			return h.lend(&Lease{name: h.name, life: context.Background(), term: h.first, watchdog: true})
		}
		h.abandon()
		return cmp.Or(err, fmt.Errorf("lock %s: %w", h.name, ErrHeld))
	}
	if c.groups == nil || len(all) == 0 {
		errs = each(all, func(h *holding) error {
			ok, _, err := c.try(ctx, h)
			return keep(h, ok, err)
		})
	} else {
		sent := time.Now()
		var grants []Grant
		grants, errs = c.groups.acquireAll(ctx, rs)
		for i, h := range all {
			ok, _, err := c.tried(ctx, h, grants[i], sent, errs[i])
			errs[i] = keep(h, ok, err)
		}
	}
	var held []*holding
	for i, h := range all {
		if errs[i] == nil {
			held = append(held, h)
		}
	}
	return errs, func() error { return c.unlockAll(held) } //nolint:contextcheck // an unlock bounds itself
}

// unlockAll frees locks together; those that this process waits for go by themselves, to whoever waits.
func (c *Client) unlockAll(held []*holding) error {
	if !c.enter() { // Close gives them back
		return nil
	}
	defer c.underWay.Done()
	ctx, cancel := context.WithTimeout(context.Background(), c.set.unlockTimeout)
	defer cancel()
	var group, singly []*holding
	var rs []Request
	for _, h := range held {
		h.end(ErrUnlocked)
		switch _, cause := h.state(); {
		case errors.Is(cause, ErrClosed): // Close gives it back
		case c.groups == nil || c.waitedFor(h.name):
			singly = append(singly, h)
		default:
			group, rs = append(group, h), append(rs, h.last())
		}
	}
	errs := each(singly, func(h *holding) error { return h.freed(c.free(ctx, h)) })
	if len(group) > 0 {
		was, failed := c.groups.releaseAll(ctx, rs)
		for i, h := range group {
			c.nudge(h.name)
			errs = append(errs, h.freed(was[i], failed[i]))
		}
	}
	return errors.Join(errs...)
}

// queue holds the waiters of one process for one lock, or for one set of a Quorum's parts, in their order. Only the
// first asks the store: one unlock message costs one request per process, however many wait. Client.mu guards it.
type queue struct {
	name      string
	waiting   []*waiter
	watch     Watch
	listening bool            // watch has been asked for; nil all the same if the store has none
	said      map[string]bool // parts of a set that sent a message since the last round began, by Mutex.key
}

// waiter is one Lock call that waits. Its fields but wake are guarded by Client.mu.
type waiter struct {
	h      *holding // nil in the queue for a set of parts
	rounds *rounds  // there, and nowhere else
	name   string   // for messages
	wake   bell     // something changed: look again

	queued  bool
	gone    bool          // it left the queue without the lock
	offered bool          // a Pass to it is on its way
	unsure  bool          // a request for it ended with an unknown outcome
	got     bool          // a Pass gave it the lock
	grant   Grant         // with got
	sent    time.Time     // with got
	ask     bool          // as the first: ask at once
	until   time.Time     // as the first: then ask at the latest; zero: at an interval
	busy    time.Duration // how long the lease in the way may run; the first alone uses it
}

// waitedFor reports whether a call of this process waits for the lock. A later call then waits behind it.
func (c *Client) waitedFor(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queues[name] != nil
}

// queue finds or makes a queue. Under c.mu.
func (c *Client) queue(name string) *queue {
	q := c.queues[name]
	if q == nil {
		q = &queue{name: name}
		c.queues[name] = q
	}
	return q
}

// enqueue puts a waiter at the end of a queue. A new first one asks unless it just has.
func (c *Client) enqueue(name string, w *waiter, asked bool) *queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queue(name)
	q.waiting = append(q.waiting, w)
	w.queued, w.ask = true, !asked
	return q
}

// leave takes a waiter out: with the lock for took, or without it (0), when the next one asks and a Pass is undone.
func (c *Client) leave(q *queue, w *waiter, took time.Duration) {
	c.mu.Lock()
	i := slices.Index(q.waiting, w)
	if i == 0 {
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
	} else {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	w.queued, w.gone = false, took == 0
	if i == 0 && len(q.waiting) > 0 {
		next := q.waiting[0]
		next.ask, next.busy = took == 0, took
		if next.rounds != nil && took > 0 {
			next.rounds.taken(q)
		}
		next.wake.ring()
	}
	watch := c.prune(q)
	undo := w.gone && (w.got || w.offered || w.unsure)
	c.mu.Unlock()
	if watch != nil {
		watch.Stop()
	}
	if undo {
		w.h.undo(nil)
	}
}

// prune drops a queue that nobody needs any more, and returns the watch to be stopped, if there is one. Under c.mu.
func (c *Client) prune(q *queue) Watch {
	if len(q.waiting) > 0 {
		return nil
	}
	if c.queues[q.name] == q {
		delete(c.queues, q.name)
	}
	return q.watch
}

// offer picks the waiter of this process that a lock is to be handed to.
func (c *Client) offer(name string) *waiter {
	if c.passer == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[name]
	if q == nil || q.waiting[0].offered || q.waiting[0].got || c.closed {
		return nil
	}
	q.waiting[0].offered = true
	return q.waiting[0]
}

func (c *Client) settle(w *waiter, passed Passed, sent time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.offered = false
	switch {
	case w.gone:
		// The Pass may have come after what leave had undone.
		if err != nil || passed.Held {
			w.h.undo(nil)
		}
	case !w.queued:
		// It has the lock by its own request.
	case err != nil:
		w.unsure, w.ask = true, true
		w.wake.ring()
	case passed.Held:
		w.got, w.sent = true, sent
		w.grant = Grant{Token: passed.Token, Once: passed.Once && !w.unsure, Unsynced: passed.Unsynced}
	}
	if w.got {
		w.wake.ring()
	} else if q := c.queues[w.h.name]; q != nil && q.waiting[0] == w && !q.messages() {
		q.ask()
	}
}

// nudge makes the first waiter of this process ask, where no message will.
func (c *Client) nudge(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[name]; q != nil && !q.messages() {
		q.ask()
	}
}

// rouse makes the first waiter ask: it is time, a message came, or messages began or ceased to arrive.
func (c *Client) rouse(q *queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(q.waiting) == 0:
	case q.waiting[0].rounds != nil && q.waiting[0].rounds.quiet:
		q.waiting[0].rounds.quiet = false
		q.waiting[0].until = time.Time{}
		q.consider(q.waiting[0].rounds.q.need)
	default:
		q.ask()
	}
}

// ask makes the first waiter ask. Under Client.mu.
func (q *queue) ask() {
	q.waiting[0].ask = true
	q.waiting[0].wake.ring()
}

// messages reports whether unlock messages arrive. Under Client.mu.
func (q *queue) messages() bool { return q.watch != nil && q.watch.Live() }

// await waits in the queue until it has the lock, or budget or ctx end. busy is a just made attempt's; 0: none.
func (c *Client) await(ctx context.Context, h *holding, a attempt, busy time.Duration) (*holding, error) {
	w := &waiter{h: h, name: h.name, wake: newBell(), busy: busy}
	q := c.enqueue(h.name, w, busy > 0)
	if err := c.stand(ctx, q, w, a.budget()); err != nil {
		c.leave(q, w, 0)
		return nil, err
	}
	c.leave(q, w, h.first)
	return h, nil
}

func (c *Client) stand(ctx context.Context, q *queue, w *waiter, budget <-chan time.Time) error {
	retry := time.NewTimer(never)
	defer retry.Stop()
	for {
		step := c.look(q, w, retry)
		switch {
		case step.listen:
			c.listen(ctx, q, w)
			continue
		case step.closed:
			return fmt.Errorf("lock %s: %w", w.name, ErrClosed)
		case step.got:
			return c.got(ctx, w.h, w.sent, w.grant)
		case step.ask:
			ok, left, err := c.once(ctx, q, w)
			if ok || err != nil {
				return err
			}
			w.busy = left
			continue
		}
		select {
		case <-w.wake:
		case <-retry.C:
			c.rouse(q)
		case <-budget:
			return fmt.Errorf("lock %s: %w", w.name, ErrTimeout)
		case <-ctx.Done():
			return fmt.Errorf("lock %s: %w", w.name, context.Cause(ctx))
		}
	}
}

type step struct{ closed, got, ask, listen bool }

// look decides what a waiter does next. A first waiter that has nothing to ask sets the timer for its next request.
func (c *Client) look(q *queue, w *waiter, retry *time.Timer) step {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed && w.rounds == nil: // of several parts each answers for itself
		return step{closed: true}
	case w.got:
		return step{got: true}
	case q.waiting[0] != w:
		return step{}
	case w.ask:
		w.ask = false
		return step{ask: true}
	case !q.listening:
		return step{listen: true}
	}
	pause := c.set.poll
	if q.messages() {
		pause = c.set.probe
	}
	if w.busy > 0 {
		pause = min(pause, w.busy+tick)
	}
	if !w.until.IsZero() {
		pause = min(pause, time.Until(w.until))
	}
	retry.Reset(pause)
	return step{}
}

func (c *Client) once(ctx context.Context, q *queue, w *waiter) (ok bool, busy time.Duration, err error) {
	if w.rounds == nil {
		return c.try(ctx, w.h)
	}
	ok, err = c.round(ctx, q, w)
	return ok, 0, err
}

// listen begins to watch the lock, without Client.mu, which wake takes. The first waiter stays here, so the queue does.
func (c *Client) listen(ctx context.Context, q *queue, w *waiter) {
	var watch Watch
	if w.rounds == nil {
		watch = c.store.Watch(ctx, q.name, func() { c.rouse(q) })
	} else {
		watch = c.watchParts(ctx, q, w.rounds.q.mutexes())
	}
	c.mu.Lock()
	q.watch, q.listening = watch, true
	c.mu.Unlock()
}
