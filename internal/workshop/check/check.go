// Package check holds what every test says in the same words: assertions, waiting for an event, the start gun, a log to
// look into, and how large a generated test is.
//
// No verdict depends on how busy the machine is. A test waits for the event itself, and Deadline, which is the only
// limit of time, says that the event never came. A test about time runs in virtual time (testing/synctest).
package check

import (
	"errors"
	"sync"
	"testing"
)

// Must fails the test at once when there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Value is what a call has returned, for the test that it is handed to: an error fails it at once.
//
//	order := check.Value(orders.Get(ctx, id))(t)
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

// Is checks that an error is the wanted one, or wraps it. A wanted error of nil means that there is none.
func Is(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
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
