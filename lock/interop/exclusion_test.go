//go:build interop

//part:interop

package interop_test

import (
	"strconv"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/lock"
)

// TestExclusion adds to one number from threads of Java and goroutines of Go, each by reading and writing it
// under the lock. A single moment with two holders may lose an addition.
func TestExclusion(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	const (
		threads    = 4 // and as many goroutines
		additions  = 150
		wantNumber = 2 * threads * additions
	)
	name := name(t)
	number := name + ":number"
	if err := b.redis.Set(t.Context(), number, 0, 0).Err(); err != nil {
		t.Fatal(err)
	}

	orders := make([]order, threads)
	for i := range orders {
		orders[i] = b.java.thread("adder"+strconv.Itoa(i)).begin(t, "add", "plain", name, number, additions)
	}
	done := make(chan error, threads)
	for range threads {
		go func() { done <- add(t, b, name, number, additions) }()
	}
	for range threads {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, o := range orders {
		o.want(t, "")
	}
	if got, err := b.redis.Get(t.Context(), number).Int(); err != nil || got != wantNumber {
		t.Errorf("the number is %d, error %v; want %d", got, err, wantNumber)
	}
	b.wantHolds(t, name, 0)
}

func add(t testing.TB, b both, name, number string, count int) error {
	t.Helper()
	for range count {
		lease, err := b.locks.Mutex(name).Lock(t.Context(), lock.Wait(check.Deadline))
		if err != nil {
			return err
		}
		was, err := b.redis.Get(lease.Context(), number).Int()
		if err != nil {
			return err
		}
		if err := b.redis.Set(lease.Context(), number, was+1, 0).Err(); err != nil {
			return err
		}
		if err := lease.Unlock(); err != nil {
			return err
		}
	}
	return nil
}
