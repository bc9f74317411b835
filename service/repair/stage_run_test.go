package repair

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
	"seckill/service/guard"
	"seckill/service/servicetest"
)

// onStage runs a test on a stage, on a clock of its own.
func onStage(t *testing.T, test func(*testing.T, *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newStage(t)) })
}

// onStages is onStage for a subtest, which runs beside the others.
func onStages(t *testing.T, name string, test func(*testing.T, *stage)) {
	t.Helper()
	servicetest.Bubble(t, name, func(t *testing.T) { test(t, newStage(t)) })
}

// serveRebuilds serves what was asked for, until nothing moves any more.
func (s *stage) serveRebuilds(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	var serving sync.WaitGroup
	serving.Go(func() { s.Rebuilder.Run(ctx) })
	synctest.Wait()
	cancel()
	serving.Wait()
}

// rebuilding serves what is asked for until it is stopped.
func (s *stage) rebuilding(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Rebuilder.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// employ puts another worker on the stage, as if it were another process; change
// may put something else in the place of its parts.
func (s *stage) employ(locks Seats, change ...func(*Deps)) *Worker {
	parts := s.parts()
	for _, c := range change {
		c(&parts)
	}
	return New(parts, electing(locks), s.watcher().Selling)
}

func electing(locks Seats) Elector {
	return Elector{Seats: locks, Deployment: "test", Metrics: telemetry.NewElections(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
}

func (s *stage) watcher() *guard.Mode {
	w := guard.NewMode(modeSide{s}.Read, model.ModeAsync, slog.New(slog.DiscardHandler))
	_ = w.Refresh(context.Background())
	return w
}

// reconcileFor runs the reconciler, the rebuilder and the worker for a while.
func (s *stage) reconcileFor(t *testing.T, d time.Duration) {
	t.Helper()
	s.reconcileTwice(t, d, 1)
}

// settles runs them for a while, behind which everything is in balance.
func (s *stage) settles(t *testing.T, d time.Duration) {
	t.Helper()
	s.reconcileFor(t, d)
	s.balanced(t)
}

// reconcileTwice runs several reconcilers at once, as if there were no lock.
func (s *stage) reconcileTwice(t *testing.T, d time.Duration, at int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var running sync.WaitGroup
	for i := range at {
		w := s.Worker
		if i > 0 {
			w = s.employ(servicetest.NewLocks())
		}
		running.Go(func() { w.Reconciler.Run(ctx) })
		running.Go(func() { w.Rebuilder.Run(ctx) })
	}
	running.Go(func() {
		for ctx.Err() == nil {
			s.work(t)
			poll.Pause(ctx, 100*time.Millisecond)
		}
	})
	running.Wait()
}
