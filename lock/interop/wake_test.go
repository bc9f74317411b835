//go:build interop

//part:interop

package interop_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
)

// BenchmarkWhatWakingTakes splits the time that Go waits after Java was told to unlock, in medians: until Java begins,
// until the message that lets Go in has come to this process (by a subscription of its own), and until Go has the lock.
// Only the last part is this package's. (-benchtime=20x; in the first of them the JVM loads and interprets code.)
func BenchmarkWhatWakingTakes(b *testing.B) {
	for _, k := range []struct {
		name, java string
		lock       func(p parts, name string) lock.Locker
		least      int // messages that let a waiter in
	}{
		{"one lock", "plain", func(p parts, name string) lock.Locker { return p.looks[0].locks.Mutex(name) }, 1},
		{"MultiLock", "multi", func(p parts, name string) lock.Locker { return p.lock(lock.All, name) }, 3},
		{"RedLock", "red", func(p parts, name string) lock.Locker { return p.lock(lock.Majority, name) }, 2},
	} {
		b.Run(k.name, func(b *testing.B) {
			p := setupParts(b)
			name := name(b)
			messages := p.listen(b, name)
			took := map[string][]time.Duration{}
			for b.Loop() {
				ordered, began, at := p.wake(b, k.lock(p, name), k.java, name, k.least)
				message := messages.since(b, ordered, k.least)
				took["begin"] = append(took["begin"], began.Sub(ordered))
				took["message"] = append(took["message"], message.Sub(began))
				took["lock"] = append(took["lock"], at.Sub(message))
			}
			for what, all := range took {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), what+"-µs")
			}
		})
	}
}

// wake has Java unlock what Go waits for. It returns when Java was told to, when it began, and when Go had the lock.
func (p parts) wake(t testing.TB, l lock.Locker, kind, name string, least int) (ordered, began, at time.Time) {
	t.Helper()
	java := p.java.thread("holder")
	java.begin(t, "lock", kind, name, -1).want(t, "")
	p.wantHeld(t, name, least)
	waiting := begin(t, l)
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
	lease := waiting.lease(t)
	at = time.Now()
	check.Must(t, lease.Unlock())
	return ordered, time.UnixMicro(start), at
}

// arrivals are the times at which unlock messages came to this process.
type arrivals struct {
	mu    sync.Mutex
	times []time.Time
}

// listen takes note of a lock's messages, by subscriptions of its own.
func (p parts) listen(t testing.TB, name string) *arrivals {
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
func (a *arrivals) since(t testing.TB, start time.Time, nth int) time.Time {
	t.Helper()
	var later []time.Time
	check.Eventually(t, "the messages of an unlock", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		later = slices.DeleteFunc(slices.Clone(a.times), start.After)
		return len(later) >= nth
	})
	slices.SortFunc(later, time.Time.Compare)
	return later[nth-1]
}
