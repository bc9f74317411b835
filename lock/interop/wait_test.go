//go:build interop

package interop_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/lock"
)

// rounds is how often a wake-up is measured; each must come by message.
const rounds = 20

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
	b := setup(t, longLease)
	for _, n := range names {
		t.Run(n.lock, func(t *testing.T) {
			t.Parallel()
			holder := b.java.thread(n.lock)
			var took []time.Duration
			for range rounds {
				holder.lock(t, n.lock)
				if lease, err := b.locks.Mutex(n.lock).TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
					t.Fatalf("TryLock while Java holds gave %v, error %v; want ErrHeld", lease, err)
				}
				waiting := begin(t, b.locks.Mutex(n.lock), lock.Wait(patience))
				b.waitForWaiters(t, n.channel, 1)
				java := b.wantHolds(t, n.lock, 1)

				released := time.Now()
				holder.unlock(t, n.lock)
				lease, at := waiting.lease(t)
				took = append(took, at.Sub(released))

				if goes := b.wantHolds(t, n.lock, 1); goes == java {
					t.Fatalf("both sides are called %s", goes)
				}
				mustUnlock(t, lease)
				b.wantHolds(t, n.lock, 0)
			}
			wantByMessage(t, "Java's unlock to Go's lock", took)
		})
	}
}

func TestGoHoldsJavaWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, longLease)
	for _, n := range names {
		t.Run(n.lock, func(t *testing.T) {
			t.Parallel()
			waiter := b.java.thread(n.lock)
			// The names are in use by the test above.
			name, channel := n.lock+"-", strings.Replace(n.channel, n.lock, n.lock+"-", 1)
			var took []time.Duration
			for range rounds {
				lease := mustLock(t, b.locks.Mutex(name))
				waiter.wantBusy(t, name)
				waiting := waiter.begin(t, "try", "plain", name, patience.Milliseconds(), -1)
				b.waitForWaiters(t, channel, 1)

				released := time.Now()
				mustUnlock(t, lease)
				at := waiting.want(t, "true")
				took = append(took, at.Sub(released))

				waiter.begin(t, "mine", "plain", name).want(t, "true")
				b.wantHolds(t, name, 1)
				waiter.unlock(t, name)
				b.wantHolds(t, name, 0)
			}
			wantByMessage(t, "Go's unlock to Java's lock", took)
		})
	}
}

// wantByMessage checks that wake-ups came by message, and reports how long they took.
func wantByMessage(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	longest := took[len(took)-1]
	t.Logf("%s: median %v, longest %v of %d", what, took[len(took)/2], longest, len(took))
	if longest > byMessage {
		t.Errorf("%s took %v, want a message's time, at most %v", what, longest, byMessage)
	}
}

// TestBudgets: who waits in vain gives up in time, and leaves nothing behind.
func TestBudgets(t *testing.T) {
	t.Parallel()
	b := setup(t, longLease)
	const budget = 200 * time.Millisecond
	name := name(t)
	holder, waiter := b.java.thread("holder"), b.java.thread("waiter")

	holder.lock(t, name)
	start := time.Now()
	_, err := b.locks.Mutex(name).Lock(t.Context(), lock.Wait(budget))
	if took := time.Since(start); !errors.Is(err, lock.ErrTimeout) || took < budget || took > budget+byMessage {
		t.Fatalf("Lock gave up after %v with %v, want ErrTimeout after %v", took, err, budget)
	}
	holder.unlock(t, name)
	b.wantHolds(t, name, 0)

	lease := mustLock(t, b.locks.Mutex(name))
	start = time.Now()
	at := waiter.begin(t, "try", "plain", name, budget.Milliseconds(), -1).want(t, "false")
	if took := at.Sub(start); took < budget {
		t.Fatalf("Java gave up after %v, want %v", took, budget)
	}
	mustUnlock(t, lease)
	b.wantHolds(t, name, 0)
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 0)
}

// TestTurns: a Java waiter gets its turn although Go has a line of waiters of its own, and the other way round.
func TestTurns(t *testing.T) {
	t.Parallel()
	b := setup(t, longLease)
	name := name(t)
	m := b.locks.Mutex(name)
	lease := mustLock(t, m)
	waiting := b.java.thread("waiter").begin(t, "try", "plain", name, patience.Milliseconds(), -1)
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
				mine, err := m.Lock(t.Context(), lock.Wait(patience))
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
	start := time.Now()
	mustUnlock(t, lease)
	at := waiting.want(t, "true")
	close(stop)
	b.java.thread("waiter").unlock(t, name)
	turns := 0
	for range goroutines {
		turns += <-done
	}
	t.Logf("Java had its turn after %v; Go had %d turns", at.Sub(start), turns)
	b.wantHolds(t, name, 0)
}

// TestMessages: both sides say the same word on the same channel when they free a lock, and nothing before.
func TestMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, longLease)
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
		select {
		case message := <-listener.Channel():
			if message.Payload != want {
				t.Fatalf("the message is %q, want %q", message.Payload, want)
			}
		case <-time.After(patience):
			t.Fatalf("no message within %v, want %q", patience, want)
		}
	}
}
