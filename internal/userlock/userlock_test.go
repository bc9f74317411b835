package userlock

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/parts"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
	"seckill/model"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// newUserLocks makes locks in memory with a lease of one second.
func newUserLocks(t *testing.T) userLocks {
	t.Helper()
	client := lock.New(lock.NewMemoryStore(), lock.WatchdogLease(time.Second))
	t.Cleanup(func() { check.Must(t, client.Close(context.Background())) })
	return func(name string) lock.Locker { return client.Mutex(name) }
}

func TestUserLockOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := newUserLocks(t)
		request, hangUp := context.WithCancel(t.Context())
		lease, err := locks.Lock(request, "lock:order:alice", time.Second)
		check.Must(t, err)
		hangUp()
		<-time.After(10 * time.Second) // ten leases
		check.Is(t, "the lease after its request", lease.Context().Err(), nil)
		check.Is(t, "another request", check.ErrorOf(locks.Lock(t.Context(), "lock:order:alice", 0)), model.ErrLockBusy)
		check.Must(t, lease.Unlock())
		check.Must(t, check.Value(locks.Lock(t.Context(), "lock:order:alice", 0))(t).Unlock())
	})
}

// Redis' clock ran ahead under a lock: the dead holder's lock ends after a lease, a Java holder's longer one stays.
func TestAClockThatWasAheadKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	const lease, ahead = time.Minute, time.Hour
	client := redis.NewClient(check.Value(redis.ParseURL(testserver.SharedRedis(t)))(t))
	t.Cleanup(func() { _ = client.Close() })
	instance := func(mode model.LockMode) model.Locker {
		log := slog.New(slog.DiscardHandler)
		running := parts.New(log)
		t.Cleanup(func() { running.Close(context.Background(), check.Deadline) })
		locks, _, err := Open(Options{Mode: mode, Lease: lease, Redis: client, Parts: running, Log: log})
		check.Must(t, err)
		return locks
	}
	left := func(key string, ask model.Locker, name string) time.Duration {
		check.Equal(t, key+": its lease could be prolonged", client.PExpire(t.Context(), key, ahead).Val(), true)
		check.Is(t, key+": another instance", check.ErrorOf(ask.Lock(t.Context(), name, 0)), model.ErrLockBusy)
		return client.PTTL(t.Context(), key).Val()
	}
	for mode, prefix := range map[model.LockMode]string{model.LockRedis: "", model.LockSetNX: setNXPrefix} {
		name := "lock:order:" + rand.Text()
		dead := check.Value(instance(mode).Lock(t.Context(), name, 0))(t)
		rest := left(prefix+name, instance(mode), name)
		check.That(t, rest > 0 && rest <= lease, "%s: %s are left of a lease of %s", mode, rest, lease)
		check.Must(t, dead.Unlock())
	}
	java := "lock:order:" + rand.Text()
	check.Must(t, client.HSet(t.Context(), java, "285475da-9152-4c83-822a-67ee2f116a79:52", 1).Err())
	rest := left(java, instance(model.LockRedis), java)
	check.That(t, rest > lease, "%s are left of a Java holder's hour", rest)
	check.Must(t, client.Del(t.Context(), java).Err())
}

func TestRequestThatEndsWhileItWaitsForItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := newUserLocks(t)
		lease, err := locks.Lock(t.Context(), "lock:order:alice", 0)
		check.Must(t, err)
		request, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := locks.Lock(request, "lock:order:alice", time.Minute); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, model.ErrLockBusy) {
			t.Errorf("got %v, want the deadline of the request", err)
		}
		check.Equal(t, "how long it waited", time.Since(began), 100*time.Millisecond)
		check.Must(t, lease.Unlock())
	})
}
