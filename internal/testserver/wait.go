package testserver

import (
	"context"
	"testing"
	"time"
)

// Within bounds a call that must not take longer.
func Within(t testing.TB, limit time.Duration, call func(context.Context)) {
	t.Helper()
	began := time.Now()
	call(t.Context())
	if took := time.Since(began); took > limit {
		t.Errorf("took %s, want at most %s", took, limit)
	}
}
