package check

import "testing"

// That checks that something holds, and tells otherwise what was found instead.
func That(t testing.TB, holds bool, format string, found ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, found...)
	}
}

// Need is That for what the rest of the test rests on: it ends the test.
func Need(t testing.TB, holds bool, format string, found ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, found...)
	}
}
