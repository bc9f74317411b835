//go:build interop

//part:interop

package interop_test

import (
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/lock"
)

// rounds is how often a waiter is woken; each time by message, for without one it would sleep on.
const rounds = 10

// names are what locks may be called, each with the channel Redisson has for it.
var names = []struct{ lock, channel string }{
	{"lock:order:42", "redisson_lock__channel:{lock:order:42}"}, // the service's own, for the user 42
	{"interop:plain", "redisson_lock__channel:{interop:plain}"},
	{"interop:{tag}:1", "redisson_lock__channel:interop:{tag}:1"},
	{"interop:{open", "redisson_lock__channel:interop:{open"},
	{"锁:ÿ:%2F\\", "redisson_lock__channel:{锁:ÿ:%2F\\}"},
}

func TestJavaHoldsGoWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	for _, n := range names {
		t.Run(n.lock, func(t *testing.T) {
			t.Parallel()
			holder := b.java.thread(n.lock)
			for range rounds {
				holder.lock(t, n.lock)
				check.Is(t, "TryLock while Java holds", check.ErrorOf(b.locks.Mutex(n.lock).TryLock(t.Context())), lock.ErrHeld)
				waiting := begin(t, b.locks.Mutex(n.lock), lock.Wait(check.Deadline))
				b.waitForWaiters(t, n.channel, 1)
				java := b.wantHolds(t, n.lock, 1)

				holder.unlock(t, n.lock)
				lease := waiting.lease(t)
				if goes := b.wantHolds(t, n.lock, 1); goes == java {
					t.Fatalf("both sides are called %s", goes)
				}
				mustUnlock(t, lease)
				b.wantHolds(t, n.lock, 0)
			}
		})
	}
}

func TestGoHoldsJavaWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	for _, n := range names {
		t.Run(n.lock, func(t *testing.T) {
			t.Parallel()
			waiter := b.java.thread(n.lock)
			// The names are in use by the test above.
			name, channel := n.lock+"-", strings.Replace(n.channel, n.lock, n.lock+"-", 1)
			for range rounds {
				lease := mustLock(t, b.locks.Mutex(name))
				waiter.wantBusy(t, name)
				waiting := waiter.begin(t, "try", "plain", name, check.Deadline.Milliseconds(), -1)
				b.waitForWaiters(t, channel, 1)

				mustUnlock(t, lease)
				waiting.want(t, "true")

				waiter.begin(t, "mine", "plain", name).want(t, "true")
				b.wantHolds(t, name, 1)
				waiter.unlock(t, name)
				b.wantHolds(t, name, 0)
			}
		})
	}
}

// TestBudgets: a caller that does not get the lock in time gives up, and leaves nothing behind.
func TestBudgets(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	name := name(t)
	holder, waiter := b.java.thread("holder"), b.java.thread("waiter")

	holder.lock(t, name)
	check.Is(t, "Go's lock", check.ErrorOf(b.locks.Mutex(name).Lock(t.Context(), lock.Wait(check.Soon))), lock.ErrTimeout)
	holder.unlock(t, name)
	b.wantHolds(t, name, 0)

	lease := mustLock(t, b.locks.Mutex(name))
	waiter.begin(t, "try", "plain", name, check.Soon.Milliseconds(), -1).want(t, "false")
	mustUnlock(t, lease)
	b.wantHolds(t, name, 0)
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 0)
}

// TestTurns: a Java waiter gets its turn although Go has a line of waiters of its own, and the other way round.
func TestTurns(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	name := name(t)
	m := b.locks.Mutex(name)
	lease := mustLock(t, m)
	waiting := b.java.thread("waiter").begin(t, "try", "plain", name, check.Deadline.Milliseconds(), -1)
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 1)

	// Go's waiters take the lock again and again, one after the other, until Java has had it.
	const goroutines = 8
	done := make(chan int, goroutines)
	stop := make(chan struct{})
	for range goroutines {
		go func() {
			turns := 0
			defer func() { done <- turns }()
			for {
				mine, err := m.Lock(t.Context(), lock.Wait(check.Deadline))
				if err != nil {
					t.Error(err)
					return
				}
				turns++
				if err := mine.Unlock(); err != nil {
					t.Error(err)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 2)
	mustUnlock(t, lease)
	waiting.want(t, "true")
	close(stop)
	b.java.thread("waiter").unlock(t, name)
	turns := 0
	for range goroutines {
		turns += <-done
	}
	t.Logf("Java had its turn; Go had %d turns", turns)
	b.wantHolds(t, name, 0)
}

// TestMessages: both sides say the same word on the same channel when they free a lock, and nothing before.
func TestMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	name := name(t)
	channel := "redisson_lock__channel:{" + name + "}"
	listener := b.redis.Subscribe(t.Context(), channel)
	t.Cleanup(func() { _ = listener.Close() })
	b.waitForWaiters(t, channel, 1)

	owner := b.java.thread("owner")
	owner.lock(t, name)
	owner.lock(t, name)
	owner.unlock(t, name)
	owner.unlock(t, name)
	mustUnlock(t, mustLock(t, b.locks.Mutex(name)))
	if err := b.redis.Publish(t.Context(), channel, "end").Err(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0", "0", "end"} {
		check.Equal(t, "the message", check.Receive(t, "a message", listener.Channel()).Payload, want)
	}
}
