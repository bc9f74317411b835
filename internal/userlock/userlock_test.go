package userlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/model"
)

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

func TestRequestThatEndsWhileItWaitsForItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := newUserLocks(t)
		lease, err := locks.Lock(t.Context(), "lock:order:alice", 0)
		check.Must(t, err)
		request, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := locks.Lock(request, "lock:order:alice", time.Minute); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, model.ErrLockBusy) {
			t.Errorf("got %v, want the deadline of the request", err)
		}
		check.Equal(t, "how long it waited", time.Since(began), 100*time.Millisecond)
		check.Must(t, lease.Unlock())
	})
}
