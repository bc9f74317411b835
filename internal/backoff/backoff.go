// Package backoff makes those who fail wait, longer each time, never for good. An attempt counts as a failure from its
// beginning, so that many at once do not pass for one; it is taken back when it turns out not to have failed.
package backoff

import (
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Policy is how long a key waits: after Free failures First, doubling up to Longest. Forget drops one each time.
type Policy struct {
	Free    int
	First   time.Duration
	Longest time.Duration
	Forget  time.Duration
}

// Failures counts the failures of many keys, and forgets the quietest beyond its room. Safe for concurrent use.
type Failures struct {
	policy Policy
	most   float64 // failures that are remembered: the wait grows no further
	now    func() time.Time

	mu   sync.Mutex
	keys *lru.Cache[string, *record]
}

type record struct {
	failures float64 // as of counted
	counted  time.Time
	until    time.Time // the key waits until then
}

// New counts failures of at most size keys, some 200 bytes each, by a clock. It panics if that is none.
func New(policy Policy, size int, now func() time.Time) *Failures {
	keys, err := lru.New[string, *record](size)
	if err != nil {
		panic(err)
	}
	f := &Failures{policy: policy, now: now, keys: keys, most: float64(policy.Free + 1)}
	for wait := policy.First; wait < policy.Longest; wait *= 2 {
		f.most++
	}
	return f
}

// Wait tells how long until a key may try again; zero is now.
func (f *Failures) Wait(key string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.keys.Peek(key)
	if !ok {
		return 0
	}
	return max(known.until.Sub(f.now()), 0)
}

// Clean reports whether a key has no failure that is not forgotten.
func (f *Failures) Clean(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.keys.Peek(key)
	return !ok || f.remembered(known, f.now()) <= 0
}

// Attempt is one that was counted.
type Attempt struct {
	key   string
	until time.Time // what the key waits for because of this attempt; zero: nothing
}

// Begin counts an attempt of a key as failed.
func (f *Failures) Begin(key string) Attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	known, ok := f.keys.Get(key)
	if !ok {
		known = &record{}
		f.keys.Add(key, known)
	}
	known.failures = min(f.remembered(known, now)+1, f.most)
	known.counted = now
	attempt := Attempt{key: key}
	if wait := f.wait(known.failures); wait > 0 {
		attempt.until = now.Add(wait)
		known.until = attempt.until
	}
	return attempt
}

// TakeBack says that an attempt did not fail. The wait it began ends.
func (f *Failures) TakeBack(attempt Attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.keys.Peek(attempt.key)
	if !ok {
		return
	}
	now := f.now()
	known.failures, known.counted = max(f.remembered(known, now)-1, 0), now
	if known.until.Equal(attempt.until) {
		known.until = time.Time{}
	}
}

// remembered are the failures that are left of those that were counted.
func (f *Failures) remembered(known *record, now time.Time) float64 {
	forgotten := now.Sub(known.counted).Seconds() / f.policy.Forget.Seconds()
	return max(known.failures-max(forgotten, 0), 0)
}

func (f *Failures) wait(failures float64) time.Duration {
	beyond := int(math.Ceil(failures)) - f.policy.Free // one that is half forgotten still counts
	if beyond <= 0 {
		return 0
	}
	return Doubled(f.policy.First, f.policy.Longest, beyond-1)
}

// Doubled is a wait doubled so many times, and at most the longest: behind attempt n from 0. Negative is none.
func Doubled(first, longest time.Duration, times int) time.Duration {
	for wait := first; wait < longest; wait *= 2 {
		if times--; times < 0 {
			return wait
		}
	}
	return longest
}
