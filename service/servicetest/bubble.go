package servicetest

import (
	"testing"
	"testing/synctest"
)

// Bubble runs a subtest beside the others, on a clock of its own.
func Bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}
