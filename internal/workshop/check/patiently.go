package check

import (
	"testing"
	"time"
)

// rarest is the longest pause between two looks of Patiently: an event is not noticed much later, and a look that asks
// servers costs them little.
const rarest = 160 * time.Millisecond

// Patiently is Eventually for a look that costs something, such as a request or an audit: the longer it takes, the more
// rarely is looked.
func Patiently(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(Deadline)
	defer deadline.Stop()
	for rest := pause; !holds(); rest = min(2*rest, rarest) {
		select {
		case <-deadline.C:
			t.Fatalf("it never happened: %s", what)
		case <-time.After(rest):
		}
	}
}
