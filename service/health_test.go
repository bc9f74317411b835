package service

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/service/servicetest"
)

type asked struct {
	times  atomic.Int32
	answer atomic.Value // func(context.Context) error
}

func newAsked(answer func(context.Context) error) *asked {
	a := &asked{}
	a.answer.Store(answer)
	return a
}

func (a *asked) ask(ctx context.Context) error {
	a.times.Add(1)
	return a.answer.Load().(func(context.Context) error)(ctx)
}

func fine(context.Context) error { return nil }

// A crowd of load balancers must be no load for the dependencies.
func TestReadinessIsLookedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := newAsked(func(context.Context) error { <-time.After(300 * time.Millisecond); return nil })
		h := NewHealth(Probe{Name: "slow", Ask: slow.ask})
		check.Volley(100, func(int) {
			checks := h.Check(t.Context())
			check.That(t, len(checks) == 1 && checks[0].Err == nil, "checks %+v", checks)
		})
		h.Check(t.Context()) // a moment later
		check.Equal(t, "questions for a crowd", slow.times.Load(), int32(1))
		servicetest.Pass(lookShared)
		h.Check(t.Context())
		check.Equal(t, "questions when the answer is old", slow.times.Load(), int32(2))
	})
}

// It neither waits for what hangs, nor for the caller's patience, nor asks it again meanwhile.
func TestReadinessDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hanging := newAsked(func(context.Context) error { <-release; return nil })
		h := NewHealth(Probe{Name: "hangs", Ask: hanging.ask}, Probe{Name: "fine", Ask: fine})
		began := time.Now()
		checks := h.Check(t.Context())
		check.Equal(t, "the time of a check", time.Since(began), budget.Look)
		check.That(t, checks[0].Err != nil && checks[1].Err == nil, "checks %+v", checks)
		servicetest.Pass(time.Minute)
		if checks = h.Check(t.Context()); checks[0].Err == nil {
			t.Error("what hangs is well")
		}
		check.Equal(t, "questions to what hangs", hanging.times.Load(), int32(1))
		close(release)
		synctest.Wait()
		servicetest.Pass(lookShared)
		if checks = h.Check(t.Context()); checks[0].Err != nil {
			t.Errorf("when it answers again: %v", checks[0].Err)
		}

		hurried, cancel := context.WithCancel(t.Context())
		cancel()
		servicetest.Pass(lookShared)
		if checks = h.Check(hurried); len(checks) == 0 || !errors.Is(checks[0].Err, context.Canceled) {
			t.Errorf("a caller that has gone: %+v", checks)
		}
		synctest.Wait()
	})
}

// TestReadyWhileSalesGoOn: an instance is ready as long as it sells without a dependency that it had, and no longer.
func TestReadyWhileSalesGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := func(context.Context) error { return errors.New("away") }
		database := newAsked(away)
		h := NewHealth(Probe{Name: "database", Ask: database.ask, Patience: 30 * time.Second})
		look := func() Check {
			servicetest.Pass(lookShared)
			return h.Check(t.Context())[0]
		}
		is := func(when string, ready bool, note string) {
			t.Helper()
			got := look()
			check.That(t, (got.Err == nil) == ready && strings.Contains(got.Note, note), "%s: %+v", when, got)
			check.That(t, !ready || note != "" || got.Note == "", "%s, a note: %s", when, got.Note)
		}
		is("with a database that was never there", false, "")
		database.answer.Store(fine)
		is("with the database", true, "")
		database.answer.Store(away)
		look()
		servicetest.Pass(29 * time.Second)
		is("after 29 s", true, "away for 29s")
		servicetest.Pass(time.Second)
		is("after 30 s", false, "")
		database.answer.Store(fine)
		is("with the database again", true, "")
	})
}

func TestMain(m *testing.M) { servicetest.Main(m) }
