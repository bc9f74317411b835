package testserver

import (
	"context"
	"sync"
	"testing"
	"time"
)

const (
	// patience is how long an event is waited for: far longer than it takes on a busy machine under the race
	// detector.
	patience = 30 * time.Second
	// lookAgain is between two looks: short against everything that takes time, long against a busy loop.
	lookAgain = 5 * time.Millisecond
)

// Eventually waits until something is so that becomes so by itself, and fails the test when it does not.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	eventually(t, patience, what, holds)
}

func eventually(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("it never happened: %s", what)
		case <-again.C:
		}
	}
}

// Must fails the test at once when there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Value is what a call has returned, for the test that it is handed to: an error fails it at once.
//
//	order := testserver.Value(orders.Get(ctx, id))(t)
func Value[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Must(t, err)
		return value
	}
}

// ErrorOf is the error of a call whose value does not matter.
func ErrorOf[T any](_ T, err error) error { return err }

// Equal checks that something is what it has to be.
func Equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Volley runs n calls at the same instant, and returns when all are done.
func Volley(n int, call func(i int)) {
	gun := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-gun
			call(i)
		})
	}
	close(gun)
	wg.Wait()
}

// Within bounds a call that must not take longer.
func Within(t testing.TB, limit time.Duration, call func(context.Context)) {
	t.Helper()
	began := time.Now()
	call(t.Context())
	if took := time.Since(began); took > limit {
		t.Errorf("took %s, want at most %s", took, limit)
	}
}
