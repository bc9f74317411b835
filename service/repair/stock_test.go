package repair

import (
	"errors"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

func to(stock int64) model.StockChange { return model.StockChange{Stock: &stock} }

// A new voucher is loaded at once, or answered without its copy. Other vouchers' messages do not matter.
func TestANewVoucherIsLoadedAtOnce(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.publish(model.Reservation{Order: model.Order{ID: "o.v2", VoucherID: "v2", UserID: "u"}, Epoch: 1})
		s.redis.Lose()
		s.record = model.EpochRecord{VoucherID: "v1"}
		s.Stock.Created(t.Context(), "v1")
		check.That(t, s.hot().State() == model.CopyOpen && s.hot().Epoch() == 1 && s.remaining() == 10, "%+v", s.hot())
		s.redis.Lose()
		s.fail("hot.close", errors.New("away"))
		s.Stock.Created(t.Context(), "v1")
		s.messages, s.on = nil, map[string]func() error{}
		s.settles(t, 15*time.Second)
	})
}

func TestChangesReachTheCopyAtOnce(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.voucher.Price = 777
		s.voucher.Revision++
		s.Stock.Patched(t.Context(), s.voucher)
		check.Equal(t, "the price", s.hot().Voucher().Price, 777)
		if _, err := s.Stock.Change(t.Context(), "v1", to(20), model.Idempotency{}); err != nil || s.remaining() != 20 {
			t.Errorf("%v, %d remain", err, s.remaining())
		}
		away := 3
		s.on["hot.apply"] = func() error {
			if away--; away >= 0 {
				return errors.New("away")
			}
			return nil
		}
		check.Value(s.Stock.Change(t.Context(), "v1", to(30), model.Idempotency{}))(t)
		check.Equal(t, "what remains after a short absence", s.remaining(), 30)
		s.fail("hot.apply", errors.New("away"))
		if _, err := s.Stock.Change(t.Context(), "v1", to(40), model.Idempotency{}); err != nil {
			t.Errorf("the change is committed: %v", err)
		}
	})
}

// What is committed is obeyed although the database is away by then, also where users may wait.
func TestAChangeReachesTheCopyWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.voucher.Waitlist, s.voucher.Price, s.voucher.ServerTime = true, 777, s.voucher.BeginAt
		s.voucher.Revision++
		s.fail("db.read", errors.New("away"))
		s.Stock.Patched(t.Context(), s.voucher)
		check.Equal(t, "the price", s.hot().Voucher().Price, 777)
	})
}

// A change finds the hot copy closed, whose rebuild has read the voucher before.
func TestARebuildBringsWhatWasCommittedMeanwhile(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.on["db.open"] = func() error {
			s.voucher.Price = 777
			s.voucher.Revision++
			return nil
		}
		check.Must(t, s.Rebuilder.Do(t.Context(), "v1", model.AnyEpoch))
		check.Equal(t, "the price", s.hot().Voucher().Price, 777)
	})
}

// A sold-out copy with a waitlist is rebuilt with the orders of those who waited, rather than grown in place.
func TestARestockRebuildsWhereUsersMayWait(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.voucher.Waitlist = true
		s.voucher.Revision++
		s.Stock.Patched(t.Context(), s.voucher)
		epoch := s.hot().Epoch()
		check.Value(s.Stock.Change(t.Context(), "v1", to(12), model.Idempotency{}))(t)
		check.That(t, s.hot().Epoch() == epoch && s.remaining() == 12, "a copy with units left: %+v", s.hot())
		s.admits(12)
		check.Value(s.Stock.Change(t.Context(), "v1", to(13), model.Idempotency{}))(t)
		check.That(t, s.hot().Epoch() > epoch && s.hot().State() == model.CopyOpen, "a sold-out copy: %+v", s.hot())
	})
}

// The copy promises before the database knows: a smaller stock must not undercut what is reserved.
func TestStockShrinksInTheCopyFirst(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.admits(6)
		_, err := s.Stock.Change(t.Context(), "v1", to(5), model.Idempotency{})
		if model.CodeOf(err) != model.CodeConflict || s.voucher.Stock != 10 || s.hot().Voucher().Stock != 10 ||
			len(s.intents) != 0 {
			t.Errorf("below what is reserved: %v, %d in the database, %d in the copy", err, s.voucher.Stock,
				s.hot().Voucher().Stock)
		}
		check.Equal(t, "changes of the database, which is not changed first", s.count("db.changestock"), 0)
		if _, err = s.Stock.Change(t.Context(), "v1", to(6), model.Idempotency{}); err != nil || s.remaining() != 0 ||
			s.voucher.Stock != 6 {
			t.Errorf("%v, %d remain, stock %d", err, s.remaining(), s.voucher.Stock)
		}
	})
}

func TestAStockThatCannotShrinkLeavesTheCopyAsItWas(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"hot.lower", "db.changestock"} {
		onStages(t, at, func(t *testing.T, s *stage) {
			s.fail(at, model.Unavailable("away", nil))
			_, err := s.Stock.Change(t.Context(), "v1", to(5), model.Idempotency{})
			if model.CodeOf(err) != model.CodeUnavailable || s.hot().Voucher().Stock != 10 || len(s.intents) != 0 {
				t.Errorf("%v, the copy has %d, %d intents", err, s.hot().Voucher().Stock, len(s.intents))
			}
		})
	}
	s := newStage(t)
	s.hot().Set("state", model.CopyClosed)
	_, err := s.Stock.Change(t.Context(), "v1", to(5), model.Idempotency{})
	servicetest.Hears(t, "the caller", err, model.CodeUnavailable)
}

// Concurrent changes of a stock follow one another without an error; only one of a dead process is reported.
func TestAStockThatIsBeingChangedIsChangedAfterwards(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"db.intendstock", "hot.lower", "db.changestock"} {
		onStages(t, at, func(t *testing.T, s *stage) {
			busy := 3
			s.mu.Lock()
			s.on[at] = func() error {
				if busy--; busy >= 0 {
					return model.Unavailable("another change is under way", model.ErrSuperseded)
				}
				return nil
			}
			s.mu.Unlock()
			v, err := s.Stock.Change(t.Context(), "v1", to(5), model.Idempotency{})
			check.That(t, err == nil && v.Stock == 5 && s.hot().Voucher().Stock == 5 && len(s.intents) == 0,
				"%+v, %v, the copy has %d, %d intents", v, err, s.hot().Voucher().Stock, len(s.intents))

			s.fail(at, model.Unavailable("another change is under way", model.ErrSuperseded))
			began := time.Now()
			_, err = s.Stock.Change(t.Context(), "v1", to(4), model.Idempotency{})
			servicetest.Hears(t, "a change that does not end", err, model.CodeUnavailable)
			servicetest.Took(t, "its answer", began, time.Second, 3*time.Second)
		})
	}
}
