package service

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository/hotcopy/hotcopytest"
	"seckill/service/sale/cache"
	"seckill/service/servicetest"
)

// shelf is a store of one voucher.
type shelf struct {
	VoucherStore // of the rest nothing is called

	table *servicetest.Table
	sold  int64
	count func()
}

func (s *shelf) List(context.Context, model.VoucherQuery) (model.VoucherPage, error) {
	v, err := s.table.GetMany(context.Background(), []string{"v1"})
	return model.VoucherPage{Items: []model.Voucher{v["v1"]}}, err
}

func (s *shelf) Stats(context.Context, string) (model.Stats, error) {
	v := s.table.Voucher
	stats := model.Stats{Stock: v.Stock, Remaining: v.Remaining, Sold: s.sold, OrdersByStatus: map[model.OrderStatus]int64{
		model.OrderUnpaid: s.sold, model.OrderProcessing: 0,
	}}
	if s.count != nil {
		s.count()
	}
	return stats, nil
}

// aside is where the vouchers of a shelf are sold.
type aside struct {
	table *servicetest.Table
	hot   *hotcopytest.Copies
	sale  *hotcopytest.Sale // in hot
}

// Three of ten units are sold in the database, and two more are reserved.
func newShelf(t *testing.T) (*Vouchers, *shelf, aside) {
	t.Helper()
	s := aside{table: servicetest.NewTable(), hot: hotcopytest.New(t)}
	s.sale, s.hot.Took = s.hot.Add(s.table.Voucher), servicetest.QueryTime
	entries := check.Value(cache.OfHotCopies(s.table, s.hot, telemetry.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { entries.Close(context.Background()) })
	s.table.Change(func(v *model.Voucher) { v.Title, v.Remaining = "Tea", 7 })
	for _, user := range []string{"a", "b", "c", "d", "e"} {
		s.sale.Mark(user, user+".v1")
	}
	for _, user := range []string{"d", "e"} {
		s.sale.Hold(model.Order{ID: user + ".v1", UserID: user})
	}
	rows := &shelf{table: s.table, sold: 3}
	return NewVouchers(VoucherDeps{Store: rows, Stock: SyncStock{rows}, Cache: entries}), rows, s
}

func TestVouchersAreShownAsTheyAreSold(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare   func(s aside)
		remaining int64
		phase     model.Phase
		reserved  int64
	}{
		"open":     {func(aside) {}, 5, model.PhaseLive, 2},
		"sold out": {func(s aside) { s.sale.Set("stock", 5) }, 0, model.PhaseSoldOut, 2},
		"closed":   {func(s aside) { s.sale.Set("state", model.CopyClosed) }, 7, model.PhaseLive, 0},
		"away":     {func(s aside) { s.hot.Down = errors.New("connection refused") }, 7, model.PhaseLive, 0},
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			vouchers, _, s := newShelf(t)
			tt.prepare(s)
			v, err := vouchers.Get(t.Context(), "v1", false)
			if err != nil || v.Remaining != tt.remaining || v.Reserved != tt.reserved || v.Phase != tt.phase || v.Title != "Tea" || v.ServerTime.IsZero() {
				t.Errorf("%+v, %v", v, err)
			}
			for _, phase := range model.Phases() {
				page, err := vouchers.List(t.Context(), model.VoucherQuery{Phase: phase})
				check.That(t, err == nil && page.Items != nil, "%+v, %v", page, err)
				if shown := len(page.Items) == 1; s.sale.State() == model.CopyOpen && s.hot.Down == nil && shown != (phase == tt.phase) {
					t.Errorf("asked for %s, shown %v", phase, shown)
				}
			}
			page, err := vouchers.List(t.Context(), model.VoucherQuery{})
			check.That(t, err == nil && len(page.Items) == 1 && page.Items[0].Remaining == tt.remaining && page.Items[0].Phase == tt.phase, "%+v, %v", page, err)
			stats, err := vouchers.Stats(t.Context(), "v1")
			if err != nil || stats.Reserved != tt.reserved || stats.OrdersByStatus[model.OrderProcessing] != tt.reserved ||
				stats.Remaining != tt.remaining || stats.Sold != 3 || stats.Stock != stats.Remaining+stats.Reserved+stats.Sold {
				t.Errorf("%+v, %v", stats, err)
			}
		})
	}
}

func TestViewNeedsTheDatabaseAndKnowsWhatIsNotThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		vouchers, _, s := newShelf(t)
		servicetest.WantCode(t, check.ErrorOf(vouchers.Get(t.Context(), "v2", true)), model.CodeNotFound)
		s.table.Fail(model.Unavailable("gone", nil))
		servicetest.WantCode(t, check.ErrorOf(vouchers.Get(t.Context(), "v1", true)), model.CodeUnavailable)
	})
}

// Counts that were taken across a cancellation are taken again.
func TestStatsAreNeverNegative(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		vouchers, rows, s := newShelf(t)
		rows.sold = 5
		rows.count = func() { // a user cancels between the two looks
			rows.count = nil
			rows.sold = 4
			s.sale.Drop("buyers", "a")
		}
		stats, err := vouchers.Stats(t.Context(), "v1")
		check.That(t, err == nil && stats.Reserved == 0 && stats.Sold == 4 && stats.Remaining == 6, "%+v, %v", stats, err)
		rows.sold = 9 // for good: the copy is wrong
		if stats, _ := vouchers.Stats(t.Context(), "v1"); stats.Reserved != 0 {
			t.Errorf("%+v", stats)
		}
	})
}
