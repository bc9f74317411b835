package lane

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/backoff"
	"seckill/internal/budget"
)

const (
	// firstPause is before the first retry of a key that failed by itself, whose callers wait. It grows to budget.Call.
	firstPause  = 2 * budget.Blink
	maxIsolated = 1000 // are remembered. Beyond that all are forgotten, and learnt again
)

// ErrResting refuses an item whose key failed a moment ago and is not to be tried now. Nothing was done.
var ErrResting = errors.New("lane: the key failed a moment ago and is not tried now")

// isolation remembers which keys have left the shared runs, and which are in one that takes long.
type isolation struct {
	any atomic.Bool // most items need not look further

	mu        sync.Mutex
	keys      map[string]*isolated
	swept     time.Time
	fruitless int // attempts in a row of keys by themselves in which nothing was done
}

type isolated struct {
	until    time.Time // when it may return
	ill      bool      // it has trouble of its own, which was told
	failures int       // attempts in a row
	next     time.Time // attempt
	busy     bool      // an attempt is under way
	cause    error     // of the latest failure
}

// look is what is known of an isolated key; there is nothing of one that shares runs.
func (i *isolation) look(key string) (known isolated, there bool) {
	if !i.any.Load() {
		return known, false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sweep()
	if found := i.keys[key]; found != nil && (found.busy || time.Now().Before(found.until)) {
		return *found, true
	}
	return known, false
}

// rest is how long a key's next attempt has to wait; zero or less: not at all.
func (k isolated) rest() time.Duration {
	switch {
	case k.failures == 0:
		return 0
	case k.busy:
		return max(time.Until(k.next), firstPause)
	}
	return time.Until(k.next)
}

// suspect gives a key runs of its own until it has shown whether it is well.
func (i *isolation) suspect(key string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.of(key, budget.Look)
}

// of is a key's isolation, which lasts a term at least. The caller holds the lock.
func (i *isolation) of(key string, term time.Duration) *isolated {
	i.sweep()
	known := i.keys[key]
	if known == nil {
		if len(i.keys) >= maxIsolated {
			clear(i.keys)
		}
		known = &isolated{}
		i.keys[key] = known
	}
	if until := time.Now().Add(term); until.After(known.until) {
		known.until = until
	}
	i.any.Store(true)
	return known
}

// leave gives a key in trouble runs of its own. Failed: an attempt at it failed, or only some of it was done. It reports
// whether the trouble is new, and whether it is the only such key.
func (i *isolation) leave(key string, cause error, failed, some bool) (news, first bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.of(key, budget.Step)
	if some {
		known.failures = 0
	}
	if failed {
		i.fruitless++
		known.busy, known.cause = false, cause
		known.next = time.Now().Add(backoff.Doubled(firstPause, budget.Call, known.failures))
		known.failures++
	}
	if some {
		i.fruitless = 0
	}
	if known.ill {
		return false, false
	}
	first = true
	for _, other := range i.keys {
		first = first && !other.ill
	}
	known.ill = true
	return true, first
}

// begin notes that a key is tried by itself, and returns how often in a row that has failed.
func (i *isolation) begin(key string) (failures int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if known := i.keys[key]; known != nil {
		known.busy = true
		failures = known.failures
	}
	return failures
}

// ended notes that an attempt at a key by itself has ended, and did not fail.
func (i *isolation) ended(key string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if known := i.keys[key]; known != nil {
		known.busy, known.failures = false, 0
	}
}

// succeeded notes a good attempt: it ends a suspicion, but not a term after trouble. True: the last key has recovered.
func (i *isolation) succeeded(key string) (recovered bool) {
	if !i.any.Load() {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fruitless = 0
	known := i.keys[key]
	if known == nil {
		return false
	}
	recovered = known.failures > 0
	known.ill = known.ill && !recovered
	known.busy, known.failures, known.cause = false, 0, nil
	if time.Until(known.until) <= budget.Look {
		delete(i.keys, key)
	}
	for _, other := range i.keys {
		recovered = recovered && other.failures == 0
	}
	return recovered
}

// away reports that fruitless keys in a row failed by themselves: all is away, so a suspect key need not be tried.
func (i *isolation) away(key string, fruitless int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.keys[key]
	if fruitless == 0 || i.fruitless < fruitless || known != nil && known.failures > 0 {
		return false
	}
	delete(i.keys, key)
	return true
}

// sweep forgets the keys whose term is over, now and then. The caller holds the lock.
func (i *isolation) sweep() {
	now := time.Now()
	if now.Sub(i.swept) < budget.Look {
		return
	}
	i.swept = now
	maps.DeleteFunc(i.keys, func(_ string, known *isolated) bool { return !known.busy && !now.Before(known.until) })
	if len(i.keys) == 0 {
		i.any.Store(false)
		i.fruitless = 0
	}
}

func (i *isolation) well() {
	if i.any.Load() {
		i.mu.Lock()
		i.fruitless = 0
		i.mu.Unlock()
	}
}
