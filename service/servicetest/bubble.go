package servicetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Bubble runs a subtest beside the others, on a clock of its own.
func Bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

// Pass lets time pass on the clock of a bubble, which goes as fast as the test does.
func Pass(d time.Duration) {
	inBubble()
	<-time.After(d)
}

// Lasting is a context that ends with the test, or after so long on the clock of a bubble.
func Lasting(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	inBubble()
	ctx, end := context.WithTimeout(t.Context(), d)
	t.Cleanup(end)
	return ctx
}

// InTime checks that something which began then took no longer than that, on the clock of a bubble. No machine is too
// slow for it: the clock stands while anything computes.
func InTime(t *testing.T, what string, began time.Time, most time.Duration) {
	t.Helper()
	Took(t, what, began, 0, most)
}

// TookJust is InTime for what takes a certain time, and no less.
func TookJust(t *testing.T, what string, began time.Time, want time.Duration) {
	t.Helper()
	Took(t, what, began, want, want)
}

// Took is InTime for what also takes a while.
func Took(t *testing.T, what string, began time.Time, least, most time.Duration) {
	t.Helper()
	inBubble()
	if took := time.Since(began); took < least || took > most {
		t.Errorf("%s: after %v, want %v to %v", what, took, least, most)
	}
}

// inBubble stops a test that would measure the machine. The clock of a bubble begins in the year 2000.
func inBubble() {
	const latest = 2020
	if time.Now().Year() > latest {
		panic("this is no bubble of synctest: the test would wait for the machine's clock, or measure it")
	}
}
