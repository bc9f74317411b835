package lock

import (
	"context"
	"time"
)

// The budgets of time. Every other span of this package is derived from one of them by name, where it is used.
const (
	// tick is the granularity with which Redis expires keys.
	tick = time.Millisecond
	// swiftly is less than go-redis's pause before it repeats (8 ms): no copy is under way after so fast an answer.
	swiftly = 5 * time.Millisecond
	// moment is several round trips to a healthy store.
	moment = 20 * time.Millisecond
	// defaultPoll is how often the first waiter asks without messages: its most loss, 20 requests a second a lock.
	defaultPoll = 50 * time.Millisecond
	// defaultProbe is how often it asks beside messages, because a deleted key sends none: twice a second a lock.
	defaultProbe = 500 * time.Millisecond
	// defaultCallTimeout bounds one call to a store. A slower lock is of no use to an interactive caller.
	defaultCallTimeout = 2 * time.Second
	// defaultLease is Redisson's lockWatchdogTimeout: three renewals fit in, and one can wait for it after a crash.
	defaultLease = 30 * time.Second
	// retention is how long a token outlives its lock: longer than a server's clock is ever set back by.
	retention = time.Hour
)

// never is the first setting of a timer that is reset before it is waited for.
const never = retention

// validUntil is when a lease asked for at sent, before the store counts, can no longer be relied on. The drift is 1 %
// for clocks of different speeds, and two ticks for expiry in Redis and timers here (as in Redlock).
func validUntil(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - lease/100 - 2*tick)
}

// sleep waits for d, or until ctx ends, and then returns false.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff is the pauses between attempts. They double: a store that comes back is not met by all at once.
type backoff struct{ shortest, longest, next time.Duration }

func (b *backoff) sleep(ctx context.Context) bool {
	d := max(b.next, b.shortest)
	b.next = min(2*d, b.longest)
	return sleep(ctx, d)
}

// bell wakes one goroutine, at once or when it looks next.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}
