package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

// The fifteen ways in which locks are known to go wrong, each on real Redis
// servers. The comment of each test names the line it guards: with that line
// gone the test was seen to fail.

// spy passes everything on to a store and lets a test look or step in.
type spy struct {
	lock.Store
	renewals atomic.Int64
	onWatch  func()
}

func (s *spy) Renew(ctx context.Context, rs []lock.Request) []error {
	s.renewals.Add(1)
	return s.Store.Renew(ctx, rs)
}

func (s *spy) Watch(name string, wake func()) lock.Watch {
	if s.onWatch != nil {
		s.onWatch()
	}
	return s.Store.Watch(name, wake)
}

// A reply is lost after the acquire ran; go-redis sends it again. The count is
// 1 all the same. Guard: acquire.lua writes holds, it does not add 1.
func TestTrap01AcquireReplyLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := locksOn(t, plain(t, b.url())).Mutex("k")
	mustUnlock(t, mustLock(t, t.Context(), m)) // connections and scripts are there

	b.line.CutReplies()
	got := make(chan *lock.Lease, 1)
	go func() {
		lease, err := m.Lock(t.Context(), lock.Wait(5*time.Second))
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	eventually(t, 5*time.Second, "the acquire ran", func() bool { return b.direct.Exists(t.Context(), "k").Val() == 1 })
	b.line.Heal()
	lease := <-got
	if lease == nil {
		return
	}
	for holder, count := range b.direct.HGetAll(t.Context(), "k").Val() {
		if count != "1" {
			t.Errorf("%s counts %s", holder, count)
		}
	}
	mustUnlock(t, lease)
	if b.direct.Exists(t.Context(), "k").Val() != 0 {
		t.Error("the lock is still there after its unlock")
	}
}

// An unlock is repeated because its reply was lost. It answers what the first
// one answered, though somebody else has the lock by now. Guard: the latch, get
// latch in release.lua.
func TestTrap02UnlockReplyLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := locksOn(t, plain(t, b.url())).Mutex("k")
	mustUnlock(t, mustLock(t, t.Context(), m)) // connections and scripts are there
	lease := mustLock(t, t.Context(), m)
	b.line.CutReplies()
	done := make(chan error, 1)
	go func() { done <- lease.Unlock() }()
	other := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex("k"))
	b.line.Heal()
	if err := <-done; err != nil {
		t.Errorf("the owner was told: %v", err)
	}
	mustUnlock(t, other)
}

// The lock is released after a waiter tried and before its subscription is
// there: no message will come. Guard: receive wakes the watchers when a
// subscription is confirmed, so that they try once more.
func TestTrap03LostWakeUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lease := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex("k"))
	store := &spy{Store: lock.NewRedisStore(b.direct)}
	store.onWatch = sync.OnceFunc(func() { mustUnlock(t, lease) })
	waiter := newLocks(t, store, lock.PollEvery(time.Hour), lock.ProbeEvery(time.Hour)).Mutex("k")
	next, err := waiter.Lock(t.Context(), lock.Wait(3*time.Second))
	if err != nil {
		t.Fatalf("the waiter slept on: %v", err)
	}
	mustUnlock(t, next)
}

// The same in memory, where nothing confirms a subscription. Guard: wake in
// MemoryStore.Watch.
func TestTrap03LostWakeUpInMemory(t *testing.T) {
	t.Parallel()
	memory := lock.NewMemoryStore()
	lease := mustLock(t, t.Context(), newLocks(t, memory).Mutex("k"))
	store := &spy{Store: memory}
	store.onWatch = sync.OnceFunc(func() { mustUnlock(t, lease) })
	waiter := newLocks(t, store, lock.PollEvery(time.Hour), lock.ProbeEvery(time.Hour)).Mutex("k")
	next, err := waiter.Lock(t.Context(), lock.Wait(3*time.Second))
	if err != nil {
		t.Fatalf("the waiter slept on: %v", err)
	}
	mustUnlock(t, next)
}

// The key is deleted, or everything flushed, under a waiter: nobody publishes
// anything. Guard: look sets the timer to the probe interval, not to the TTL.
func TestTrap04KeyGone(t *testing.T) {
	t.Parallel()
	for what, remove := range map[string]func(context.Context, *redis.Client) error{
		"deleted": func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, "k").Err() },
		"flushed": func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			first := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex("k"), lock.LeaseTime(time.Minute))
			got := make(chan error, 1)
			go func() {
				lease, err := locksOn(t, b.direct).Mutex("k").Lock(t.Context(), lock.Wait(5*time.Second))
				if err == nil {
					if lease.Token() <= first.Token() {
						err = fmt.Errorf("token %d after %d", lease.Token(), first.Token())
					} else {
						err = lease.Unlock()
					}
				}
				got <- err
			}()
			eventually(t, 5*time.Second, "the waiter waits", func() bool { return subscribed(t, b.direct, "k") == 1 })
			if err := remove(t.Context(), b.direct); err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Errorf("the waiter slept out the TTL of a key that is gone: %v", err)
			}
			if err := first.Unlock(); !errors.Is(err, lock.ErrLost) {
				t.Errorf("the first holder: %v", err)
			}
		})
	}
}

func subscribed(t testing.TB, c *redis.Client, name string) int64 {
	t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	return c.PubSubNumSub(context.Background(), channel).Val()[channel]
}

// A renewal fails: the watchdog goes on. It is told "not the owner": the lease
// ends at once. Guards in keeper.renew: again after an error; lose when !there.
func TestTrap05RenewalFails(t *testing.T) {
	t.Parallel()
	const leaseTime = 900 * time.Millisecond
	b := newBench(t)
	undisturbed(t, leaseTime, "k", func(name string) error {
		failed := make(chan struct{}, 100)
		log := slog.New(onMessage{"locks could not be renewed, trying again", failed})
		locks := locksOn(t, dial(t, b.url()), lock.WatchdogLease(leaseTime), lock.Logger(log))
		lease, err := take(t.Context(), locks.Mutex(name))
		if err != nil {
			return err
		}
		b.line.CutReplies()
		select {
		case <-failed:
		case <-lease.Context().Done():
		}
		b.line.Heal()
		failedAt := time.Now()
		eventually(t, 5*time.Second, "a renewal behind the failed one", func() bool {
			return lease.Context().Err() != nil || lease.ValidUntil().After(failedAt.Add(leaseTime))
		})
		if err := context.Cause(lease.Context()); err != nil {
			return fmt.Errorf("one failed renewal ended the lease: %w", err)
		}
		start := time.Now()
		if err := b.direct.Del(t.Context(), name).Err(); err != nil {
			t.Fatal(err)
		}
		<-lease.Context().Done()
		took := time.Since(start)
		if !errors.Is(lease.Unlock(), lock.ErrLost) {
			t.Error("the unlock must report the loss")
		}
		if took > 2*leaseTime/3 {
			return fmt.Errorf("the loss was told after %s of a renewal interval of %s", took, leaseTime/3)
		}
		return nil
	})
}

// onMessage is a log handler that tells when a message is logged.
type onMessage struct {
	message string
	seen    chan<- struct{}
}

func (o onMessage) Enabled(context.Context, slog.Level) bool { return true }
func (o onMessage) WithAttrs([]slog.Attr) slog.Handler       { return o }
func (o onMessage) WithGroup(string) slog.Handler            { return o }

func (o onMessage) Handle(_ context.Context, r slog.Record) error {
	if r.Message == o.message {
		select {
		case o.seen <- struct{}{}:
		default:
		}
	}
	return nil
}

// No renewal is sent after Unlock, even one that could not reach Redis. Guards:
// h.end before free in unlockNow; behind it, what remove does for the last
// watchdog, and wanted. (Red with all three gone.)
func TestTrap06RenewalOutlivesUnlock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := &spy{Store: lock.NewRedisStore(dial(t, b.url()), lock.CallTimeout(500*time.Millisecond))}
	const leaseTime = 600 * time.Millisecond
	locks := newLocks(t, store, lock.WatchdogLease(leaseTime), lock.UnlockTimeout(700*time.Millisecond))
	var lease *lock.Lease
	var name string
	undisturbed(t, leaseTime, "k", func(attempt string) (err error) {
		name = attempt
		before := store.renewals.Load()
		if lease, err = take(t.Context(), locks.Mutex(name)); err != nil {
			return err
		}
		eventually(t, 5*time.Second, "a renewal", func() bool { return store.renewals.Load() > before || lease.Context().Err() != nil })
		return context.Cause(lease.Context())
	})
	b.line.Hole()
	started := store.renewals.Load()
	if err := lease.Unlock(); err == nil {
		t.Error("an unlock through a hole succeeded")
	}
	if n := store.renewals.Load() - started; n > 1 { // one may have been under way
		t.Errorf("%d renewals during the unlock", n)
	}
	after := store.renewals.Load()
	b.line.Heal()
	sleepFor(t.Context(), leaseTime)
	if n := store.renewals.Load() - after; n > 0 {
		t.Errorf("%d renewals after the unlock", n)
	}
	eventually(t, 5*time.Second, "the lock is free", func() bool { return b.direct.Exists(context.Background(), name).Val() == 0 })
}
