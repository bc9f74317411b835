// Package refusal remembers that a store has refused to write, which no question finds out, for those who ask whether it
// can be used.
package refusal

import (
	"sync/atomic"
	"time"
)

const (
	// countsFor is how long a refusal is held against a store. Then it is tried again: an instance that is not ready is
	// sent no request that would find out.
	countsFor = 5 * time.Second
	// sayEvery bounds how often one is worth a record in the log.
	sayEvery = time.Minute
)

// Latest is the latest refusal of a store. The zero value is of one that has refused nothing. It is safe for concurrent use.
type Latest struct {
	// Slack is added to the time for which a refusal counts, for tests: their machine may be busy with others.
	Slack time.Duration

	last atomic.Pointer[refused]
	said atomic.Pointer[time.Time]
}

type refused struct {
	at  time.Time
	err error
}

// Note takes a refusal down, and reports whether it should be said: at most once a minute.
func (l *Latest) Note(err error) (say bool) {
	now := time.Now()
	l.last.Store(&refused{at: now, err: err})
	said := l.said.Load()
	return (said == nil || now.Sub(*said) >= sayEvery) && l.said.CompareAndSwap(said, &now)
}

// Forget says that the store writes again, where one success is proof enough.
func (l *Latest) Forget() {
	if l.last.Load() != nil {
		l.last.Store(nil)
	}
}

// Err is the latest refusal for as long as it counts.
func (l *Latest) Err() error {
	if last := l.last.Load(); last != nil && time.Since(last.at) < countsFor+l.Slack {
		return last.err
	}
	return nil
}
