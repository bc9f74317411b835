package repair

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// Looks that fail for some seconds end no rebuild, which would begin anew behind a later message.
func TestAFailedLookIsNotTheEndOfARebuild(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.publish(s.admit("o1", "u1"))
		done := make(chan error, 1)
		go func() { done <- s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch) }()
		servicetest.Pass(time.Second)
		s.fail("queue.backlog", errors.New("no responders"))
		servicetest.Pass(4 * time.Second)
		s.fail("queue.backlog", nil)
		s.work(t)
		check.Must(t, <-done)
		check.Equal(t, "the epoch that is open", s.hot().Epoch(), 2)
		s.balanced(t)
	})
}

// A wait of minutes is told of a few times.
func TestALongWaitIsToldOfSeldom(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		log := &check.Log{}
		s.Rebuilder.deps.Log = log.Logger()
		s.publish(s.admit("o1", "u1"))
		done := make(chan error, 1)
		go func() { done <- s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch) }()
		servicetest.Pass(5*time.Minute + time.Millisecond)
		check.Equal(t, "signs of life in the database", s.count("db.progress"), 300)
		check.Equal(t, "lines of the log", strings.Count(log.String(), "rebuilding a hot copy"), 9) // after 1, 2, 4 … 256 s
		s.work(t)
		check.Must(t, <-done)
	})
}

// blind is the queue of an instance that is cut off from it.
type blind struct {
	queueSide

	cut *bool
}

func (b blind) see() error {
	if *b.cut {
		return model.Unavailable("The queue does not answer.", nil)
	}
	return nil
}

func (b blind) Backlog(ctx context.Context) (model.Backlog, error) {
	if err := b.see(); err != nil {
		return model.Backlog{}, err
	}
	return b.queueSide.Backlog(ctx)
}

func (b blind) BacklogOf(ctx context.Context, voucherID string) (model.Backlog, error) {
	if err := b.see(); err != nil {
		return model.Backlog{}, err
	}
	return b.queueSide.BacklogOf(ctx, voucherID)
}

func (b blind) Waiting(ctx context.Context) (map[string]int64, error) {
	if err := b.see(); err != nil {
		return nil, err
	}
	return b.queueSide.Waiting(ctx)
}

// An instance that cannot see the queue any more leaves the voucher to one that can.
func TestAnInstanceWithoutTheQueueLeavesItsRebuild(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		cut := false
		alone := s.employ(servicetest.NewLocks(), func(d *Deps) { d.Queue, d.Backlog = blind{queueSide{s}, &cut}, watching(blind{queueSide{s}, &cut}) })
		s.on["db.barrier"] = func() error { s.on["db.barrier"], cut = nil, true; return nil }
		rebuilt := make(chan error, 1)
		go func() { rebuilt <- alone.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch) }()
		began := time.Now()
		for began.Add(time.Minute).After(time.Now()) && (!s.record.Open() || s.hot().State() != model.CopyOpen || s.record.Epoch == 1) {
			s.reconcileFor(t, 1300*time.Millisecond)
		}
		servicetest.InTime(t, "the sale is open again, beside an instance that is well", began, 20*time.Second)
		if err := <-rebuilt; err == nil {
			t.Error("the rebuild that could not see the queue is done")
		}
	})
}

// A draw waits for what was queued when its hot copy was closed, and not for what other vouchers sell meanwhile.
func TestADrawWaitsForNoLaterMessage(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.publish(s.admits(1)...)
		s.record.Draw = true
		check.That(t, s.Rebuilder.Drain(t.Context(), "v1") != nil, "an order is queued, and it did not wait")
		s.publish(model.Reservation{Order: model.Order{ID: "another.v2", VoucherID: "v2"}})
		check.That(t, s.Rebuilder.Drain(t.Context(), "v1") != nil, "the order is still queued")
		s.messages = s.messages[1:]
		check.Must(t, s.Rebuilder.Drain(t.Context(), "v1"))
	})
}

// A rebuild waits for the queue. Without one no sale is closed, because it could not be opened again.
func TestNothingIsClosedWithoutTheQueue(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fail("queue.backlog", errors.New("no responders"))
	if err := s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch); err == nil {
		t.Error("it was rebuilt")
	}
	check.Equal(t, "the copy", s.hot().State(), model.CopyOpen)
	check.Equal(t, "its epoch", s.hot().Epoch(), 1)
	check.Equal(t, "the epoch of the database", s.record.Epoch, 1)
	check.Equal(t, "copies that were closed", s.count("hot.close"), 0)
}

// A rebuild that waits for the queue may wait for minutes. It ends within a few signs of life when another one has
// superseded it, and does not keep its place from vouchers that are closed.
func TestASupersededRebuildEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.publish(s.admit("o1", "u1")) // nobody takes it
		ctx, enough := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Rebuilder.rebuild(ctx, "v1", model.AnyEpoch, place{}) }()
		<-time.After(2 * budget.Look)
		synctest.Wait()
		check.Equal(t, "rebuilds that have ended before", len(ended), 0)
		s.mu.Lock()
		s.record.Epoch++
		s.mu.Unlock()
		<-time.After(2 * budget.Look)
		synctest.Wait()
		check.Equal(t, "rebuilds that have ended", len(ended), 1)
		enough()
		check.Is(t, "its end", <-ended, model.ErrSuperseded)
	})
}
