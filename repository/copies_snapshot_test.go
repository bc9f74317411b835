package repository_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"seckill/model"
	"seckill/repository"
)

// TestSnapshot shows one instant, whatever is committed while it is read, and
// keeps nobody from writing.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	overAsync(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 10)
		f.opened(t, v.ID)
		f.onSale(t, 10)
		before := []model.Reservation{
			reservation(t, v.ID, "alice", 1, 1), reservation(t, v.ID, "bob", 1, 1), reservation(t, v.ID, "bob", 1, 1),
		}
		f.persist(t, before...)
		f.closed(t, v.ID, 1)
		err := f.copies.Snapshot(t.Context(), v.ID, 2, func(s *repository.Snapshot) error {
			later := reservation(t, v.ID, "carol", 2, 2)
			within(t, 2*time.Second, func(context.Context) { f.persist(t, later) })
			_, _, err := f.orders.Cancel(t.Context(), "alice", before[0].ID)
			must(t, err)
			ten := int64(10)
			_, err = f.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Delta: &ten}, model.Idempotency{})
			must(t, err)
			if got := s.Voucher(); got.Stock != 10 || got.Remaining != 8 || got.Price != v.Price || got.Phase != model.PhaseLive {
				t.Errorf("voucher %+v", got)
			}
			live := map[string]string{}
			must(t, s.Live(t.Context(), func(some []model.Order) error {
				for _, o := range some {
					live[o.UserID] = o.ID
					if o.VoucherID != v.ID {
						t.Errorf("order %+v", o)
					}
				}
				return nil
			}))
			if len(live) != 2 || live["alice"] != before[0].ID || live["bob"] != before[1].ID {
				t.Errorf("live %v", live)
			}
			found, err := s.Find(t.Context(), []string{before[0].ID, before[2].ID, later.ID, "absent"})
			must(t, err)
			if len(found) != 2 || found[before[0].ID].Status != model.OrderUnpaid || found[before[2].ID].Status != model.OrderFailed {
				t.Errorf("found %+v", found)
			}
			return nil
		})
		must(t, err)
		stop := errors.New("enough")
		if err := f.copies.Snapshot(t.Context(), v.ID, 2, func(s *repository.Snapshot) error {
			return s.Live(t.Context(), func([]model.Order) error { return stop })
		}); !errors.Is(err, stop) || model.CodeOf(err) != model.CodeInternal {
			t.Errorf("error %v, want the caller's own", err)
		}
		unused := func(*repository.Snapshot) error { t.Error("shown"); return nil }
		wantSuperseded(t, f.copies.Snapshot(t.Context(), v.ID, 1, unused))
		wantCode(t, f.copies.Snapshot(t.Context(), "absent", 1, unused), model.CodeNotFound)
		wantCode(t, f.copies.Snapshot(t.Context(), "no id!", 1, unused), model.CodeNotFound)
		f.balanced(t, v.ID, 2)
	})
}

// TestSnapshotOfManyBuyers reads 100,000 live orders, and nobody twice.
func TestSnapshotOfManyBuyers(t *testing.T) {
	t.Parallel()
	const buyers = 100_000
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, buyers)
		for from := 0; from < buyers; from += 10_000 {
			asked := make([]model.Order, 10_000)
			for i := range asked {
				asked[i] = order(t, v.ID, fmt.Sprintf("u%d", from+i))
			}
			f.create(t, asked...)
		}
		_, err := f.copies.Close(t.Context(), v.ID, 0)
		must(t, err)
		seen := make(map[string]bool, buyers)
		began := time.Now()
		must(t, f.copies.Snapshot(t.Context(), v.ID, 1, func(s *repository.Snapshot) error {
			return s.Live(t.Context(), func(some []model.Order) error {
				for _, o := range some {
					seen[o.UserID] = true
				}
				return nil
			})
		}))
		took := time.Since(began)
		t.Logf("%d buyers in %s", len(seen), took)
		if len(seen) != buyers || took > 5*time.Second { // 0.2 s alone, on a machine that does something else besides
			t.Errorf("%d buyers in %s", len(seen), took)
		}
	})
}
