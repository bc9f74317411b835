package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/persist"
	"seckill/service/servicetest"
)

func TestPersistedOrdersAreSettled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, r := range s.admits(5) {
		s.publish(r)
	}
	s.work(t)
	check.That(t, s.count("hot.settle") == 1 && s.count("db.persist") == 1,
		"%d settle calls and %d transactions for one batch", s.count("hot.settle"), s.count("db.persist"))
	s.balanced(t)
	check.Equal(t, "messages that are left", len(s.messages), 0)
}

func TestADatabaseThatRefusesEverythingBuriesNothing(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"away":    model.Unavailable("away", nil),
		"unknown": fmt.Errorf("commit: %w", model.ErrUnknownOutcome),
		"timeout": fmt.Errorf("persist: %w", context.DeadlineExceeded),
		"altered": errors.New("1146: no such table"),
		"a bug":   &model.Error{Code: model.CodeInternal, Detail: "what is this"},
		"refused": model.Conflict("this says nothing of one order"),
		"data":    fmt.Errorf("insert: %w", errData),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.fail("db.persist", err)
			s.offer(100)
			for i, verdict := range s.Persister.Persist(t.Context(), s.admits(100)) {
				check.That(t, errors.Is(verdict, err), "verdict %d: %v", i, verdict)
			}
			check.Equal(t, "orders buried", len(s.letters), 0)
			check.That(t, s.count("db.persist") == 1 || name == "data", "%d attempts", s.count("db.persist"))
		})
	}
}

func TestPoisonIsFoundAmongManyAndItsUnitComesBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.offer(500)
	batch := s.admits(500)
	s.poison["o317"] = true
	s.publish(batch...)
	s.work(t)
	check.Need(t, len(s.letters) == 1 && s.letters[0].Reservation.ID == "o317" && s.letters[0].Reason != "",
		"letters: %+v", s.letters)
	if row := s.rows["o317"]; row.Status != model.OrderFailed || row.Reason != model.ReasonUnprocessable {
		t.Errorf("the poison's row: %+v", row)
	}
	s.balanced(t)
	if s.voucher.Remaining != 1 || s.remaining() != 1 || len(s.messages) != 0 || len(s.outbox) != 0 {
		t.Errorf("%d and %d remain, %d messages, %d releases", s.voucher.Remaining, s.remaining(), len(s.messages),
			len(s.outbox))
	}
	check.Equal(t, "failed orders counted", servicetest.Counted(t, s.metrics, "seckill_orders_failed_total"), 1)
}

func TestTheLetterIsWrittenBeforeTheRow(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.poison["o1"] = true
	s.fail("queue.bury", errors.New("no stream"))
	batch := func() []model.Reservation { return []model.Reservation{s.admit("o1", "u1"), s.admit("o2", "u2")} }
	verdicts := s.Persister.Persist(t.Context(), batch())
	check.That(t, model.CodeOf(verdicts[0]) == model.CodeUnavailable && s.count("db.fail") == 0, "%v, %d failed rows",
		verdicts[0], s.count("db.fail"))
	s.fail("queue.bury", nil)
	s.fail("db.fail", model.Unavailable("away", nil))
	verdicts = s.Persister.Persist(t.Context(), batch())
	check.That(t, model.CodeOf(verdicts[0]) == model.CodeUnavailable && len(s.letters) == 1,
		"the database went away behind the letter: %v", verdicts[0])
}

// The message is the promise: it goes when a row is committed, and stays while none can be.
func TestWithoutARowNothingIsAcknowledged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.poison["o1"] = true
	s.fail("db.fail", fmt.Errorf("insert: %w", errData))
	batch := func() []model.Reservation { return []model.Reservation{s.admit("o1", "u1"), s.admit("o2", "u2")} }
	for range 3 {
		if verdicts := s.Persister.Persist(t.Context(), batch()); model.CodeOf(verdicts[0]) != model.CodeUnavailable ||
			verdicts[1] != nil {
			t.Errorf("an order without a row: %v", verdicts)
		}
	}
	if servicetest.Counted(t, s.metrics, "seckill_orders_buried_stuck_total") != 1 ||
		servicetest.Counted(t, s.metrics, "seckill_orders_buried_total") != 1 {
		t.Error("what comes again is counted again")
	}
	s.fail("db.fail", nil)
	if verdicts := s.Persister.Persist(t.Context(), batch()); verdicts[0] != nil ||
		s.rows["o1"].Status != model.OrderFailed {
		t.Errorf("its row can be written, and is %+v: %v", s.rows["o1"], verdicts)
	}
	// A row of that id is committed, though not this order's: no other can be.
	s.poison["o3"] = true
	s.fail("db.fail", model.Conflict("The order's id belongs to another order."))
	verdicts := s.Persister.Persist(t.Context(), []model.Reservation{s.admit("o3", "u3"), s.admit("o4", "u4")})
	check.That(t, verdicts[0] == nil && s.letters[len(s.letters)-1].Reservation.ID == "o3",
		"an id that belongs to another order: %v", verdicts)
}

func TestUnstorableOrdersAreBuriedAtOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	stray := s.admit("o1", "u1")
	s.unfit[stray.ID] = model.Invalid("order_id", "no column takes it")
	verdicts := s.Persister.Persist(t.Context(), []model.Reservation{stray, s.admit("o2", "u2")})
	if slices.ContainsFunc(verdicts, func(err error) bool { return err != nil }) || len(s.letters) != 1 ||
		s.count("db.persist") != 1 {
		t.Errorf("%v, %d letters, %d attempts", verdicts, len(s.letters), s.count("db.persist"))
	}
	check.That(t, s.rows["o2"].Live(), "the order beside it was not stored")
}

// A voucher's row may be away while its table is loaded: its orders wait, and hold up no other voucher's.
func TestOrdersWaitForAVoucherThatIsNotThere(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		log := &check.Log{}
		s.Worker = s.employ(servicetest.NewLocks(), func(p *Deps) { p.Log = log.Logger() })
		away := s.admit("o1", "u1")
		s.publish(away)
		s.voucher.ID = "v9" // the row of v1 is gone
		for range 100 {
			s.work(t)
			servicetest.Pass(100 * time.Millisecond)
		}
		check.Need(t, len(s.letters) == 0 && len(s.messages) == 1,
			"%d letters, %d messages", len(s.letters), len(s.messages))
		tries := s.count("db.persist")
		check.That(t, tries <= 15, "the voucher was tried %d times in 10 s", tries)
		check.That(t, log.Has("a voucher that is not in the database", "level=ERROR", "voucher_id=v1"),
			"the operator is not told:\n%s", log)
		check.Equal(t, "how often", strings.Count(log.String(), "a voucher that is not in the database"), 1)
		s.voucher.ID = "v1"
		s.settles(t, 20*time.Second)
		check.That(t, s.rows["o1"].Live() && s.remaining() == 9, "%+v, %d remain", s.rows["o1"], s.remaining())
	})
}

// A refusal by the database shows a stale copy: its orders fail, and one rebuild puts everything right.
func TestARefusalByTheDatabaseReplacesTheCopy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stale  func(*stage)
		reason string
		sold   int64
	}{
		"a unit too many": {func(s *stage) { s.voucher.Stock, s.voucher.Remaining = 1, 1 }, model.ReasonSoldOut, 1},
		"lost marks": {func(s *stage) {
			for i := range 5 {
				s.sell(fmt.Sprint("live", i), fmt.Sprint("u", i))
				s.hot().Drop("buyers", fmt.Sprint("u", i))
			}
		}, model.ReasonAlreadyOrdered, 5},
	} {
		onStages(t, name, func(t *testing.T, s *stage) {
			tt.stale(s)
			reserved := s.admits(5)
			s.publish(reserved...)
			s.work(t)
			if n := s.count("hot.release"); n != 0 || len(s.hot().Marks()) != 5 || len(s.hot().Pending()) != 0 {
				t.Errorf("%d releases, %d marks, %d reservations", n, len(s.hot().Marks()), len(s.hot().Pending()))
			}
			check.Equal(t, "the reason", s.rows["o4"].Reason, tt.reason)
			s.settles(t, 10*time.Second)
			check.That(t, s.hot().Epoch() == 2 && len(s.outbox) == 0 && s.remaining() == s.voucher.Stock-tt.sold,
				"epoch %d, %d releases, %d remain", s.hot().Epoch(), len(s.outbox), s.remaining())
			s.publish(reserved...) // late, and of an epoch that is gone
			s.work(t)
			s.reconcileFor(t, 10*time.Second)
			if s.balanced(t); s.hot().Epoch() != 2 {
				t.Errorf("what came late caused a rebuild: epoch %d", s.hot().Epoch())
			}
		})
	}
}

// Units that an operator took out cost a refusal and a rebuild, and no series of them.
func TestUnitsTheDatabaseDoesNotHaveAreNotSold(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.sell("o0", "u0")
		s.voucher.Remaining = 2 // of 9
		buy := func(from, to int) (admitted int) {
			for i := from; i < to; i++ {
				answers := check.Value(s.redis.Reserve(t.Context(), []model.ReserveRequest{{
					OrderID: fmt.Sprint("o", i), UserID: fmt.Sprint("u", i), VoucherID: "v1",
				}}))(t)
				if answers[0].Err == nil {
					s.publish(answers[0].Reservation)
					admitted++
				}
			}
			return admitted
		}
		buy(1, 4)
		s.reconcileFor(t, 10*time.Second)
		check.That(t, s.hot().Epoch() == 2 && s.remaining() == 0 && s.rows["o3"].Reason == model.ReasonSoldOut,
			"epoch %d, %d remain, %+v", s.hot().Epoch(), s.remaining(), s.rows["o3"])
		check.Equal(t, "orders admitted to units that are not there", buy(4, 9), 0)
		audit, err := s.Auditor.Audit(t.Context(), "v1")
		check.That(t, err == nil && !audit.Balanced, "the audit does not name it: %+v, %v", audit, err)
		s.reconcileFor(t, time.Minute)
		check.Equal(t, "the epoch, as nothing is rebuilt again", s.hot().Epoch(), 2)
	})
}

func TestALateMessageRevivesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.admit("o1", "u1")
	s.publish(r)
	s.work(t)
	s.cancel("o1")
	s.publish(r)
	s.work(t)
	s.balanced(t)
	check.That(t, s.rows["o1"].Status == model.OrderCanceled && s.remaining() == 10, "%s, %d remain",
		s.rows["o1"].Status, s.remaining())
}

func TestACopyThatCannotBeToldChangesNoVerdict(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.fail("hot.settle", model.Unavailable("away", nil))
		s.fail("hot.release", model.Unavailable("away", nil))
		s.publish(s.admit("o1", "u1"))
		s.work(t)
		check.That(t, len(s.messages) == 0 && s.rows["o1"].Live(), "%d messages, %+v", len(s.messages), s.rows["o1"])
		s.on = map[string]func() error{}
		s.settles(t, 10*time.Second)
	})
}

// A Cluster's node that is away has the copy of v0, and another one that of v1, which must not wait.

var errNode = errors.New("the node is away")

type both struct{ dbSide }

func (b both) Watched(ctx context.Context) ([]model.EpochRecord, error) {
	records, err := b.dbSide.Watched(ctx)
	return append([]model.EpochRecord{{VoucherID: "v0", Epoch: 1, OpenEpoch: 1}}, records...), err
}

func (b both) Read(ctx context.Context, ids []string) (map[string]model.EpochRecord, error) {
	records, err := b.dbSide.Read(ctx, ids)
	records["v0"] = model.EpochRecord{VoucherID: "v0", Epoch: 1, OpenEpoch: 1}
	return records, err
}

func (s *stage) lookWithout(t *testing.T) {
	t.Helper()
	r := s.Reconciler
	r.deps.Epochs = both{dbSide{s}}
	s.redis.Away["v0"] = errNode
	for range 3 {
		check.That(t, r.watch(t.Context()) != nil, "nobody is told that v0 is away")
		servicetest.Pass(budget.Brief)
	}
}

func TestACopyThatCannotBeAskedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.admit("o1", "u1") // its publisher dies
		servicetest.Pass(time.Minute)
		s.lookWithout(t)
		s.work(t)
		check.That(t, s.rows["o1"].Live(), "what a dead process left is not published again")
		s.redis.Lose()
		s.lookWithout(t)
		s.serveRebuilds(t.Context())
		s.balanced(t)
	})
}

func TestWhatIsOnSaleIsRebuiltFirst(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.Reconciler.deps.Epochs = both{dbSide{s}} // v0 is not on sale, and is read first
		s.redis.Lose()
		check.Must(t, s.Reconciler.watch(t.Context()))
		for _, want := range []string{"v1", "v0"} {
			id, _, _ := s.Rebuilder.next()
			check.Equal(t, "the next", id, want)
		}
	})
}

func TestACopyThatCannotBeToldHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.redis.Away["v0"] = errNode
		s.outbox = append(s.outbox, model.Release{ID: 1, OrderID: "x", VoucherID: "v0", UserID: "u"})
		s.sell("o1", "u1")
		s.cancel("o1")
		r := s.Reconciler.outbox
		if err := r.pass(t.Context()); !errors.Is(err, errNode) || s.remaining() != 10 || len(s.outbox) != 1 {
			t.Errorf("%v, %d remain, %d releases wait", err, s.remaining(), len(s.outbox))
		}

		settled, soldOut := s.admit("o2", "u2"), s.admit("o3", "u3")
		s.rows["o3"] = model.Order{
			ID: "o3", VoucherID: "v1", UserID: "u3", Status: model.OrderFailed,
			Reason: model.ReasonSoldOut,
		}
		s.rows["o2"] = model.Order{ID: "o2", VoucherID: "v1", UserID: "u2", Status: model.OrderUnpaid}
		s.voucher.Remaining--
		err := s.Settler.Tell(t.Context(), []persist.Decided{
			{Row: model.Order{ID: "y", VoucherID: "v0", UserID: "u", Status: model.OrderUnpaid}},
			{Reservation: settled, Row: s.rows["o2"]},
			{Reservation: soldOut, Row: s.rows["o3"]},
		})
		check.That(t, errors.Is(err, errNode) && len(s.hot().Pending()) == 0, "%v, %d reservations", err,
			len(s.hot().Pending()))
		check.Equal(t, "calls to settle a group", s.redis.Calls("settle"), 1)
		s.serveRebuilds(t.Context())
		if s.balanced(t); s.hot().Epoch() != 2 {
			t.Error("the copy that sells too much is not replaced")
		}
	})
}

func TestAnIntentThatCannotBeTakenBackHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		for _, id := range []string{"v0", "v1"} {
			s.intents = append(s.intents, model.StockIntent{
				VoucherID: id, Stock: 5, Revision: 1,
				CreatedAt: time.Now(),
			})
		}
		servicetest.Pass(budget.Step)
		s.on["db.dropintent"] = func() error { // of v0
			delete(s.on, "db.dropintent")
			return errNode
		}
		err := s.Reconciler.dropIntents(t.Context())
		check.That(t, errors.Is(err, errNode) && len(s.intents) == 1 && s.intents[0].VoucherID == "v0",
			"%v, left are %+v", err, s.intents)
	})
}

// A rebuild that opens between two readings gives what it carries another epoch, in which it must be published.
func TestOldReservationsArePublishedInTheEpochThatHoldsThem(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.admit("o1", "u1")
		servicetest.Pass(time.Minute)
		r := s.employ(servicetest.NewLocks()).Reconciler
		check.Must(t, r.watch(t.Context()))
		s.on["hot.due"] = func() error { // the copy was read before
			delete(s.on, "hot.due")
			return s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch)
		}
		servicetest.Pass(budget.Brief)
		check.Must(t, r.watch(t.Context()))
		s.work(t)
		row := s.rows["o1"]
		check.That(t, row.Live(), "%+v", row)
	})
}
