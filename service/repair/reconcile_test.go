package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository/hotcopy/hotcopytest"
	"seckill/service/servicetest"
)

func TestWhatADeadProcessLeftIsSettledWithin30s(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*stage){
		"reserved and never published": func(s *stage) { s.admit("o1", "u1") },
		"persisted and never settled": func(s *stage) {
			s.sell("o1", "u1")
			s.hot().Hold(s.rows["o1"])
		},
		"closed and never released": func(s *stage) {
			s.sell("o1", "u1")
			s.cancel("o1")
		},
		"failed and never released": func(s *stage) {
			r := s.admit("o1", "u1")
			s.close(r.Order, model.OrderFailed, model.ReasonUnprocessable)
			s.outbox = nil // its release was noted, and the process died before the rest
		},
		"failed for another order and never replaced": func(s *stage) {
			s.sell("o0", "u1")
			r := s.admit("o1", "u1")
			s.close(r.Order, model.OrderFailed, model.ReasonAlreadyOrdered)
		},
		"sold out and never closed": func(s *stage) {
			r := s.admit("o1", "u1")
			s.close(r.Order, model.OrderFailed, model.ReasonSoldOut)
		},
		"an intended stock": func(s *stage) {
			stock := int64(5)
			intent, _, err := dbSide{s}.IntendStock(context.Background(), "v1", model.StockChange{Stock: &stock},
				model.Idempotency{})
			if err != nil {
				panic(err)
			}
			if err := s.redis.Lower(context.Background(), "v1", intent.Stock, intent.Revision); err != nil {
				panic(err)
			}
		},
		"a change that did not reach the copy": func(s *stage) { s.voucher.Revision++; s.voucher.Price = 7 },
		"a closed copy":                        func(s *stage) { s.hot().Set("state", model.CopyClosed) },
		"an opened record beside a closed copy": func(s *stage) {
			s.record.Epoch, s.record.OpenEpoch = 2, 2
		},
		"a lost Redis": func(s *stage) { s.sell("o1", "u1"); s.redis.Lose() },
		// What a script leaves that is broken off.
		"reserved and not noted": func(s *stage) { s.admit("o1", "u1"); s.hot().Drop("due", "o1") },
		"reserved and not noted, beside others": func(s *stage) {
			s.publish(s.admits(3)...)
			s.hot().Drop("due", "o1")
		},
		"persisted, and neither settled nor noted": func(s *stage) {
			s.sell("o1", "u1")
			s.hot().Hold(s.rows["o1"])
		},
		"noted, and neither marked nor reserved": func(s *stage) { s.hot().Note("o1", time.Now()) },
		"noted and marked, and not reserved":     func(s *stage) { s.admit("o1", "u1"); s.hot().Drop("pending", "o1") },
		"settled and still noted":                func(s *stage) { s.sell("o1", "u1"); s.hot().Note("o1", time.Now()) },
		"marked, and neither reserved nor noted": func(s *stage) { s.hot().Mark("u1", "o1") },
	} {
		onStages(t, name, func(t *testing.T, s *stage) {
			leave(s)
			s.settles(t, 30*time.Second)
			check.Equal(t, "orders that are noted as due", len(s.hot().Due()), 0)
			check.That(t, len(s.outbox) == 0 && len(s.intents) == 0, "%d releases, %d intents are left", len(s.outbox),
				len(s.intents))
			if s.hot().Voucher().Stock != s.voucher.Stock || s.hot().Voucher().Price != s.voucher.Price {
				t.Errorf("the copy has %d at %d, want %d at %d", s.hot().Voucher().Stock, s.hot().Voucher().Price,
					s.voucher.Stock, s.voucher.Price)
			}
		})
	}
}

// A slow worker must not be fed its own backlog twice.
func TestNothingIsPublishedAgainBeforeTheWorkerHasPassedIt(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		batch := s.admits(5)
		s.publish(batch...)
		s.fail("db.persist", model.Unavailable("away", nil)) // for a minute
		s.reconcileFor(t, time.Minute)
		check.Equal(t, "messages published again while theirs waited", s.count("queue.publish"), 0)
		check.That(t, s.count("db.find") <= 20, "%d looks for their rows in a minute, want fewer and fewer",
			s.count("db.find"))
		s.on = map[string]func() error{}
		s.settles(t, 3*time.Second)
	})
}

// An order with a letter and no row stays in the queue once, and gets its row when there can be one.
func TestBuriedOrdersAreNotPublishedAgain(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.poison["o1"] = true
		s.fail("db.fail", errData)
		s.publish(s.admit("o1", "u1"))
		s.reconcileFor(t, time.Minute)
		if len(s.letters) != 1 || s.count("queue.publish") != 0 || len(s.messages) != 1 {
			t.Errorf("%d letters, %d messages were published, %d wait", len(s.letters), s.count("queue.publish"),
				len(s.messages))
		}
		s.fail("db.fail", nil)
		s.settles(t, time.Minute)
	})
}

// An order with a letter and a lost message gets the failed row. The letter is an operator's.
func TestALetterWithoutAMessageFailsItsOrder(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		r := s.admit("o1", "u1")
		s.letters = []model.DeadLetter{{Sequence: 1, Reservation: &r}}
		s.reconcileFor(t, time.Minute)
		check.Equal(t, "messages published", s.count("queue.publish"), 0)
		if row := s.rows["o1"]; row.Status != model.OrderFailed || row.Reason != model.ReasonUnprocessable ||
			s.remaining() != 10 || len(s.letters) != 1 {
			t.Errorf("%+v, %d remain, %d letters", row, s.remaining(), len(s.letters))
		}
		s.balanced(t)
	})
}

// Many units of one closed voucher come back: another voucher's are in its copy at the first pass.
func TestAReleaseWaitsForItsCopyAndHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	for _, closed := range []string{"v0", "v2"} {
		t.Run(closed, func(t *testing.T) {
			t.Parallel()
			const many = 100_000
			s := newStage(t)
			for i := range many {
				s.outbox = append(s.outbox, model.Release{
					ID: int64(i + 1), OrderID: fmt.Sprint("x", i),
					VoucherID: closed, UserID: "u",
				})
			}
			s.sell("o1", "u1")
			s.steps = make([]string, many) // ids of the outbox go on
			s.cancel("o1")
			check.Must(t, s.Reconciler.outbox.pass(t.Context()))
			check.That(t, len(s.outbox) == many && s.remaining() == 10, "%d releases wait, %d remain", len(s.outbox),
				s.remaining())
			n := s.count("hot.release")
			check.That(t, n <= 3, "the closed copy was asked again and again: %d calls", n)
		})
	}
}

func TestALongOutboxIsWorkedOffInTurns(t *testing.T) {
	t.Parallel()
	const many = 5000
	s := newStage(t)
	s.redis.Add(model.Voucher{ID: "v0"})
	for i := range many {
		id := "v" + strconv.Itoa(i%2)
		s.outbox = append(s.outbox, model.Release{
			ID: int64(i + 1), OrderID: fmt.Sprint("x", i), VoucherID: id,
			UserID: "u",
		})
	}
	if err := s.Reconciler.outbox.pass(t.Context()); err != nil || len(s.outbox) != 0 {
		t.Errorf("%d are left, %v", len(s.outbox), err)
	}
}

// A unit that comes back long after the sale loads no copy; the voucher has it when the sale is extended.
func TestAReleaseLongAfterTheSaleLoadsNoCopy(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		s.sell("o2", "u2")
		s.redis.Lose()
		s.voucher.EndAt = time.Now().Add(-2 * time.Hour)
		s.cancel("o1")
		pass := s.Reconciler.outbox.pass
		s.fail("hot.release", errors.New("away"))
		if err := pass(t.Context()); err == nil || len(s.outbox) != 1 {
			t.Errorf("a Redis that is away: %v, %d releases", err, len(s.outbox))
		}
		s.fail("hot.release", nil)
		if err := pass(t.Context()); err != nil || len(s.outbox) != 0 || s.count("hot.load") != 0 {
			t.Errorf("%v, %d releases are left, %d loads", err, len(s.outbox), s.count("hot.load"))
		}
		s.voucher.EndAt = time.Now().Add(time.Hour)
		s.settles(t, 10*time.Second)
		check.Equal(t, "what remains", s.remaining(), 9)
	})
}

// A rebuild with an older snapshot must not open behind the release that was done without a copy.
func TestAReleaseLongAfterTheSaleEndsAnOlderRebuild(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"db.open", "hot.open"} {
		onStages(t, at, func(t *testing.T, s *stage) {
			s.sell("o1", "u1")
			s.redis.Lose()
			s.voucher.EndAt = time.Now().Add(-2 * time.Hour)
			s.on[at] = func() error { // the snapshot was taken
				s.cancel("o1")
				servicetest.Pass(2 * budget.Answer)
				s.mu.Lock()
				delete(s.on, at)
				s.record.Progress = nil // the process was stopped
				s.mu.Unlock()
				return s.Reconciler.outbox.pass(t.Context())
			}
			other := newRebuilder(s.parts())
			err := other.Do(t.Context(), "v1", model.AnyEpoch)
			check.That(t, len(s.outbox) != 0 || s.hot().State() != model.CopyOpen || s.remaining() == 10,
				"%v: the unit is lost: %d remain", err, s.remaining())
			s.voucher.EndAt = time.Now().Add(time.Hour)
			s.settles(t, 20*time.Second)
		})
	}
}

func TestTwoReconcilersAtOnceAreHarmless(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		s.sell("o2", "u2")
		s.cancel("o2")
		s.admit("o3", "u3")
		s.reconcileTwice(t, 30*time.Second, 2)
		s.balanced(t)
		check.Equal(t, "what remains", s.remaining(), 8)
	})
}

// This holds in an older database, too. The copy is rebuilt only where no order id can settle the difference, once.
func TestDriftIsGoneWithin30s(t *testing.T) {
	t.Parallel()
	unmark := func(userID string) func(*hotcopytest.Sale) {
		return func(hot *hotcopytest.Sale) { hot.Drop("buyers", userID) }
	}
	settled := []string{"a closed order's mark", "a reservation not noted"}
	for name, drift := range map[string]func(*stage){
		"a closed order's mark": func(s *stage) {
			s.close(s.rows["o1"], model.OrderCanceled, "")
			s.voucher.Remaining++
			s.voucher.Version++
			s.outbox = nil
		},
		"a database that was restored from a backup": func(s *stage) {
			for _, id := range []string{"o27", "o28", "o29"} {
				delete(s.rows, id)
			}
			s.voucher.Remaining += 3
			s.voucher.Version -= 3
		},
		"a mark that was lost":    func(s *stage) { s.changeHot(unmark("u1")) },
		"a mark without an order": func(s *stage) { s.changeHot(func(hot *hotcopytest.Sale) { hot.Mark("u99", "o99") }) },
		"a row that was lost":     func(s *stage) { delete(s.rows, "o1"); s.voucher.Remaining++; s.voucher.Version++ },
		"a reservation not noted": func(s *stage) {
			s.admit("o99", "u99")
			s.changeHot(func(hot *hotcopytest.Sale) { hot.Drop("due", "o99") })
		},
		"a reservation not marked": func(s *stage) { s.admit("o99", "u99"); s.changeHot(unmark("u99")) },
	} {
		for second := range 20 {
			onStages(t, fmt.Sprint(name, " after ", second, " s"), func(t *testing.T, s *stage) {
				s.offer(100)
				var arising sync.WaitGroup
				arising.Go(func() {
					for n := range 30 { // it is compared again and again meanwhile
						s.sell(fmt.Sprint("o", n), fmt.Sprint("u", n))
						s.changeHot(func(hot *hotcopytest.Sale) { hot.Touch() })
						poll.Pause(t.Context(), 2*time.Second)
					}
					poll.Pause(t.Context(), time.Duration(second)*time.Second)
					s.mu.Lock()
					defer s.mu.Unlock()
					drift(s)
				})
				s.settles(t, time.Minute+time.Duration(second)*time.Second+30*time.Second)
				arising.Wait()
				check.Equal(t, "the epoch", s.hot().Epoch(),
					map[bool]int64{true: 1, false: 2}[slices.Contains(settled, name)])
			})
		}
	}
}

// A changed row is compared again, also one restored to an earlier version. An unchanged one costs nothing.
func TestChangedVouchersAreComparedAgain(t *testing.T) {
	t.Parallel()
	for now, due := range map[int64]bool{8: true, 7: false, 3: true} {
		servicetest.Bubble(t, fmt.Sprint("7, then ", now), func(t *testing.T) {
			d := newDriftWatch(nil)
			d.watched(map[string]model.EpochRecord{"v": {
				VoucherID: "v", Epoch: 1, OpenEpoch: 1, Version: now,
				Taken: 1,
			}})
			d.checked["v"] = driftCheck{at: time.Now().Add(-driftEvery), row: 7}
			check.Equal(t, "compared again", len(d.due()) == 1, due)
		})
	}
}

// A lost mark is found beside constant reservations, and an order between two steps is not taken for one.
func TestDriftIsRepairedInARunningSale(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		onStages(t, fmt.Sprint(lost), func(t *testing.T, s *stage) {
			s.voucher.Stock, s.voucher.Remaining = 1_000_000, 1_000_000
			s.hot().Set("stock", s.voucher.Stock)
			s.sell("o1", "u1")
			if lost {
				s.hot().Drop("buyers", "u1")
			}
			ctx := servicetest.Lasting(t, 2*time.Minute)
			s.on["hot.find"] = func() error { s.work(t); return nil } // between two readings of one order
			var sale sync.WaitGroup
			sale.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					s.publish(s.admit(fmt.Sprint("sale", n), fmt.Sprint("buyer", n)))
					poll.Pause(ctx, 7*time.Second) // its worker is slow
					s.work(t)
				}
			})
			rec, reb := s.Reconciler, s.Rebuilder
			sale.Go(func() { rec.Run(ctx) })
			sale.Go(func() { reb.Run(ctx) })
			sale.Wait()
			rebuilt := s.hot().Epoch() > 1
			check.That(t, rebuilt == lost && s.hot().Epoch() <= 2, "epoch %d", s.hot().Epoch())
		})
	}
}

type oldest struct {
	Backlog

	age time.Duration
}

func (o oldest) Younger(age time.Duration) bool { return o.age < age }

func TestTheOthersConsumeWhatTheElectedOneLeaves(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		locks := servicetest.NewLocks()
		leader, other := s.employ(locks), s.employ(locks)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { leader.Reconciler.Run(ctx) })
		servicetest.Pass(time.Second)
		leave := func(age time.Duration) [2]bool {
			leader.Reconciler.deps.Backlog, other.Reconciler.deps.Backlog = oldest{age: age}, oldest{age: age}
			return [2]bool{leader.OthersConsume(), other.OthersConsume()}
		}
		check.Equal(t, "the elected one and the other leave it to others", leave(budget.Look/2), [2]bool{false, true})
		check.Equal(t, "the elected one cannot keep up", leave(budget.Look), [2]bool{false, false})
		cancel()
		running.Wait()
		check.Equal(t, "its term is over", leave(budget.Look/2), [2]bool{true, true})
	})
}

func TestOneServerAwayDoesNotStopTheRest(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o1", "u1")
		s.cancel("o1")
		s.fail("queue.backlog", errors.New("away"))
		s.reconcileFor(t, 5*time.Second)
		check.Equal(t, "what remains", s.remaining(), 10)
	})
}

// A sale put off by hours is watched no more: earlier reservations of a dead process still become orders.
func TestReservationsOfASaleThatWasPutOffAreSettled(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.admit("o1", "u1") // and never published
		go func() {
			servicetest.Pass(3 * time.Second) // after the first sweep
			s.mu.Lock()
			defer s.mu.Unlock()
			s.unwatched = true
		}()
		s.settles(t, 20*time.Second)
		check.That(t, s.rows["o1"].Live(), "%+v", s.rows["o1"])
	})
}

// However many vouchers there are, a sweep costs a bounded part of a core.
func TestALongSweepIsFollowedByALongRest(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond: budget.Answer, 40 * time.Millisecond: 8 * time.Second, time.Minute: budget.Step,
	} {
		check.Equal(t, fmt.Sprint("the rest behind a sweep of ", took),
			rest(took, sweepShare, budget.Answer, budget.Step), want)
	}
	onStage(t, func(t *testing.T, s *stage) {
		s.on["db.watched"] = func() error { servicetest.Pass(40 * time.Millisecond); return nil }
		s.Reconciler.Run(servicetest.Lasting(t, 21*time.Second))
		check.Equal(t, "sweeps in 21 s", s.count("db.watched"), 3)
	})
}

// The instance of the change is dead: another one closes the draw's hot copy.
func TestTheCopyOfADrawIsClosed(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.record.Draw = true
		s.reconcileFor(t, time.Minute)
		check.Equal(t, "the hot copy", s.hot().State(), model.CopyClosed)
		check.Equal(t, "times it was closed", s.count("hot.close"), 1)
	})
}

type shelf struct {
	dbSide

	records []model.EpochRecord
}

func (s shelf) Watched(context.Context) ([]model.EpochRecord, error) {
	return s.records, s.step("db.watched")
}

type readings struct {
	HotCopies

	of map[string]int
}

func (r readings) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	for _, id := range ids {
		r.of[id]++
	}
	return r.HotCopies.Read(ctx, ids)
}

// One question in each look, three for all vouchers in each sweep, one reading of a copy in so many sweeps.
func TestQuietVouchersCostNextToNothing(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		const vouchers = 10 * closerSweeps
		all, hot := shelf{dbSide: dbSide{s}}, readings{s.redis, map[string]int{}}
		for i := range vouchers {
			v := s.voucher
			v.ID = fmt.Sprint("quiet", i)
			s.redis.Add(v)
			all.records = append(all.records, model.EpochRecord{
				VoucherID: v.ID, Epoch: 1, OpenEpoch: 1,
				Revision: v.Revision,
			})
		}
		r := s.Reconciler
		r.deps.Epochs, r.deps.Hot = all, hot
		check.Must(t, r.watch(t.Context()))
		check.Equal(t, "hot copies read in the first sweep", len(hot.of), vouchers)
		clear(hot.of)
		s.steps = nil
		const looks = closerSweeps * int(budget.Answer/budget.Brief)
		for range looks {
			servicetest.Pass(budget.Brief)
			check.Must(t, r.watch(t.Context()))
		}
		for i := range vouchers {
			id := fmt.Sprint("quiet", i)
			check.That(t, hot.of[id] == 1,
				"the hot copy of %s was read %d times in %d sweeps", id, hot.of[id], closerSweeps)
		}
		for step, want := range map[string]int{
			"db.watched": closerSweeps, "hot.quiet": closerSweeps, "hot.read": closerSweeps, "hot.incarnation": looks,
		} {
			check.Equal(t, "how often it was asked: "+step, s.count(step), want)
		}
		check.Equal(t, "questions altogether", len(s.steps), looks+3*closerSweeps)
	})
}
