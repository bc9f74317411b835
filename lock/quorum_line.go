package lock

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// waitLines are where the callers of one process wait for locks of several parts,
// first come first served: a line per set of parts. Only the first of a line
// asks the stores, and not while a lease of the same parts is held in this
// process; so callers of one process do not take parts from one another.
type waitLines struct {
	mu    sync.Mutex // guards what follows, and every waitLine and place
	byKey map[string]*waitLine
}

type waitLine struct {
	in      *waitLines
	key     string
	waiting []*place
	leases  int // of these parts, held in this process
}

// place is one Lock call in a line, or, for an owner that holds a part already
// and must not wait behind a call that waits for that part, beside it.
type place struct {
	line *waitLine // nil: beside it
	wake chan struct{}

	mu   sync.Mutex // guards free; a store's messages take it
	free []bool     // parts that are said to have become free since the last round
}

const (
	// quorumProbe is how often the first of a line asks although a lease of
	// its process is in the way: its keys may have been deleted, or its
	// Unlock may be waiting for a store that is gone. As defaultProbe.
	quorumProbe = defaultProbe
	// unlockGrace is how long the next one waits for the last parts to be
	// given back once there are enough: several round trips, so that it
	// usually gets them all, and nothing if a store is gone.
	unlockGrace = 20 * time.Millisecond
)

// join puts a caller at the end of the line for the quorum's parts. An owner that
// holds a part already is served beside the line.
func (q *Quorum) join(own *owner) *place {
	p := &place{wake: make(chan struct{}, 1), free: make([]bool, len(q.parts))}
	in, key := q.where()
	if in == nil || slices.ContainsFunc(q.mutexes(), own.holds) {
		return p
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	p.line = in.line(key)
	p.line.waiting = append(p.line.waiting, p)
	return p
}

// enter counts a lease of the quorum's parts until it is over.
func (q *Quorum) enter(b *bundle) {
	in, key := q.where()
	if in == nil {
		return
	}
	in.mu.Lock()
	l := in.line(key)
	l.leases++
	in.mu.Unlock()
	b.whenOver(func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		l.leases--
		l.next()
	})
}

// where tells in which line, and of which client, one waits for the quorum: the
// same one in whatever order its parts are given.
func (q *Quorum) where() (*waitLines, string) {
	all := q.mutexes()
	if len(all) == 0 {
		return nil, ""
	}
	slices.SortFunc(all, func(x, y *Mutex) int { return strings.Compare(x.key(), y.key()) })
	keys := make([]string, len(all))
	for i, m := range all {
		keys[i] = m.key()
	}
	return &all[0].client.lines, strings.Join(keys, " ")
}

// mutexes returns the locks of one store that the quorum comes down to.
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

// line finds or makes a line. Under in.mu.
func (in *waitLines) line(key string) *waitLine {
	l := in.byKey[key]
	if l == nil {
		if in.byKey == nil {
			in.byKey = make(map[string]*waitLine)
		}
		l = &waitLine{in: in, key: key}
		in.byKey[key] = l
	}
	return l
}

// next lets the first one look again, or drops a line that is no longer needed. Under
// in.mu.
func (l *waitLine) next() {
	switch {
	case len(l.waiting) > 0:
		l.waiting[0].signal()
	case l.leases == 0:
		delete(l.in.byKey, l.key)
	}
}

func (p *place) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// leave takes the place out of its line.
func (p *place) leave() {
	l := p.line
	if l == nil {
		return
	}
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(other *place) bool { return other == p })
	l.next()
}

// turn tells whether it is the caller's turn, and whether a lease of its own
// process is in the way.
func (p *place) turn() (first, inTheWay bool) {
	l := p.line
	if l == nil {
		return true, false
	}
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	return l.waiting[0] == p, l.leases > 0
}
