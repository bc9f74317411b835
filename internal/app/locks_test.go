package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"seckill/lock"
	"seckill/model"
)

// newUserLocks makes locks in memory with a lease of one second.
func newUserLocks(t *testing.T) userLocks {
	t.Helper()
	client := lock.New(lock.NewMemoryStore(), lock.WatchdogLease(time.Second))
	t.Cleanup(func() {
		if err := client.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return func(name string) lock.Locker { return client.Mutex(name) }
}

func TestUserLockOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := newUserLocks(t)
		request, hangUp := context.WithCancel(t.Context())
		lease, err := locks.Lock(request, "lock:order:alice", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		hangUp()
		<-time.After(10 * time.Second) // ten leases
		if err := lease.Context().Err(); err != nil {
			t.Errorf("the lease ended with its request: %v", err)
		}
		if _, err := locks.Lock(t.Context(), "lock:order:alice", 0); !errors.Is(err, model.ErrLockBusy) {
			t.Errorf("another request got %v, want ErrLockBusy", err)
		}
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
		again, err := locks.Lock(t.Context(), "lock:order:alice", 0)
		if err != nil {
			t.Fatalf("after the unlock: %v", err)
		}
		if err := again.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

func TestRequestThatEndsWhileItWaitsForItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := newUserLocks(t)
		lease, err := locks.Lock(t.Context(), "lock:order:alice", 0)
		if err != nil {
			t.Fatal(err)
		}
		request, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := locks.Lock(request, "lock:order:alice", time.Minute); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, model.ErrLockBusy) {
			t.Errorf("got %v, want the deadline of the request", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it waited %v for a request that had ended", took)
		}
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
