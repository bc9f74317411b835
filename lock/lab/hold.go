package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Hold is what one worker did under an attack, and when. Times are since the attack began.
type Hold struct {
	Holder string // A, B or C
	// Locked: it had a lock from From to To. Else there is none to have, and it worked with what it had read.
	Locked bool
	From   time.Duration
	To     time.Duration // both 0: it never got so far
	Did    []Moment
}

// Moment is one thing that a worker did.
type Moment struct {
	What string
	At   time.Duration
}

// Together is how long, in all, at least two workers had the lock.
func (a Attack) Together() (sum time.Duration) {
	var edges []time.Duration
	for _, h := range a.Holds {
		edges = append(edges, h.From, h.To)
	}
	slices.Sort(edges)
	for i := 1; i < len(edges); i++ {
		from, to, holders := edges[i-1], edges[i], 0
		for _, h := range a.Holds {
			if h.Locked && h.From <= from && h.To >= to {
				holders++
			}
		}
		if holders > 1 {
			sum += to - from
		}
	}
	return sum
}

// passes says that a worker only tells of a point, and does not stand there.
func (p point) passes() bool {
	return p == pointHeld || p == pointLost || p == pointGiven || p == pointCommitted
}

// diary is what an actor did.
type diary struct {
	mu      sync.Mutex
	written []entry
	closed  bool // it is over: what comes late is of no worker any more
}

type entry struct {
	what point
	at   time.Time
}

func (d *diary) note(p point) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.written = append(d.written, entry{p, time.Now()})
	}
}

func (d *diary) end(p point) {
	d.note(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// hold is what the diary comes to.
func (d *diary) hold(name string, began time.Time) Hold {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := Hold{Holder: name}
	for i, e := range d.written {
		at := e.at.Sub(began)
		h.Did = append(h.Did, Moment{string(e.what), at})
		comes := e.what == pointHalf || e.what == pointHeld || e.what == pointRead
		if comes && h.From == 0 {
			h.From, h.Locked = at, e.what != pointRead
		}
		goes := e.what == pointLost || e.what == pointGiven || i == len(d.written)-1
		if goes && h.From != 0 && h.To == 0 {
			h.To = at
		}
	}
	return h
}

// holds are those of the workers, in the order in which they came.
func (a *arena) holds() (all []Hold) {
	for _, w := range a.workers {
		all = append(all, w.diary.hold(w.name, a.began))
	}
	return all
}

// outcome is the point that a piece of work ended at.
func (t *tally) outcome(err error) point {
	switch {
	case err != nil:
		return pointFailed
	case t.Stuck > 0:
		return pointStuck
	case t.Refused > 0:
		return pointRefused
	case t.SoldOut > 0:
		return pointSoldOut
	case t.Repeated > 0:
		return pointRepeated
	}
	return pointDone
}

// told tells that a lock is held, that its holder hears of its loss, and that it unlocks. Nobody is told of a free run.
func (s setup) told(ctx context.Context, held hold) hold {
	if s.load != nil {
		return held
	}
	_ = s.pause(ctx, pointHeld)                  // nobody stands there
	deaf := context.AfterFunc(held.ctx, func() { //nolint:contextcheck // that of what is held
		if ctx.Err() == nil {
			_ = s.pause(ctx, pointLost)
		}
	})
	unlock, once := held.unlock, sync.OnceFunc(func() { _ = s.pause(ctx, pointGiven) })
	held.unlock = func(ctx context.Context) error {
		deaf() // an end that comes with the unlock is no loss
		once() // before it: the next one may have the lock before this one has heard so
		return unlock(ctx)
	}
	return held
}
