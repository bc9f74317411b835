package persist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository/hotcopy/hotcopytest"
	"seckill/service/servicetest"
)

const longestRest = 2 * time.Second

type ledger struct {
	mu      sync.Mutex
	rows    map[string]model.OrderStatus
	calls   int
	refuses func(model.Reservation) error // of a row; nil: it is stored
}

func (s *ledger) Persist(_ context.Context, batch []model.Reservation) ([]model.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	for _, r := range batch {
		if err := s.refuses(r); err != nil {
			return nil, err
		}
	}
	outcomes := make([]model.Outcome, len(batch))
	for i, r := range batch {
		r.Status = model.OrderUnpaid
		s.rows[r.ID] = r.Status
		outcomes[i] = model.Outcome{Order: r.Order, Created: true}
	}
	return outcomes, nil
}

func (s *ledger) Fail(_ context.Context, r model.Reservation, reason string) (model.Order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Status, r.Reason = model.OrderFailed, reason
	s.rows[r.ID] = r.Status
	return r.Order, nil
}

func (s *ledger) DoneOrders(context.Context, []string) error { return nil }

type letters struct{}

func (letters) Bury(context.Context, model.DeadLetter) error { return nil }

var errData = fmt.Errorf("%w: 1366: incorrect value", model.ErrDataRefused)

func (s *ledger) counts(status model.OrderStatus) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, found := range s.rows {
		if found == status {
			n++
		}
	}
	return n
}

func newLedger(t *testing.T, refuses func(model.Reservation) error) (*ledger, *Persister) {
	t.Helper()
	s := &ledger{rows: map[string]model.OrderStatus{}, refuses: refuses}
	parts := Deps{
		Database: s, Hot: hotcopytest.New(t), Queue: letters{}, Rebuild: func(string, int64) {},
		Metrics: telemetry.NewWorker(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	}
	p := New(parts, NewSettler(parts))
	t.Cleanup(func() { p.Close(context.Background()) })
	return s, p
}

func asks(voucherID string, n int) []model.Reservation {
	all := make([]model.Reservation, n)
	for i := range all {
		all[i] = model.Reservation{Epoch: 1, Order: model.Order{
			ID: fmt.Sprintf("o%d.%s", i, voucherID), VoucherID: voucherID, UserID: fmt.Sprint("u", i),
			CreatedAt: time.Now(),
		}}
	}
	return all
}

// persistAll repeats what is left until all orders are done, and returns what the first try left.
func persistAll(t *testing.T, p *Persister, batch []model.Reservation) (again []model.Reservation) {
	t.Helper()
	for n := 0; len(batch) > 0; n++ {
		var left []model.Reservation
		for i, verdict := range p.Persist(t.Context(), batch) {
			if verdict != nil {
				left = append(left, batch[i])
			}
		}
		if n == 0 {
			again = left
		}
		if batch = left; n > 20 {
			t.Fatalf("%d orders are left", len(batch))
		}
		servicetest.Pass(longestRest)
	}
	return again
}

// A refusal of one voucher's orders delays no other's, is rarely asked about, and ends soon after its cause.
func TestTheTroubleOfAVoucherIsItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := true
		s, p := newLedger(t, func(r model.Reservation) error {
			if bad && r.VoucherID == "v0" {
				return errors.New("1644: not now")
			}
			return nil
		})
		first := slices.Concat(asks("v0", 3), asks("v1", 3), asks("v2", 3))
		for i, verdict := range p.Persist(t.Context(), first) {
			check.That(t, (verdict != nil) == (first[i].VoucherID == "v0"), "%s: %v", first[i].ID, verdict)
		}
		check.That(t, s.calls <= 4, "%d transactions for three vouchers", s.calls)
		for n := range 100 { // what comes within a minute
			servicetest.Pass(600 * time.Millisecond)
			batch := slices.Concat(asks("v0", 3), asks(fmt.Sprint("w", n), 3))
			verdicts := p.Persist(t.Context(), batch)
			if verdicts[0] == nil || errors.Is(verdicts[0], model.ErrOutage) || verdicts[3] != nil ||
				verdicts[5] != nil {
				t.Fatalf("after %d batches: %v", n, verdicts)
			}
		}
		check.That(t, s.calls <= 150, "%d transactions in a minute: the voucher is tried too often", s.calls)
		if got := p.Persist(t.Context(), asks("v0", 1)); !errors.Is(got[0], model.ErrNotTried) ||
			model.CodeOf(got[0]) != model.CodeUnavailable {
			t.Errorf("right after it was tried: %v", got[0])
		}
		bad = false
		servicetest.Pass(longestRest)
		for _, verdict := range p.Persist(t.Context(), asks("v0", 3)) {
			check.That(t, verdict == nil, "it is well again: %v", verdict)
		}
	})
}

func TestADatabaseThatIsAwayIsNotAskedForEachVoucher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := true
		s, p := newLedger(t, func(model.Reservation) error {
			if away {
				return model.Unavailable("away", nil)
			}
			return nil
		})
		var batch []model.Reservation
		for i := range 500 {
			batch = append(batch, asks(fmt.Sprint("v", i), 1)...)
		}
		own := 0
		for _, verdict := range p.Persist(t.Context(), batch) {
			if !errors.Is(verdict, model.ErrOutage) {
				own++
			}
		}
		check.That(t, s.calls <= 1+fruitless+loneWriters, "%d transactions", s.calls)
		check.That(t, own <= fruitless+loneWriters, "%d vouchers are said to have trouble of their own", own)
		away = false
		servicetest.Pass(longestRest)
		if verdicts := p.Persist(t.Context(), batch); slices.ContainsFunc(verdicts,
			func(err error) bool { return err != nil }) {
			t.Errorf("back, and %v", verdicts)
		}
	})
}

// The twenty are in one message ahead of all others: they are set aside, and delay no other voucher.
func TestManyPoisonedOrdersHoldUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		poisoned := map[string]bool{}
		for _, r := range asks("v0", 20) {
			poisoned[r.ID] = true
		}
		s, p := newLedger(t, func(r model.Reservation) error {
			if poisoned[r.ID] {
				return errData
			}
			return nil
		})
		again := persistAll(t, p, slices.Concat(asks("v0", 200), asks("v1", 5)))
		check.Need(t, !slices.ContainsFunc(again, func(r model.Reservation) bool { return r.VoucherID == "v1" }),
			"the other voucher waits: %v", again)
		check.That(t, s.counts(model.OrderUnpaid) == 185 && s.counts(model.OrderFailed) == 20, "%d stored, %d failed",
			s.counts(model.OrderUnpaid), s.counts(model.OrderFailed))
	})
}

// While no other row proves the database well, a refused order is not given up at once.
func TestALonePoisonedOrderIsNotBuriedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := true
		s, p := newLedger(t, func(r model.Reservation) error {
			if bad || r.VoucherID == "v1" {
				return errData
			}
			return nil
		})
		for begun := time.Now(); time.Since(begun) < 3*time.Second; <-time.After(200 * time.Millisecond) {
			if verdicts := p.Persist(t.Context(), asks("v0", 1)); model.CodeOf(verdicts[0]) != model.CodeUnavailable {
				t.Fatalf("after %s: %v", time.Since(begun), verdicts[0])
			}
		}
		bad = false
		if verdicts := p.Persist(t.Context(), asks("v0", 1)); verdicts[0] != nil || s.counts(model.OrderUnpaid) != 1 {
			t.Errorf("the database is well again: %v", verdicts[0])
		}
		var verdicts []error
		for begun := time.Now(); time.Since(begun) < 2*budget.Step; <-time.After(time.Second) {
			if verdicts = p.Persist(t.Context(), asks("v1", 1)); verdicts[0] == nil {
				break
			}
		}
		check.That(t, verdicts[0] == nil && s.counts(model.OrderFailed) == 1, "it is refused for good: %v", verdicts[0])
	})
}

func TestADatabaseThatIsWellAgainWithinABatchBuriesNothing(t *testing.T) {
	t.Parallel()
	for bad := range 40 { // calls
		synctest.Test(t, func(t *testing.T) {
			var s *ledger
			s, p := newLedger(t, func(model.Reservation) error {
				if s.calls <= bad {
					return errData
				}
				return nil
			})
			persistAll(t, p, slices.Concat(asks("v0", 4), asks("v1", 4)))
			failed := s.counts(model.OrderFailed)
			check.That(t, failed <= 0, "%d good orders failed after %d refused transactions", failed, bad)
		})
	}
}

// Dividing the orders behind a slow locked row must not delay the acknowledgements of others for each part.
func TestASlowTroubleIsNotDividedForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = 4 * time.Second
		_, p := newLedger(t, func(model.Reservation) error {
			servicetest.Pass(slow)
			return model.Unavailable("The row is locked.", nil)
		})
		for range 8 {
			begun := time.Now()
			p.Persist(t.Context(), asks("v1", 500))
			servicetest.Took(t, "a batch", begun, 0, slow+budget.Look)
			servicetest.Pass(longestRest)
		}
	})
}

func TestMain(m *testing.M) { servicetest.Main(m) }
