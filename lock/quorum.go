package lock

import (
	"context"
	"errors"
	"fmt"
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
// of one name on independent stores. A failed store makes it unavailable. With no parts Lock returns ErrRefused.
//
// Its callers may wait long behind callers of one of its parts: these hand the part to one another, and All needs all
// parts free at the same moment. Where both are busy, lock the parts one after the other, always in the same order.
func All(parts ...Locker) *Quorum { return newQuorum("all", parts, len(parts)) }

// Majority makes a lock that is held when more than half of the parts are: a RedLock. The parts must be different
// locks, of one name on independent stores, and an odd number of them: 2X+1 stores survive the failure of X. With no
// parts Lock returns ErrRefused.
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

// Lock takes the parts, all at the same time, and holds the lock when it got enough of them within the lease. Otherwise
// it gives back every part it got and tries again as the options say. The errors are those of Mutex.Lock; when too few
// parts can be reached, they are the parts' own.
//
// Lease.Token is 0 unless the option Fenced is given.
func (q *Quorum) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return q.lock(ctx, newAttempt(q.settings(), opts))
}

// TryLock makes one round and returns ErrHeld when another owner holds too many parts.
func (q *Quorum) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return q.lock(ctx, newAttempt(q.settings(), opts).trying())
}

func (q *Quorum) lock(ctx context.Context, a attempt) (*Lease, error) {
	if len(q.parts) == 0 {
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

// round asks the parts once. ErrHeld means that other owners hold too many. It then waits for the other parts' answers
// for as long as patience, rather than cancel them, so that the next round knows of them and finds none of this one
// under way.
func (q *Quorum) round(ctx context.Context, own *owner, a attempt, patience time.Duration) (*Lease, vain, error) {
	l := &Lease{name: q.name, life: a.lifeOf(ctx, own), term: a.lease, watchdog: a.watchdog}
	asking, stop := context.WithCancel(ctx) // stopped after the last answer, or when it fails
	b := &bundle{q: q, lease: l, stop: stop, parts: make([]*Lease, len(q.parts)), busy: map[int]bool{}, changed: newBell()}
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
		q.enter(b)
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
	// quorumPause is between two rounds of a caller that got too few of the parts. It is drawn at random up to a bound
	// that doubles each time another caller was faster, so that two callers that took half of the parts each do not do so
	// again. After it, and after the first message, the caller waits up to that bound for the messages of the other parts:
	// they are usually on their way, and a round that comes too early gets too few again.
	quorumPause    = 2 * tick
	maxQuorumPause = 64 * quorumPause
	// slowRounds: the bound is as many rounds, too. A round that waits for a silent part keeps the others from those it
	// got for as long, and callers that pause for less starve one another.
	slowRounds = 8
)

// await waits for its turn in the queue of this process, and then makes rounds until one succeeds, the budget has
// passed, or ctx has ended. At each probe it asks although a lease of its own process is in the way: the keys of that
// may have been deleted, or its Unlock may wait for a store that is gone.
func (q *Quorum) await(ctx context.Context, own *owner, a attempt) (*Lease, error) {
	p := q.join(own)
	defer p.leave()
	budget := a.budget()
	retry := time.NewTimer(defaultProbe)
	defer retry.Stop()
	var watches []Watch
	defer func() {
		for _, w := range watches {
			w.Stop()
		}
	}()

	pause, slowest := quorumPause, time.Duration(0)
	for due, soon := false, false; ; {
		first, inTheWay := p.turn()
		free, news := q.need, false
		if watches != nil {
			free, news = p.told()
		}
		if news && free < q.need && !soon {
			// The other parts are being given back, or are not needed: one round soon, rather than one for each message.
			soon = true
			retry.Reset(pause)
		}
		wake := p.wake
		if ctx.Err() == nil && first && (!inTheWay || due) && (free >= q.need || due) {
			told := p.forget() // not before: a lease in the way may end after its messages
			began := time.Now()
			lease, v, err := q.round(ctx, own, a, quorumPause)
			slowest = max(slowest, time.Since(began))
			if !errors.Is(err, ErrHeld) {
				return lease, err
			}
			p.recall(told, v.busy)
			due, soon = false, false
			raced := v.partly || news
			if watches == nil {
				watches = q.watch(p)
			}
			if free, _ = p.told(); v.partly || free >= q.need {
				wake = nil // until retry: parts that are given back wake all callers, who would take them from one another
				pause = max(pause, slowest)
				retry.Reset(rand.N(pause) + quorumPause/2) //nolint:gosec // spreads requests, guards nothing
			} else {
				retry.Reset(q.interval(watches))
			}
			if raced {
				// Another caller was faster. One that only asks at intervals has nobody in its way.
				pause = min(2*pause, max(maxQuorumPause, slowRounds*slowest))
			}
		}
		select {
		case <-wake:
		case <-retry.C:
			if wake == nil { // it paused: messages count again
				retry.Reset(pause)
				break
			}
			due = first
			retry.Reset(defaultProbe)
		case <-budget:
			return nil, fmt.Errorf("lock %s: %w", q.name, ErrTimeout)
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", q.name, context.Cause(ctx))
		}
	}
}

// watch has the caller woken when parts may have become free.
func (q *Quorum) watch(p *place) []Watch {
	watches := []Watch{}
	for i, part := range q.parts {
		m, ok := part.(*Mutex)
		if !ok {
			continue
		}
		w := m.client.store.Watch(m.name, func() {
			p.mu.Lock()
			p.free[i] = true
			p.mu.Unlock()
			p.wake.ring()
		})
		if w != nil {
			watches = append(watches, w)
		}
	}
	return watches
}

// interval is how long to rely on messages, as for a single lock.
func (q *Quorum) interval(watches []Watch) time.Duration {
	set := q.settings()
	deaf := func(w Watch) bool { return !w.Live() }
	if len(watches) < len(q.parts) || slices.ContainsFunc(watches, deaf) {
		return set.poll
	}
	return set.probe
}

// told returns how many parts are said to be free, and whether any has been said to be since the last round.
func (p *place) told() (free int, news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fresh := range p.free {
		news = news || fresh
	}
	return len(p.free), news
}

// forget begins a round anew, and returns what was known: a message in the round may be younger than the answer.
func (p *place) forget() (told map[int]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	told, p.free = p.free, map[int]bool{}
	return told
}

// recall is for a round that failed: a part that was said to be free still counts as free, unless another owner was
// found to hold it. A part that has not answered is as free as before, and sends no other message.
func (p *place) recall(told, busy map[int]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range told {
		if _, again := p.free[i]; !again && !busy[i] {
			p.free[i] = false // no news
		}
	}
}

// place is one Lock call in the queue for its quorum's parts, or, for an owner that holds a part already and must not
// wait behind a call that waits for that part, beside it. Only the first of a queue asks the stores, and not while a
// lease of the same parts is held in this process; so callers of one process do not take parts from one another.
type place struct {
	waiter
	client *Client
	line   *queue // nil: beside it

	mu   sync.Mutex   // guards free; a store's messages take it
	free map[int]bool // parts that are said to be free, and were not found held since; true: since the last round
}

// unlockGrace is how long the next one waits for the last parts once there are enough: usually it gets them.
const unlockGrace = moment

// join puts a caller at the end of the queue for the quorum's parts.
func (q *Quorum) join(own *owner) *place {
	p := &place{waiter: waiter{wake: newBell()}, free: make(map[int]bool)}
	client, key := q.where()
	if client == nil || slices.ContainsFunc(q.mutexes(), own.holds) {
		return p
	}
	p.client, p.line = client, client.enqueue(key, &p.waiter, true)
	return p
}

// leave takes the place out of its queue.
func (p *place) leave() {
	if p.line != nil {
		p.client.leave(p.line, &p.waiter, 0)
	}
}

// turn reports whether it is the caller's turn, and whether a lease of its own process is in the way.
func (p *place) turn() (first, inTheWay bool) {
	if p.line == nil {
		return true, false
	}
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	return p.line.waiting[0] == &p.waiter, p.line.leases > 0
}

// enter counts a lease of the quorum's parts until it is over.
func (q *Quorum) enter(b *bundle) {
	client, key := q.where()
	if client == nil {
		return
	}
	client.mu.Lock()
	line := client.queue(key)
	line.leases++
	client.mu.Unlock()
	leave := sync.OnceFunc(func() {
		client.mu.Lock()
		defer client.mu.Unlock()
		if line.leases--; len(line.waiting) > 0 {
			line.waiting[0].wake.ring()
		}
		client.prune(line)
	})
	b.mu.Lock()
	over := b.over
	b.left = leave
	b.mu.Unlock()
	if over {
		leave()
	}
}

// where returns the queue for the quorum's parts, and the client that has it: the same in whatever order the parts are
// given. No lock's name is its key, which contains the random id of a client.
func (q *Quorum) where() (client *Client, key string) {
	all := q.mutexes()
	if len(all) == 0 {
		return nil, ""
	}
	var keys []string
	for _, m := range all {
		keys = append(keys, m.key())
	}
	slices.Sort(keys)
	first := slices.MinFunc(all, func(x, y *Mutex) int { return strings.Compare(x.key(), y.key()) })
	return first.client, "quorum " + strings.Join(keys, " ")
}

// mutexes returns the single locks that the quorum consists of.
func (q *Quorum) mutexes() []*Mutex {
	var all []*Mutex
	for _, p := range q.parts {
		switch p := p.(type) {
		case *Mutex:
			all = append(all, p)
		case *Quorum:
			all = append(all, p.mutexes()...)
		}
	}
	return all
}
