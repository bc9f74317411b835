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
			known, err := f.copies.Known(t.Context(), []string{before[0].ID, before[2].ID, later.ID, "absent", "no id!"})
			must(t, err)
			if len(known) != 3 || !known[before[0].ID] || !known[before[2].ID] || !known[later.ID] {
				t.Errorf("known %v", known)
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

// sell makes 20,000 orders by two statements: five digits make the users.
func (f *fixture) sell(t testing.TB, voucherID string) {
	t.Helper()
	const digits = "(SELECT '0' AS d UNION ALL SELECT '1' UNION ALL SELECT '2' UNION ALL SELECT '3' UNION ALL SELECT '4' " +
		"UNION ALL SELECT '5' UNION ALL SELECT '6' UNION ALL SELECT '7' UNION ALL SELECT '8' UNION ALL SELECT '9')"
	const join = "CONCAT(%s)"
	for first := range 2 {
		user := fmt.Sprintf("'u%d', b.d, c.d, d.d, e.d", first)
		f.exec(t, "INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at) SELECT "+
			fmt.Sprintf(join, user+", '.', vouchers.id")+", vouchers.id, "+fmt.Sprintf(join, user)+
			", 'unpaid', price, currency, created_at FROM vouchers, "+
			digits+" b, "+digits+" c, "+digits+" d, "+digits+" e WHERE vouchers.id = ?", voucherID)
	}
	f.exec(t, "UPDATE vouchers SET remaining = 0 WHERE id = ?", voucherID)
}

// TestSnapshotOfManyBuyers reads more pages than one, and nobody twice. (100,000
// orders took 0.15 to 0.3 s.)
func TestSnapshotOfManyBuyers(t *testing.T) {
	t.Parallel()
	const buyers = 20_000
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, buyers)
		f.sell(t, v.ID)
		_, err := f.copies.Close(t.Context(), v.ID, 0)
		must(t, err)
		seen := make(map[string]bool, buyers)
		rows := 0
		began := time.Now()
		must(t, f.copies.Snapshot(t.Context(), v.ID, 1, func(s *repository.Snapshot) error {
			return s.Live(t.Context(), func(some []model.Order) error {
				rows += len(some)
				for _, o := range some {
					seen[o.UserID] = true
				}
				return nil
			})
		}))
		if took := time.Since(began); len(seen) != buyers || rows != buyers || took > 3*time.Second {
			t.Errorf("%d buyers in %d rows, in %s", len(seen), rows, took)
		}
	})
}
