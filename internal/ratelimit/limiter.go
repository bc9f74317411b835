// Package ratelimit bounds how many events each of many senders may cause: on one
// instance, or by all instances together.
//
// gcra.go is the arithmetic, this file the policy, shared.go the way to what the
// instances share; the storage of that is the repository's.
package ratelimit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"seckill/model"
)

const (
	// maxTracked bounds how many senders one limiter remembers: some 20 MB at the most. It forgets the sender that was
	// quiet longest first. That sender starts with its whole quota again.
	maxTracked = 100_000
	// firstShare of its quota a sender that was quiet for as long as the quota lasts may
	// use before the instance asks: up to four instances give away no more than there is.
	firstShare = 4
	// nextShare of what was left at the latest question may be used before the next one:
	// less, because the other instances have not reported theirs.
	nextShare = 16
	// smallest quota of which anything is given away unasked. Smaller ones are exact.
	smallest = 8
)

// Limiter gives every sender a quota of its own. It is safe for concurrent use, and the nil Limiter limits nothing.
//
// An instance decides by itself first, as if it were alone. A sender may then use a share of its quota without any
// call; beyond that, the instance reports what was used and asks what the instances share. When that does not answer,
// the instance's own decision counts.
type Limiter struct {
	name    string
	atLeast time.Duration // whose events may come at once, where the rate's Per is shorter
	shared  *Shared       // nil: this instance alone
	began   time.Time     // what instants count from: a step of the system's clock changes nothing
	current atomic.Pointer[limit]
}

// limit is one setting of a limiter, and the senders that were counted under it.
type limit struct {
	rate    model.Rate
	scope   string
	quota   quota
	senders *lru.Cache[string, *sender]
}

// sender is what this instance knows of one sender. Instants are ns since the limiter began.
type sender struct {
	mu       sync.Mutex
	idle     int64 // see quota; of this instance alone
	latest   int64 // event
	free     int64 // events it may use before the instance asks
	unasked  int64 // events it used since then
	refusing int64 // until when what the instances share refuses
}

// New makes a limiter that is off. Its name separates it from others that use the same Shared, which may be nil.
func New(name string, atLeast time.Duration, shared *Shared) *Limiter {
	return &Limiter{name: name, atLeast: atLeast, shared: shared, began: time.Now()}
}

// Set changes the rate. Scope names the senders towards what is shared: instances with the same scope count together,
// and with none an instance counts alone. A rate that is not the same as before gives all senders their whole quota.
func (l *Limiter) Set(rate model.Rate, scope string) error {
	before := l.current.Load()
	switch {
	case rate.Off():
		l.current.Store(nil)
		return nil
	case before != nil && before.rate == rate && before.scope == scope:
		return nil
	}
	senders, err := lru.New[string, *sender](maxTracked)
	if err != nil {
		return fmt.Errorf("make a rate limiter: %w", err)
	}
	l.current.Store(&limit{rate: rate, scope: scope, quota: quotaOf(rate, l.atLeast), senders: senders})
	return nil
}

// Rate is the rate in force.
func (l *Limiter) Rate() model.Rate {
	if l == nil {
		return model.Rate{}
	}
	if current := l.current.Load(); current != nil {
		return current.rate
	}
	return model.Rate{}
}

// Take counts one event of a sender. When that is too many it tells how long until
// there may be another one; zero means that the event is allowed.
func (l *Limiter) Take(ctx context.Context, key string) time.Duration {
	if l == nil {
		return 0
	}
	current := l.current.Load()
	if current == nil {
		return 0
	}
	return l.take(ctx, current, key, time.Now())
}

func (l *Limiter) take(ctx context.Context, c *limit, key string, now time.Time) time.Duration {
	s := c.sender(key)
	shared := l.shared
	if c.scope == "" {
		shared = nil
	}
	wait, ask, used := s.decide(c.quota, int64(now.Sub(l.began)), shared != nil)
	if !ask {
		return wait
	}
	verdict, err := shared.ask(ctx, Ask{
		Key:      c.scope + ":" + l.name + ":" + c.rate.String() + ":" + key,
		Emission: c.quota.emission, Capacity: c.quota.capacity, Used: used,
	})
	s.hear(c.quota, int64(time.Since(l.began)), verdict, err, used)
	return verdict.Wait
}

func (c *limit) sender(key string) *sender {
	if s, ok := c.senders.Get(key); ok {
		return s
	}
	s := &sender{latest: -int64(c.quota.capacity)}
	if earlier, there, _ := c.senders.PeekOrAdd(key, s); there {
		return earlier // another request of the same sender was first
	}
	return s
}

// decide is the instance's own decision: a wait, or that the event is allowed for now,
// and whether to ask, reporting so many earlier events.
func (s *sender) decide(q quota, now int64, together bool) (wait time.Duration, ask bool, used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusing > now {
		return time.Duration(s.refusing - now), false, 0
	}
	if s.idle, wait = q.take(s.idle, now); wait > 0 || !together {
		return wait, false, 0
	}
	if now-s.latest >= int64(q.capacity) && q.burst >= smallest {
		s.free, s.unasked = q.burst/firstShare, 0 // what was used before is given back
	}
	s.latest = now
	if s.unasked < s.free {
		s.unasked++
		return 0, false, 0
	}
	used, s.unasked = s.unasked, 0
	return 0, true, used
}

// hear notes the answer to what was asked about one event and the used ones before it.
func (s *sender) hear(q quota, now int64, verdict Verdict, err error, used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil: // they are reported the next time
		s.unasked = min(s.unasked+used+1, q.burst)
	case verdict.Wait > 0:
		s.idle -= int64(q.emission) // it did not happen
		s.free = 0
		s.refusing = max(s.refusing, now+int64(verdict.Wait))
	default:
		s.free = verdict.Left / nextShare
	}
}
