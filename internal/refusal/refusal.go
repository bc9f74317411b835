// Package refusal remembers that a store has refused to write, for those who ask whether it can be used.
package refusal

import (
	"sync/atomic"
	"time"

	"seckill/internal/budget"

	"golang.org/x/time/rate"
)

const countsFor = budget.Answer // then a refusing store is tried again: who is not ready gets no call

// Latest is the latest refusal of a store. It is safe for concurrent use.
type Latest struct {
	slack time.Duration
	last  atomic.Pointer[refused]
	says  rate.Sometimes
}

type refused struct {
	at  time.Time
	err error
}

// New is of a store that has refused nothing. Tests add slack to the time for which a refusal counts.
func New(slack time.Duration) *Latest {
	return &Latest{slack: slack, says: rate.Sometimes{Interval: budget.Survey}}
}

// Note takes a refusal down, and has it said at most once a minute.
func (l *Latest) Note(err error, say func()) {
	l.last.Store(&refused{at: time.Now(), err: err})
	l.says.Do(say)
}

// Forget says that the store writes again, where one success is proof enough.
func (l *Latest) Forget() {
	if l.last.Load() != nil {
		l.last.Store(nil)
	}
}

// Err is the latest refusal for as long as it counts.
func (l *Latest) Err() error {
	if last := l.last.Load(); last != nil && time.Since(last.at) < countsFor+l.slack {
		return last.err
	}
	return nil
}
