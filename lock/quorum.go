package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Quorum is one lock made of several. It has no state and is safe for concurrent use.
type Quorum struct {
	parts []Locker
	need  int
	name  string
}

// All makes a lock that is held when every part is: a MultiLock. Parts must be different locks: of different names, or
// of one name on independent stores. A failed store makes it unavailable. With no parts Lock returns ErrRefused. Its
// callers may wait long behind callers of one part, who hand it to one another: All needs all parts free at once. Where
// both are busy, lock the parts one after the other, always in the same order.
func All(parts ...Locker) *Quorum { return newQuorum("all", parts, len(parts)) }

// Majority makes a lock that is held when more than half of the parts are: a RedLock. Parts must be an odd number of
// locks of one name on independent stores: 2X+1 stores survive the failure of X. With no parts Lock returns ErrRefused.
func Majority(parts ...Locker) *Quorum { return newQuorum("majority", parts, len(parts)/2+1) }

func newQuorum(kind string, parts []Locker, need int) *Quorum {
	var names []string
	for _, p := range parts {
		names = append(names, p.Name())
	}
	return &Quorum{slices.Clone(parts), need, kind + "(" + strings.Join(names, ", ") + ")"}
}

// Name is Locker's.
func (q *Quorum) Name() string { return q.name }

func (q *Quorum) key() string {
	keys := []string{strconv.Itoa(q.need)}
	for _, p := range q.parts {
		keys = append(keys, p.key())
	}
	return strings.Join(keys, " ")
}

func (q *Quorum) settings() settings {
	if len(q.parts) == 0 {
		return defaultSettings()
	}
	return q.parts[0].settings()
}

// Lock takes the parts, all at the same time, and holds the lock when it got enough within the lease. Otherwise it
// gives back what it got and tries again as the options say. The errors are those of Mutex.Lock; when too few parts can
// be reached, they are the parts' own. Lease.Token is 0 without the option Fenced.
func (q *Quorum) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return q.lock(ctx, newAttempt(q.settings(), opts))
}

// TryLock makes one round and returns ErrHeld when another owner holds too many parts.
func (q *Quorum) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return q.lock(ctx, newAttempt(q.settings(), opts).trying())
}

func (q *Quorum) lock(ctx context.Context, a attempt) (*Lease, error) {
	if len(q.mutexes()) == 0 {
		return nil, fmt.Errorf("lock %s: %w: it has no parts", q.name, ErrRefused)
	}
	ctx, own := withOwner(ctx)
	if a.once() {
		lease, _, err := q.round(ctx, own, a, 0)
		if errors.Is(err, ErrHeld) && !a.try {
			err = fmt.Errorf("lock %s: %w", q.name, ErrTimeout)
		}
		return lease, err
	}
	return q.await(ctx, own, a)
}

// vain is what a round without success has found out.
type vain struct {
	partly bool         // some parts had to be given back
	busy   map[int]bool // parts that are held: by another owner, or by a call of this one (false)
}

// round asks the parts once. ErrHeld means that other owners hold too many. It then waits up to patience for the other
// answers, rather than cancel them: the next round then knows of them and finds none of this one under way.
func (q *Quorum) round(ctx context.Context, own *owner, a attempt, patience time.Duration) (*Lease, vain, error) {
	l := &Lease{name: q.name, life: a.lifeOf(ctx, own), term: a.lease, watchdog: a.watchdog}
	asking, stop := context.WithCancel(ctx) // stopped after the last answer, or when it fails
	b := &bundle{
		q: q, lease: l, stop: stop, parts: make([]*Lease, len(q.parts)), busy: map[int]bool{},
		changed: newBell(),
	}
	l.hold = b

	one := a.trying()
	one.life = l.life
	for i, p := range q.parts {
		go func() {
			part, err := p.lock(asking, one)
			b.answer(i, part, err) //nolint:contextcheck // what came too late is given back on a context of its own
		}()
	}

	err := b.decided(ctx)
	if err == nil && a.fenced {
		err = b.fence(ctx, own)
	}
	if err == nil && time.Until(b.validUntil()) <= 0 {
		err = fmt.Errorf("%w: the answers took longer than the lease", ErrLost)
	}
	if err == nil {
		// Parts that have not answered may still join: they make it safer.
		return l, vain{}, nil
	}
	if patience > 0 && errors.Is(err, ErrHeld) {
		b.allAnswered(ctx, patience)
	}
	b.stop()
	v := b.giveUp(ctx, q.settings().unlockTimeout)
	return nil, v, fmt.Errorf("lock %s: %w", q.name, err)
}

const (
	// quorumPause is between two rounds of a caller that got too few parts: random, up to a bound that doubles each
	// time another caller was faster, so that two with half of the parts each do not do so again. After it, and after
	// the first message, the caller waits up to that bound for the others: a round too early gets too few.
	quorumPause    = 2 * tick
	maxQuorumPause = 64 * quorumPause
	// slowRounds: the bound is as many rounds, too. A round that waits for a silent part keeps the others from those it
	// got for as long, and callers that pause for less starve one another.
	slowRounds = 8
)

// rounds is what a waiter for several parts does and knows of them. Client.mu guards it, but for what a round changes.
type rounds struct {
	q     *Quorum
	own   *owner
	a     attempt
	lease *Lease       // of a round that succeeded
	busy  map[int]bool // parts that the last round found to be another owner's
	quiet bool         // no message counts: one round is under way, or a pause after one that was in vain
	pause time.Duration
	slow  time.Duration // the slowest round took so long
}

// await waits for its turn in this process's queue, so that its callers do not take parts from one another, and makes
// rounds. An owner that holds a part has a queue for itself: it must not wait behind a call that waits for that part.
func (q *Quorum) await(ctx context.Context, own *owner, a attempt) (*Lease, error) {
	client, key := q.where()
	r := &rounds{q: q, own: own, a: a, pause: quorumPause}
	w := &waiter{rounds: r, name: q.name, wake: newBell()}
	line := &queue{waiting: []*waiter{w}}
	if slices.ContainsFunc(q.mutexes(), own.holds) {
		w.ask = true
	} else {
		line = client.enqueue(key, w, false)
	}
	if err := client.stand(ctx, line, w, a.budget()); err != nil {
		client.leave(line, w, 0)
		return nil, err
	}
	client.leave(line, w, a.lease)
	return r.lease, nil
}

func (c *Client) round(ctx context.Context, line *queue, w *waiter) (ok bool, err error) {
	r := w.rounds
	c.mu.Lock()
	news := len(line.said) > 0
	line.said = map[string]bool{} // not later: a message in the round may be younger than the answer
	r.quiet, w.ask = true, false
	c.mu.Unlock()
	began := time.Now()
	lease, v, err := r.q.round(ctx, r.own, r.a, quorumPause)
	if !errors.Is(err, ErrHeld) {
		r.lease = lease
		return err == nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.slow = max(r.slow, time.Since(began))
	r.busy, r.quiet, w.until = v.busy, false, time.Time{}
	if v.partly || r.free(line) >= r.q.need {
		// Parts that are given back wake all callers, who would take them from one another.
		r.pause = max(r.pause, r.slow)
		r.quiet, w.until = true, time.Now().Add(rand.N(r.pause)+quorumPause/2) //nolint:gosec // spreads requests, guards nothing
	}
	if v.partly || news { // another caller was faster; one that only asks at intervals has nobody in its way
		r.pause = min(2*r.pause, max(maxQuorumPause, slowRounds*r.slow))
	}
	return false, nil
}

// taken: a caller of the same process has the parts now.
func (r *rounds) taken(line *queue) {
	line.said = nil
	r.busy = map[int]bool{}
	for i := range r.q.parts {
		r.busy[i] = true
	}
}

// free counts the parts that are not known to be held: the last round did not find them so, or a message came since.
func (r *rounds) free(line *queue) (n int) {
	said := func(m *Mutex) bool { return line.said[m.key()] }
	for i, p := range r.q.parts {
		if !r.busy[i] || slices.ContainsFunc(mutexesOf(p), said) {
			n++
		}
	}
	return n
}

func (c *Client) hear(line *queue, part string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if line.said == nil {
		line.said = map[string]bool{}
	}
	line.said[part] = true
	if len(line.waiting) > 0 {
		line.consider(len(line.waiting[0].rounds.q.parts))
	}
}

// consider has the first waiter ask when enough parts may be free, or soon, once for many messages. Under Client.mu.
func (q *queue) consider(enough int) {
	w := q.waiting[0]
	switch {
	case w.rounds.quiet:
	case w.rounds.free(q) >= enough:
		q.ask()
	case w.until.IsZero():
		w.until = time.Now().Add(w.rounds.pause)
		w.wake.ring()
	}
}

func (c *Client) watchParts(ctx context.Context, line *queue, parts []*Mutex) Watch {
	var all watches
	for _, m := range parts {
		all = append(all, m.client.store.Watch(ctx, m.name, func() { c.hear(line, m.key()) }))
	}
	return all
}

// watches are those of several parts; nil where a store has no messages.
type watches []Watch

func (all watches) Live() bool {
	return !slices.ContainsFunc(all, func(w Watch) bool { return w == nil || !w.Live() })
}

func (all watches) Stop() {
	for _, w := range all {
		if w != nil {
			w.Stop()
		}
	}
}

// where returns the client and queue for the parts, in any order. No lock is named like key, which has a client's id.
func (q *Quorum) where() (client *Client, key string) {
	all := q.mutexes()
	var keys []string
	for _, m := range all {
		keys = append(keys, m.key())
	}
	slices.Sort(keys)
	first := slices.MinFunc(all, func(x, y *Mutex) int { return strings.Compare(x.key(), y.key()) })
	return first.client, "quorum " + strings.Join(keys, " ")
}

func (q *Quorum) mutexes() []*Mutex { return mutexesOf(q.parts...) }

func mutexesOf(parts ...Locker) (all []*Mutex) {
	for _, p := range parts {
		switch p := p.(type) {
		case *Mutex:
			all = append(all, p)
		case *Quorum:
			all = append(all, p.mutexes()...)
		}
	}
	return all
}

// bundle is what a lease of several parts stands on.
type bundle struct {
	q     *Quorum
	lease *Lease
	stop  context.CancelFunc // of the parts that have not answered

	mu       sync.Mutex
	parts    []*Lease     // by part; nil when not held
	held     int          // parts that are held and have not ended
	busy     map[int]bool // parts that are held: by another owner (true), or by a call of this one
	failed   []error      // of parts that could not be asked
	answered int
	changed  bell   // rung by every answer
	began    bool   // enough were held
	over     bool   // given up, unlocked or lost: a part that joins now is given back
	number   int64  // the token
	unfence  func() // forgets it
}

func (b *bundle) answer(i int, part *Lease, err error) {
	b.mu.Lock()
	b.answered++
	late := false
	switch {
	case err == nil && b.over:
		late = true
	case err == nil:
		b.parts[i] = part
		b.held++
	case errors.Is(err, ErrHeld):
		b.busy[i] = !errors.Is(err, errTurn)
	default:
		b.failed = append(b.failed, err)
	}
	last := b.answered == len(b.parts)
	b.mu.Unlock()
	if last {
		b.stop()
	}
	b.changed.ring()
	switch {
	case late:
		_ = part.Unlock() // bounded; what fails goes on in the background
	case err == nil:
		part.notify(b.ended)
	}
}

// decided waits until it is clear whether enough parts are held.
func (b *bundle) decided(ctx context.Context) error {
	for {
		b.mu.Lock()
		spare := len(b.parts) - b.q.need
		lost := b.answered - b.held
		var err error
		switch {
		case len(b.failed) > spare:
			err = errors.Join(b.failed...)
		case lost > spare && (len(b.busy) > spare || b.answered == len(b.parts)):
			// Until then how many fail may still decide between the two errors.
			err = ErrHeld
		}
		enough := b.held >= b.q.need
		b.began = enough
		b.mu.Unlock()
		switch {
		case enough:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-b.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// allAnswered waits until every part has answered, but no longer than patience.
func (b *bundle) allAnswered(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ctx.Err() == nil {
		b.mu.Lock()
		all := b.answered == len(b.parts)
		b.mu.Unlock()
		if all {
			return
		}
		select {
		case <-b.changed:
		case <-ctx.Done():
		}
	}
}

// ended is called when a part's lease has ended. When too few parts are left, the lock ends with the same cause.
func (b *bundle) ended(cause error) {
	b.mu.Lock()
	gone := false
	if !b.over {
		b.held--
		if gone = b.began && b.held < b.q.need; gone {
			b.over = true
			b.forget()
		}
	}
	b.mu.Unlock()
	if gone {
		b.lease.end(cause)
	}
}

// forget drops the token: the owner's next one is greater than those of the holders in between. Under b.mu.
func (b *bundle) forget() {
	if b.unfence != nil {
		b.unfence()
		b.unfence = nil
	}
}

// take ends the bundle and returns the parts that are to be given back.
func (b *bundle) take() (parts []*Lease, lost bool) {
	b.mu.Lock()
	lost = b.held < b.q.need
	b.over = true
	b.forget()
	b.mu.Unlock()
	return b.current(), lost // no part joins any more
}

// current returns the leases of the parts. The caller uses them without b.mu, because a part that ends takes it.
func (b *bundle) current() []*Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.parts), func(l *Lease) bool { return l == nil })
}

func each[T any](parts []T, do func(T) error) []error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	return errs
}

// giveUp gives back every taken part on its own context; the caller's bounds only the wait. It returns what it found.
func (b *bundle) giveUp(ctx context.Context, bound time.Duration) vain {
	parts, _ := b.take()
	b.mu.Lock()
	v := vain{partly: len(parts) > 0, busy: maps.Clone(b.busy)}
	b.mu.Unlock()
	if !v.partly {
		return v
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
		defer cancel()
		each(parts, func(l *Lease) error { return l.UnlockContext(detached) })
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return v
}

// unlock gives back every part and reports failures; a lost part is no failure while enough were held.
func (b *bundle) unlock(ctx context.Context, l *Lease) error {
	parts, lost := b.take()
	l.end(ErrUnlocked)
	errs := each(parts, func(p *Lease) error { return p.UnlockContext(ctx) })
	var gone []error
	errs = slices.DeleteFunc(errs, func(err error) bool {
		if errors.Is(err, ErrLost) {
			gone = append(gone, err)
			return true
		}
		return false
	})
	if (lost || len(errs) < b.q.need) && !errors.Is(l.cause(), ErrClosed) {
		errs = append(append(errs, ErrLost), gone...)
	}
	return errors.Join(errs...)
}

func (b *bundle) extend(ctx context.Context, _ *Lease, d time.Duration) error {
	return b.most("extend", func(l *Lease) error { return l.Extend(ctx, d) })
}

// most calls do for the parts that are held; it must succeed for enough of them.
func (b *bundle) most(what string, do func(*Lease) error) error {
	parts := b.current()
	failed := slices.DeleteFunc(each(parts, do), func(err error) bool { return err == nil })
	if len(parts)-len(failed) < b.q.need {
		return fmt.Errorf("%s the lock %s: %w", what, b.q.name, errors.Join(failed...))
	}
	return nil
}

// validUntil is until when enough of the parts last that have not been lost.
func (b *bundle) validUntil() time.Time {
	var ends []time.Time
	for _, p := range b.current() {
		if p.cause() == nil {
			ends = append(ends, p.ValidUntil())
		}
	}
	if len(ends) < b.q.need {
		return time.Time{}
	}
	slices.SortFunc(ends, func(x, y time.Time) int { return y.Compare(x) })
	return ends[b.q.need-1]
}

// fence makes a token of the parts': the greatest, written back to so many that the next holder sees it.
func (b *bundle) fence(ctx context.Context, own *owner) error {
	key := b.q.key()
	token, err := own.fence(key, func() (int64, error) {
		var greatest int64
		for _, p := range b.current() {
			greatest = max(greatest, p.Token())
		}
		if greatest == 0 { // stores without tokens
			return 0, nil
		}
		return greatest, b.raise(ctx, greatest)
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number = token
	b.unfence = func() { own.unfence(key) }
	if b.over { // lost while the token was made
		b.forget()
	}
	return nil
}

func (b *bundle) token() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.number
}

func (b *bundle) raise(ctx context.Context, token int64) error {
	err := b.most("raise the token of", func(l *Lease) error { return l.hold.raise(ctx, token) })
	if err == nil {
		b.mu.Lock()
		b.number = max(b.number, token)
		b.mu.Unlock()
	}
	return err
}
