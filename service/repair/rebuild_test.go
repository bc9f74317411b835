package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// The copy is closed everywhere before the queue is read, and the snapshot is taken after the queue is done.
func TestRebuildTakesItsStepsInOrder(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.publish(s.admit("o1", "u1"))
		s.steps = nil
		done := make(chan error, 1)
		go func() { done <- s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch) }()
		servicetest.Pass(2500 * time.Millisecond)
		check.That(t, s.hot().State() == model.CopyRebuilding && s.count("db.snapshot") == 0,
			"with a message in the queue: %s, %d snapshots", s.hot().State(), s.count("db.snapshot"))
		check.Equal(t, "signs of life in 2.5 s", s.count("db.progress"), 2)
		s.work(t)
		check.Must(t, <-done)
		want := []string{
			"db.close", "hot.close", "queue.backlog", "db.barrier", "hot.load", "db.snapshot", "hot.load",
			"db.open", "hot.open",
		}
		at := slices.Index(s.steps, "db.close")
		for _, step := range want {
			next := slices.Index(s.steps[at:], step)
			check.Need(t, next >= 0, "%s is missing after %v", step, s.steps[:at])
			at += next
		}
		check.Equal(t, "changes that it had missed", s.count("hot.apply"), 0)
		s.balanced(t)
	})
}

// What was admitted and never published keeps its unit over a rebuild, and becomes an order.
func TestRebuildCarriesReservationsWithoutARow(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o0", "u0")
		s.admit("o1", "u1")
		s.admit("o2", "u0") // by a copy that had lost the user's mark
		s.sell("o3", "u3")
		s.hot().Hold(s.rows["o3"]) // never settled
		check.Must(t, s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch))
		check.That(t, s.hot().Marks()["u1"] == "o1" && s.hot().Marks()["u0"] == "o0" && len(s.hot().Pending()) == 2,
			"marks %v, reservations %v", s.hot().Marks(), s.hot().Pending())
		s.settles(t, 20*time.Second)
		check.That(t, s.rows["o1"].Live() && s.rows["o2"].Reason == model.ReasonAlreadyOrdered, "%+v, %+v",
			s.rows["o1"], s.rows["o2"])
	})
}

// A large sale is loaded page by page: more reservations than are looked up at once, and live orders on several pages.
func TestALargeSaleIsRebuiltInPages(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		const reserved, live = 2*carryChunk + 1, 5
		s.voucher.Stock, s.voucher.Remaining = reserved+live+10, reserved+live+10
		s.hot().Set("stock", s.voucher.Stock)
		for i := range live {
			s.sell(fmt.Sprint("sold", i), fmt.Sprint("buyer", i))
		}
		s.admits(reserved)
		check.Must(t, s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch))
		now := s.hot()
		check.Equal(t, "the epoch", s.hot().Epoch(), 2)
		check.Equal(t, "buyers", len(now.Marks()), reserved+live)
		check.Equal(t, "reservations", len(now.Pending()), reserved)
		check.Equal(t, "what remains", s.remaining(), 10)
		for id, r := range now.Pending() {
			check.Need(t, r.ID == id && r.Epoch == 2, "carried over as %+v", r)
		}
	})
}

// A message behind the barrier promises nothing. A reservation that the rebuild carried over is processing and becomes
// an order, even while Redis is silent or another rebuild waits; one that Redis lost fails.
func TestMessagesBehindTheBarrier(t *testing.T) {
	t.Parallel()
	rebuild := func(t *testing.T, s *stage) { check.Must(t, s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch)) }
	at := func(step string, call int, take bool) func(*testing.T, *stage, model.Reservation) {
		return func(t *testing.T, s *stage, r model.Reservation) {
			s.on[step] = func() error {
				if call--; call > 0 {
					return nil
				}
				s.on[step] = nil
				if s.publish(r); take {
					s.work(t)
				}
				return nil
			}
			rebuild(t, s)
		}
	}
	for name, run := range map[string]func(*testing.T, *stage, model.Reservation){
		// The first call begins the loading; the second carries the reservation over.
		"taken behind it":        at("hot.load", 1, false),
		"taken with hot.load":    at("hot.load", 2, true),
		"taken with db.snapshot": at("db.snapshot", 1, true),
		"taken with db.open":     at("db.open", 1, true),
		"taken with hot.open":    at("hot.open", 1, true),
		"Redis has lost it":      func(t *testing.T, s *stage, r model.Reservation) { s.redis.Lose(); at("hot.load", 1, false)(t, s, r) },
		"Redis is silent": func(t *testing.T, s *stage, r model.Reservation) {
			rebuild(t, s)
			s.publish(r)
			s.fail("hot.held", context.DeadlineExceeded)
			s.work(t)
			s.fail("hot.held", nil)
		},
		"another rebuild waits for it": func(t *testing.T, s *stage, r model.Reservation) {
			rebuild(t, s)
			s.publish(r)
			rebuilt := make(chan error, 1)
			go func() { rebuilt <- s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch) }()
			synctest.Wait() // it has closed the hot copy, and waits for the queue
			s.work(t)
			check.Must(t, <-rebuilt)
		},
		// The process that rebuilds dies, and nobody watches the voucher: the sale is put off, or long over.
		"it has its rebuild made": func(t *testing.T, s *stage, r model.Reservation) {
			s.on["hot.load"] = func() error {
				s.on["hot.load"] = nil
				s.publish(r)
				return context.Canceled
			}
			check.That(t, s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch) != nil, "the rebuild does not die")
			s.unwatched = true
			s.Worker = s.employ(servicetest.NewLocks())
		},
	} {
		onStages(t, name, func(t *testing.T, s *stage) {
			run(t, s, s.admit("o1", "u1"))
			s.work(t)
			s.settles(t, 20*time.Second)
			row := s.rows["o1"]
			if name == "Redis has lost it" {
				check.That(t, row.Reason == model.ReasonSuperseded && s.remaining() == 10, "%+v, %d remain", row,
					s.remaining())
			} else {
				check.That(t, row.Live() && s.remaining() == 9, "%+v, %d remain", row, s.remaining())
			}
			check.Equal(t, "messages that are left", len(s.messages), 0)
		})
	}
}

// A poisoned order of such a message becomes a dead letter; the others become orders, and no rebuild waits for it.
func TestPoisonBehindTheBarrier(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		good, bad := s.admit("o1", "u1"), s.admit("o2", "u2")
		s.poison["o2"] = true
		check.Must(t, s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch))
		s.publish(good, bad)
		rebuilt := make(chan error, 1)
		go func() { rebuilt <- s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch) }()
		s.reconcileFor(t, time.Minute)
		check.Must(t, <-rebuilt)
		check.That(t, s.rows["o1"].Live() && s.rows["o2"].Reason == model.ReasonUnprocessable && len(s.letters) == 1 &&
			len(s.messages) == 0,
			"%+v, %+v, %d letters, %d messages", s.rows["o1"], s.rows["o2"], len(s.letters), len(s.messages))
	})
}

// NATS lost a promised order's message: it is published again during a rebuild, and lands behind the barrier.
func TestAPromisedOrderIsPublishedAgainDuringARebuild(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.admit("o1", "u1")
		other := s.employ(servicetest.NewLocks())
		reached, rebuilt := make(chan struct{}), make(chan error, 1)
		s.on["queue.publish"] = func() error {
			s.on["queue.publish"] = nil
			s.on["db.open"] = func() error {
				s.on["db.open"] = nil
				close(reached)
				servicetest.Pass(time.Second)
				return nil
			}
			go func() { rebuilt <- other.Rebuilder.Do(context.Background(), "v1", model.AnyEpoch) }()
			<-reached
			return nil
		}
		s.reconcileFor(t, 20*time.Second)
		check.Must(t, <-rebuilt)
		check.That(t, s.rows["o1"].Live(), "the promised order is %+v", s.rows["o1"])
	})
}

func TestCancelDuringARebuildReturnsItsUnitOnce(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"db.close", "db.snapshot", "db.open", "hot.open"} {
		onStages(t, at, func(t *testing.T, s *stage) {
			s.sell("o1", "u1")
			s.sell("o2", "u2")
			s.on[at] = func() error {
				s.on[at] = nil
				s.cancel("o1")
				return nil
			}
			check.Must(t, s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch))
			s.settles(t, 5*time.Second)
			check.That(t, s.remaining() == 9 && len(s.outbox) == 0, "%d remain, %d releases", s.remaining(),
				len(s.outbox))
		})
	}
}

func TestARebuildOfAnotherIsLeftAloneUntilItIsSilent(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		check.Must(t, check.ErrorOf(dbSide{s}.Close(t.Context(), "v1", 1, ""))) // another process, which dies here
		s.hot().Set("state", model.CopyClosed)
		began := time.Now()
		err := s.Rebuilder.Do(servicetest.Lasting(t, time.Second), "v1", model.AnyEpoch)
		check.Need(t, elsewhere(err) && s.hot().State() != model.CopyOpen, "%v, the copy is %s", err, s.hot().State())
		for s.hot().State() != model.CopyOpen {
			s.reconcileFor(t, 1300*time.Millisecond) // no slice ends just when the other's 5 s are over
			if t.Failed() || time.Now().After(began.Add(time.Minute)) {
				break
			}
		}
		servicetest.Took(t, "taken over", began, 4*time.Second, 10*time.Second)
		check.Equal(t, "the epoch", s.hot().Epoch(), 3)
		s.balanced(t)
	})
}

func TestARebuildThatFailsIsRepeated(t *testing.T) {
	t.Parallel()
	for _, at := range []string{
		"mode.read", "db.read", "hot.read", "queue.backlog", "db.close", "hot.close", "db.barrier",
		"hot.load", "db.snapshot", "db.open", "hot.open",
	} {
		onStages(t, at, func(t *testing.T, s *stage) {
			s.sell("o1", "u1")
			s.admit("o2", "u2")
			s.fail(at, errors.New("away"))
			if err := s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch); err == nil {
				t.Fatal("no error")
			}
			s.on = map[string]func() error{}
			s.settles(t, 15*time.Second)
		})
	}
}

func TestManyRebuildersOpenOneCopy(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		s.redis.Lose()
		s.on["db.close"] = func() error { servicetest.Pass(time.Millisecond); return nil }
		var crowd sync.WaitGroup
		for range 20 {
			other := newRebuilder(s.parts()) // another process
			crowd.Go(func() {
				if err := other.Do(t.Context(), "v1", model.AnyEpoch); err != nil {
					t.Error(err)
				}
			})
			crowd.Go(func() { _ = s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch) })
		}
		crowd.Wait()
		s.balanced(t)
		n := s.count("hot.open")
		check.That(t, n == 1 && s.hot().Epoch() == 2, "%d openings, epoch %d", n, s.hot().Epoch())
	})
}

func TestAHealthyCopyIsNotRebuiltOnRequest(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.Rebuilder.Ask("v1", 0)
		s.serveRebuilds(t.Context())
		check.Equal(t, "the epoch after a request", s.hot().Epoch(), 1)
		s.Rebuilder.Ask("v1", model.AnyEpoch)
		s.serveRebuilds(t.Context())
		check.Equal(t, "the epoch after a demand", s.hot().Epoch(), 2)
	})
}

// After a loss those come first that requests ask for, then those on sale.
func TestRebuildsAreServedByUrgency(t *testing.T) {
	t.Parallel()
	r := newStage(t).Rebuilder
	for i := range 2 * maxWishes {
		r.found(fmt.Sprint("upcoming", i), false)
		r.found("upcoming0", false)
	}
	r.found("selling", true)
	r.found("selling", false)
	r.found("upcoming7", true)
	r.Ask("upcoming9", 0)
	r.Ask("upcoming8", 0)
	r.Ask("upcoming3", model.AnyEpoch)
	r.Ask("upcoming8", model.AnyEpoch)
	var served []string
	for range 6 {
		id, wrong, _ := r.next()
		served = append(served, fmt.Sprint(id, " ", wrong == model.AnyEpoch))
	}
	want := []string{
		"upcoming9 false", "upcoming8 true", "upcoming3 true", "selling false", "upcoming7 false",
		"upcoming0 false",
	}
	check.That(t, slices.Equal(served, want) && len(r.wishes) == maxWishes+1-6, "%v; %d wait", served, len(r.wishes))
	for i := range 9 * maxWishes {
		r.Ask(fmt.Sprint("v", i), 0)
	}
	check.Equal(t, "wishes that wait", len(r.wishes), 3*maxWishes)
}

// A queue that lost its messages would be waited for until the end of time.
func TestAnotherQueueEndsTheWait(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.publish(s.admit("o1", "u1"))
		s.on["db.barrier"] = func() error { s.messages, s.last = nil, 0; return nil }
		if err := s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch); err == nil {
			t.Error("no error")
		}
		s.on = map[string]func() error{}
		s.settles(t, 20*time.Second)
		check.That(t, s.rows["o1"].Live(), "the order is lost")
	})
}

// Short-lived copies are loaded ever more rarely, because a large sale takes seconds of shared servers. A wish made in
// a pause is kept: its voucher would stay closed.
func TestACopyThatDoesNotLastIsLoadedLessAndLessOften(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		check.Running(t, s.Rebuilder.Run)
		ask := func(what string, times int, spoiled func(n int) bool, rest time.Duration, want int) {
			t.Helper()
			for n := range times {
				if spoiled(n) {
					s.redis.Lose()
				}
				s.Rebuilder.Ask("v1", 0)
				servicetest.Pass(97 * time.Millisecond) // never at the end of a pause
			}
			servicetest.Pass(rest)
			check.Equal(t, what, s.count("hot.open"), want)
		}
		each := func(n int) bool { return n%10 == 0 }
		ask("loaded before the pause", 3, func(int) bool { return true }, 0, 2)
		ask("loaded after it, for one who asked in it", 0, nil, pauses().First, 3)
		ask("loaded in a minute more", 600, each, 0, 16)
		ask("loaded when it lasts", 50, func(int) bool { return false }, 0, 17)
		s.balanced(t)
	})
}

// An administrator's rebuild replaces the one under way, and needs no reconciler to open the sale.
func TestAnAdministratorsRebuild(t *testing.T) {
	t.Parallel()
	onStages(t, "does not pause", func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		check.Running(t, s.Rebuilder.Run)
		for n := range 10 {
			check.Must(t, s.Stock.Rebuild(t.Context(), "v1", "boss"))
			servicetest.Pass(100 * time.Millisecond)
			check.That(t, s.hot().State() == model.CopyOpen, "rebuild %d: the copy is %s", n, s.hot().State())
		}
		s.balanced(t)
		servicetest.Hears(t, "the caller", s.Stock.Rebuild(t.Context(), "no/voucher", "boss"), model.CodeNotFound)
	})
	onStages(t, "replaces another", func(t *testing.T, s *stage) {
		s.publish(s.admit("o1", "u1"))
		check.Running(t, s.Rebuilder.Run)
		s.Rebuilder.Ask("v1", model.AnyEpoch)
		servicetest.Pass(1200 * time.Millisecond) // it waits for the queue
		check.Must(t, s.Stock.Rebuild(t.Context(), "v1", "boss"))
		check.That(t, s.hot().State() != model.CopyOpen, "the sale goes on")
		servicetest.Pass(1200 * time.Millisecond)
		s.work(t)
		servicetest.Pass(time.Second)
		s.balanced(t)
	})
	onStages(t, "in another mode", func(t *testing.T, s *stage) {
		s.mode.Mode = model.ModeSync
		servicetest.Hears(t, "the caller", s.Stock.Rebuild(t.Context(), "v1", "boss"), model.CodeConflict)
		check.That(t, s.record.Epoch == 1 && s.hot().State() == model.CopyOpen, "something was closed")
	})
}

// After the clock was set back a dead process's rebuild must not look alive until the clock has caught up.
func TestADeadRebuildIsTakenOverWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		s.record.Epoch++ // closed by the one that died
		s.hot().Set("state", model.CopyClosed)
		later := time.Now().Add(time.Hour)
		s.record.Progress = &later
		s.settles(t, 20*time.Second)
	})
}

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
		// The lines come after 1, 2, 4 … 256 s.
		check.Equal(t, "lines of the log", strings.Count(log.String(), "rebuilding a hot copy"), 9)
		s.work(t)
		check.Must(t, <-done)
	})
}

func TestAnInstanceWithoutTheQueueLeavesItsRebuild(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		cut := false
		alone := s.employ(servicetest.NewLocks(), func(d *Deps) {
			d.Queue, d.Backlog = queueSide{stage: s, cut: &cut}, watching(queueSide{stage: s, cut: &cut})
		})
		s.on["db.barrier"] = func() error { s.on["db.barrier"], cut = nil, true; return nil }
		rebuilt := make(chan error, 1)
		go func() { rebuilt <- alone.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch) }()
		began := time.Now()
		open := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.record.Open() && s.record.Epoch > 1
		}
		for began.Add(time.Minute).After(time.Now()) && (!open() || s.hot().State() != model.CopyOpen) {
			s.reconcileFor(t, 1300*time.Millisecond)
		}
		servicetest.Took(t, "the sale is open again, beside an instance that is well", began, 0, 20*time.Second)
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

// A superseded rebuild ends its wait within a few signs of life, and frees its place for closed vouchers.
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
