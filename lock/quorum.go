package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Quorum is one lock made of several. It has no state and is safe for
// concurrent use.
type Quorum struct {
	parts []Locker
	need  int
	name  string
}

var _ Locker = (*Quorum)(nil)

// All makes a lock that is held when every part is: a MultiLock. Parts are
// locks of different names, or of one name on independent stores; a failed
// store makes it unavailable.
func All(parts ...Locker) *Quorum { return newQuorum("all", parts, len(parts)) }

// Majority makes a lock that is held when more than half of the parts are: a
// RedLock. The parts are locks of one name on independent stores, an odd number
// of them: 2X+1 stores survive the failure of X.
func Majority(parts ...Locker) *Quorum { return newQuorum("majority", parts, len(parts)/2+1) }

func newQuorum(kind string, parts []Locker, need int) *Quorum {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Name()
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

// Lock takes the parts, all at the same time, and holds the lock when enough
// were given within the lease. If they were not, it gives back those it got, on
// every part and in any case, and tries again as the options say. The answers
// are those of Mutex.Lock; when too few parts can be reached, it is their errors.
//
// Lease.Token is 0 unless the option Fenced is given.
func (q *Quorum) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return q.lock(ctx, newAttempt(q.settings(), opts))
}

// TryLock makes one round and answers ErrHeld when too many parts are held by
// another owner.
func (q *Quorum) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	a := newAttempt(q.settings(), opts)
	a.try, a.wait, a.forever = true, 0, false
	return q.lock(ctx, a)
}

func (q *Quorum) lock(ctx context.Context, a attempt) (*Lease, error) {
	if len(q.parts) == 0 {
		return nil, fmt.Errorf("lock %s: %w: it has no parts", q.name, ErrRefused)
	}
	own, known := ownerOf(ctx)
	if !known {
		own = &owner{}
		ctx = context.WithValue(ctx, ownerKey{}, own)
	}
	if once := !a.forever && a.wait == 0; once {
		lease, _, err := q.round(ctx, own, a)
		if errors.Is(err, ErrHeld) && !a.try {
			err = fmt.Errorf("lock %s: %w", q.name, ErrTimeout)
		}
		return lease, err
	}
	return q.await(ctx, own, a)
}

// round asks the parts once. ErrHeld means that other owners hold too many;
// partly, that some had to be given back.
func (q *Quorum) round(ctx context.Context, own *owner, a attempt) (lease *Lease, partly bool, err error) {
	set := q.settings()
	l := &Lease{parent: ctx, term: a.lease, watchdog: a.watchdog, unlockIn: set.unlockTimeout}
	b := newBundle(q, l)
	l.hold = b

	one := a
	one.try, one.wait, one.forever = true, 0, false
	one.parent = ctx
	var asking context.Context
	asking, b.stop = context.WithCancel(ctx) // stopped after the last answer, or when it fails
	for i, p := range q.parts {
		go func() {
			part, err := p.lock(asking, one)
			b.answer(i, part, err) //nolint:contextcheck // what came too late is given back on a context of its own
		}()
	}

	err = b.decided(ctx)
	if err == nil && a.fenced {
		err = b.fence(ctx, own)
	}
	if err == nil && time.Until(b.validUntil()) <= 0 {
		err = fmt.Errorf("%w: the answers took longer than the lease", ErrLost)
	}
	if err == nil {
		// Parts that have not answered may still join: they make it safer.
		q.enter(b)
		return l, false, nil
	}
	b.stop()
	partly = b.giveUp(ctx, set.unlockTimeout)
	return nil, partly, fmt.Errorf("lock %s: %w", q.name, err)
}
