//go:build interop

package interop_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"seckill/lock"
)

// TestWhatWakingTakes takes apart how long Go waits after Java was told to unlock: until Java begins, until the
// message that lets Go in has come to this process (by a subscription of the test's own), and until Go has the lock.
// Only the last part is this package's. The first unlock of each kind is shown by itself: the JVM loads and
// interprets code then.
func TestWhatWakingTakes(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		name, java string
		lock       func(p parts, name string) lock.Locker
		least      int // messages that let a waiter in
	}{
		{"one lock", "plain", func(p parts, name string) lock.Locker { return p.looks[0].locks.Mutex(name) }, 1},
		{"MultiLock", "multi", func(p parts, name string) lock.Locker { return p.lock(lock.All, name) }, 3},
		{"RedLock", "red", func(p parts, name string) lock.Locker { return p.lock(lock.Majority, name) }, 2},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			p := setupParts(t)
			name := name(t)
			messages := p.listen(t, name)
			var begins, comes, apart, takes, all []time.Duration
			for range rounds {
				ordered, began, at := p.wake(t, k.lock(p, name), k.java, name, k.least)
				message := messages.since(t, ordered, k.least)
				begins = append(begins, began.Sub(ordered))
				comes = append(comes, message.Sub(began))
				apart = append(apart, message.Sub(messages.since(t, ordered, 1)))
				takes = append(takes, at.Sub(message))
				all = append(all, at.Sub(ordered))
			}
			for _, part := range []struct {
				what string
				took []time.Duration
			}{{"order → Java's unlock begins", begins}, {"→ the message is here", comes}, {"  after the first one", apart}, {"→ Go has the lock", takes}} {
				t.Logf("%-30s %s", part.what, spread(part.took))
			}
			wantByMessage(t, "Java's unlock to Go's lock", all)
		})
	}
}

// spread shows the first one, and the least, the median and the longest of the others.
func spread(took []time.Duration) string {
	first, others := took[0], slices.Sorted(slices.Values(took[1:]))
	return fmt.Sprintf("first %v; then least %v, median %v, longest %v", first, others[0], others[len(others)/2], others[len(others)-1])
}

// wake has Java unlock what Go waits for. It returns when Java was told to, when it began, and when Go had the lock.
func (p parts) wake(t *testing.T, l lock.Locker, kind, name string, least int) (ordered, began, at time.Time) {
	t.Helper()
	java := p.java.thread("holder")
	java.begin(t, "lock", kind, name, -1).want(t, "")
	p.wantHeld(t, name, least)
	waiting := begin(t, l, lock.Wait(patience))
	for i, b := range p.looks {
		if kind != "plain" || i == 0 {
			b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 2) // and the test itself
		}
	}
	ordered = time.Now()
	a := java.begin(t, "timedunlock", kind, name).wait(t)
	var start, end int64
	if _, err := fmt.Sscanf(a.value, "%d %d", &start, &end); err != nil {
		t.Fatalf("Java unlocked with %q, error %q", a.value, a.err)
	}
	lease, at := waiting.lease(t)
	mustUnlock(t, lease)
	return ordered, time.UnixMicro(start), at
}

// arrivals are the times at which unlock messages came to this process.
type arrivals struct {
	mu    sync.Mutex
	times []time.Time
}

// listen takes note of a lock's messages, by subscriptions of its own.
func (p parts) listen(t *testing.T, name string) *arrivals {
	t.Helper()
	all := &arrivals{}
	for _, b := range p.looks {
		listener := b.redis.Subscribe(t.Context(), "redisson_lock__channel:{"+name+"}")
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for range listener.Channel() {
				all.mu.Lock()
				all.times = append(all.times, time.Now())
				all.mu.Unlock()
			}
		}()
	}
	return all
}

// since returns when the nth message after start came.
func (a *arrivals) since(t *testing.T, start time.Time, nth int) time.Time {
	t.Helper()
	var later []time.Time
	eventually(t, "the messages of an unlock", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		later = slices.DeleteFunc(slices.Clone(a.times), start.After)
		return len(later) >= nth
	})
	slices.SortFunc(later, time.Time.Compare)
	return later[nth-1]
}
