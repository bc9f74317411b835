package check_test

import (
	"testing"

	"seckill/internal/workshop/check"
)

func TestThatTellsWhatWasFound(t *testing.T) {
	t.Parallel()
	check.Equal(t, "said of what is right", said(func(t testing.TB) { check.That(t, true, "%d left", 2) }), "")
	check.Equal(t, "said of what is wrong", said(func(t testing.TB) { check.That(t, false, "%d left", 2) }), "2 left")
}
