package check

import (
	"context"
	"testing"
	"time"
)

const (
	// Deadline is how long a test waits for an event before it says that the event never came. It judges no speed: it
	// is far longer than anything takes on two busy cores under the race detector.
	Deadline = 2 * time.Minute

	// Soon is the deadline of a call that is meant to run out of time, because what it waits for cannot happen. A slow
	// machine only makes it later.
	Soon = 50 * time.Millisecond

	// pause is between two looks: short against everything that takes time, long against a busy loop.
	pause = 5 * time.Millisecond
)

// Context ends when the test does, or at the common deadline.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	t.Cleanup(cancel)
	return ctx
}

// Expiring is a context that runs out soon, for a call that cannot succeed before.
func Expiring(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Soon)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until something holds that comes to hold by itself, and fails the test at once when it never does.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(Deadline)
	defer deadline.Stop()
	again := time.NewTicker(pause)
	defer again.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("it never happened: %s", what)
		case <-again.C:
		}
	}
}

// Receive is the next value of a channel, or the zero value of a closed one. It fails the test at once when nothing comes.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	deadline := time.NewTimer(Deadline)
	defer deadline.Stop()
	select {
	case value := <-from:
		return value
	case <-deadline.C:
		t.Fatalf("it never came: %s", what)
		panic("not reached")
	}
}

// Stays checks that something goes on to hold, for a short while. It can miss a change that comes late, but a slow
// machine never makes it fail.
func Stays(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.NewTimer(Soon)
	defer end.Stop()
	again := time.NewTicker(pause)
	defer again.Stop()
	for {
		if !holds() {
			t.Fatalf("it did not stay so: %s", what)
		}
		select {
		case <-end.C:
			return
		case <-again.C:
		}
	}
}
