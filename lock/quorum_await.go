package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// quorumPause is between two rounds of a lock of several parts while
	// no message tells that one became free. It is drawn at random up to a bound
	// that doubles, so that two callers that took half of the parts each do
	// not do so again.
	quorumPause    = 2 * time.Millisecond
	maxQuorumPause = 128 * time.Millisecond
)

// await waits for its turn in the line of this process, and then makes rounds
// until one succeeds, the budget has passed, or ctx has ended.
func (q *Quorum) await(ctx context.Context, own *owner, a attempt) (*Lease, error) {
	p := q.join(own)
	defer p.leave()
	var budget <-chan time.Time
	if !a.forever {
		t := time.NewTimer(a.wait)
		defer t.Stop()
		budget = t.C
	}
	retry := time.NewTimer(quorumProbe)
	defer retry.Stop()
	var watches []Watch
	defer func() {
		for _, w := range watches {
			w.Stop()
		}
	}()

	var err error
	pause := quorumPause
	for due, soon := false, false; ; {
		first, inTheWay := p.turn()
		news := all
		if watches != nil {
			news = q.news(p)
		}
		if news == some && !soon {
			// The other parts are being given back, or need not be: a round
			// soon, rather than one for each message.
			soon = true
			retry.Reset(quorumPause)
		}
		wake := p.wake
		if ctx.Err() == nil && first && (!inTheWay || due) && (news == all || due) {
			var lease *Lease
			var partly bool
			if lease, partly, err = q.round(ctx, own, a); !errors.Is(err, ErrHeld) {
				return lease, err
			}
			due, soon = false, false
			if watches == nil {
				watches = q.watch(p)
			}
			retry.Reset(rand.N(pause) + quorumPause/2) //nolint:gosec // spreads requests, guards nothing
			pause = min(2*pause, maxQuorumPause)
			if partly {
				wake = nil // until retry: what was given back wakes all, and they would take parts of one another again
			}
		}
		select {
		case <-wake:
		case <-retry.C:
			due = first
			retry.Reset(quorumProbe)
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
			p.signal()
		})
		if w != nil {
			watches = append(watches, w)
		}
	}
	return watches
}

// news is what messages have told since the last round.
type news int

const (
	none news = iota
	some      // a part may have become free
	all       // as many as are needed
)

// news reads the messages, and forgets them when a round is worth it.
func (q *Quorum) news(p *place) news {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, free := range p.free {
		if free {
			n++
		}
	}
	switch {
	case n == 0:
		return none
	case n < q.need:
		return some
	}
	clear(p.free)
	return all
}
