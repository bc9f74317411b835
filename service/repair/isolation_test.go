package repair

import (
	"context"
	"errors"
	"testing"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/persist"
	"seckill/service/servicetest"
)

// One node of a Cluster that is away has the copy of the voucher v0; that of v1
// is on another one. Nothing that v1 needs may wait for v0.

var errNode = errors.New("the node is away")

// both are the records of both vouchers.
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

// lookWithout takes looks at everything while v0 cannot be asked.
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

// After a loss those come first that are on sale, in whatever order they are found.
func TestWhatIsOnSaleIsRebuiltFirst(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.Reconciler.deps.Epochs = both{dbSide{s}} // v0 is not on sale, and is read first
		s.redis.Lose()
		check.Must(t, s.Reconciler.watch(t.Context()))
		for _, want := range []string{"v1", "v0"} {
			id, _ := s.Rebuilder.next()
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
		s.rows["o3"] = model.Order{ID: "o3", VoucherID: "v1", UserID: "u3", Status: model.OrderFailed, Reason: model.ReasonSoldOut}
		s.rows["o2"] = model.Order{ID: "o2", VoucherID: "v1", UserID: "u2", Status: model.OrderUnpaid}
		s.voucher.Remaining--
		err := s.Settler.Tell(t.Context(), []persist.Decided{
			{Row: model.Order{ID: "y", VoucherID: "v0", UserID: "u", Status: model.OrderUnpaid}},
			{Reservation: settled, Row: s.rows["o2"]},
			{Reservation: soldOut, Row: s.rows["o3"]},
		})
		check.That(t, errors.Is(err, errNode) && len(s.hot().Pending()) == 0, "%v, %d reservations", err, len(s.hot().Pending()))
		check.Equal(t, "calls to settle a group", s.redis.Calls("Settle"), 1)
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
			s.intents = append(s.intents, model.StockIntent{VoucherID: id, Stock: 5, Revision: 1, CreatedAt: time.Now()})
		}
		servicetest.Pass(budget.Step)
		s.on["db.dropintent"] = func() error { // of v0
			delete(s.on, "db.dropintent")
			return errNode
		}
		err := s.Reconciler.dropIntents(t.Context())
		check.That(t, errors.Is(err, errNode) && len(s.intents) == 1 && s.intents[0].VoucherID == "v0", "%v, left are %+v", err, s.intents)
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
		if row := s.rows["o1"]; !row.Live() {
			t.Errorf("%+v", row)
		}
	})
}
