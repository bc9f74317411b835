package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
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
	"seckill/service/sale/cache"
	"seckill/service/servicetest"
)

type catalog struct {
	VoucherStore // of the rest nothing is called

	mu       sync.Mutex
	vouchers []model.Voucher
	took     time.Duration
	queries  int
	atOnce   int
	most     int
	err      error
}

func (c *catalog) List(_ context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queries++
	c.atOnce++
	c.most = max(c.most, c.atOnce)
	page := model.VoucherPage{Items: []model.Voucher{}}
	for _, v := range c.vouchers {
		if v = v.At(time.Now()); q.Phase == "" || v.Phase == q.Phase {
			page.Items = append(page.Items, v)
		}
	}
	took, err := c.took, c.err
	c.mu.Unlock()
	servicetest.Pass(took)
	c.mu.Lock()
	c.atOnce--
	return page, err
}

func cursor(n int) string { return model.Cursor{At: time.UnixMicro(int64(n)), ID: "v"}.String() }

// newCatalog sells one voucher for two seconds, beginning in one.
func newCatalog(t *testing.T) (*Vouchers, *catalog) {
	t.Helper()
	entries := check.Value(cache.New(servicetest.NewTable(), nil, telemetry.New(prometheus.NewRegistry()),
		slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { entries.Close(context.Background()) })
	now := time.Now()
	store := &catalog{took: 10 * time.Millisecond, vouchers: []model.Voucher{{
		ID: "v9", VoucherFields: model.VoucherFields{
			State: model.VoucherPublished, Stock: 1, Remaining: 1, BeginAt: now.Add(time.Second),
			EndAt: now.Add(3 * time.Second),
		},
	}}}
	return NewVouchers(VoucherDeps{
		Store: store, Stock: SyncStock{store}, Cache: entries, Selling: func() error { return nil },
		Announce: func(context.Context, string) error { return nil },
	}), store
}

// A crowd that asks for the same page costs three queries a second.
func TestListsAreReadOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		vouchers, store := newCatalog(t)
		check.Volley(30, func(int) {
			for began := time.Now(); time.Since(began) < 3*time.Second; servicetest.Pass(5 * time.Millisecond) {
				page := check.Value(vouchers.List(t.Context(), model.VoucherQuery{}))(t)
				check.That(t, len(page.Items) == 1 && time.Since(page.Items[0].ServerTime) <= store.took, "%+v", page)
			}
		})
		check.That(t, store.queries <= 12 && store.most <= 1, "%d queries in 3 s, %d at once", store.queries,
			store.most)
		// The same query in other words.
		before := store.queries
		asks := func(what string, query model.VoucherQuery, want model.Code, queries int) {
			servicetest.Hears(t, what, check.ErrorOf(vouchers.List(t.Context(), query)), want)
			check.Equal(t, what+": queries", store.queries-before, queries)
		}
		asks("in other words", model.VoucherQuery{Limit: 20}, "", 0)
		asks("nonsense", model.VoucherQuery{Cursor: "nonsense"}, model.CodeValidation, 0)
		asks("an administrator, who sees what is", model.VoucherQuery{All: true}, "", 1)
		asks("an administrator again", model.VoucherQuery{All: true}, "", 2)
	})
}

// The phase turns at the edge of the window although the page was read before.
func TestListedPhasesTurnInTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edge time.Duration // since the start
		was  model.Phase
		is   model.Phase
	}{
		"begin": {edge: time.Second, was: model.PhaseUpcoming, is: model.PhaseLive},
		"end":   {edge: 3 * time.Second, was: model.PhaseLive, is: model.PhaseEnded},
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			vouchers, store := newCatalog(t)
			store.took = 0
			servicetest.Pass(tt.edge - 100*time.Millisecond)
			list := func(phase model.Phase) []model.Phase {
				page, err := vouchers.List(t.Context(), model.VoucherQuery{Phase: phase})
				check.That(t, err == nil && page.Items != nil, "%+v, %v", page, err)
				phases := []model.Phase{}
				for _, v := range page.Items {
					phases = append(phases, v.Phase)
				}
				return phases
			}
			list("")
			list(tt.was)
			before := store.queries
			servicetest.Pass(99 * time.Millisecond)
			if all, same := list(""), list(tt.was); !slices.Equal(all, []model.Phase{tt.was}) ||
				!slices.Equal(same, all) {
				t.Errorf("before the edge: %v, %v", all, same)
			}
			servicetest.Pass(time.Millisecond)
			if all, same := list(""), list(tt.was); !slices.Equal(all, []model.Phase{tt.is}) || len(same) != 0 {
				t.Errorf("at the edge: %v, and as %s %v", all, tt.was, same)
			}
			check.Equal(t, "queries meanwhile, without which the test shows something", store.queries, before)
		})
	}
}

// The instance of a change lists it at once, others within a second, also when reading is slow.
func TestListsShowChangesInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		vouchers, store := newCatalog(t)
		state := func() model.VoucherState {
			return check.Value(vouchers.List(t.Context(), model.VoucherQuery{}))(t).Items[0].State
		}
		pause := func(s model.VoucherState) {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.vouchers[0].State = s
		}
		state()
		pause(model.VoucherPaused)
		vouchers.changed(t.Context(), "v9") // here
		check.Equal(t, "right after the change", state(), model.VoucherPaused)
		pause(model.VoucherPublished) // elsewhere, and the message is lost
		servicetest.Pass(budget.Glance + time.Millisecond)
		check.Equal(t, "a change elsewhere, in time", state(), model.VoucherPublished)
		// Who comes while a slow query is under way must not get its answer.
		servicetest.Pass(time.Second)
		store.took = 2 * time.Second
		var slow sync.WaitGroup
		slow.Go(func() { state() })
		synctest.Wait()
		pause(model.VoucherPaused)
		servicetest.Pass(time.Second)
		check.Equal(t, "a second after the change, beside a query from before it", state(), model.VoucherPaused)
		slow.Wait()
	})
}

// Whoever makes up cursors has two connections and a bounded queue; the memory is bounded too.
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		vouchers, store := newCatalog(t)
		store.vouchers[0].Description = strings.Repeat("x", 16_000)
		store.took = 100 * time.Millisecond
		var mu sync.Mutex
		answers := map[model.Code]int{}
		check.Volley(2000, func(n int) {
			began := time.Now()
			_, err := vouchers.List(t.Context(), model.VoucherQuery{Cursor: cursor(n)})
			servicetest.Took(t, "an answer", began, 0, budget.Look+200*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				answers[model.CodeOf(err)]++
			}
		})
		check.That(t, store.most <= listReaders && answers[model.CodeUnavailable] > 0 && len(answers) == 1,
			"%d queries at once, answers %v", store.most, answers)
		store.took = 0
		store.most = 0
		for n := range 2 * maxLists {
			check.Must(t, check.ErrorOf(vouchers.List(t.Context(), model.VoucherQuery{Cursor: cursor(n)})))
		}
		l := vouchers.lists
		if size := 16_000 + voucherBytes; l.kept.Len() > maxLists || l.bytes != l.kept.Len()*size ||
			l.bytes > maxListBytes {
			t.Errorf("%d pages of %d bytes", l.kept.Len(), l.bytes)
		}
	})
}

func TestListsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		vouchers, store := newCatalog(t)
		store.err = errors.New("gone")
		check.Is(t, "a failure", check.ErrorOf(vouchers.List(t.Context(), model.VoucherQuery{})), store.err)
		store.err = nil
		if page, err := vouchers.List(t.Context(), model.VoucherQuery{}); err != nil || len(page.Items) != 1 {
			t.Errorf("%+v, %v", page, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		servicetest.Hears(t, "a client that is gone",
			check.ErrorOf(vouchers.List(gone, model.VoucherQuery{Cursor: cursor(1)})), model.CodeUnavailable)
		servicetest.Pass(time.Second) // the query ends by itself
	})
}

// It could not reach the hot copies.
func TestInstanceOfAnotherModeChangesNothing(t *testing.T) {
	t.Parallel()
	vouchers := NewVouchers(VoucherDeps{Selling: func() error { return model.Unavailable("another order mode", nil) }})
	title := "Tea"
	_, patched := vouchers.Patch(t.Context(), "v", model.VoucherPatch{Title: &title})
	_, stocked := vouchers.ChangeStock(t.Context(), "v", model.StockChange{Stock: new(int64)}, model.Idempotency{})
	servicetest.Hears(t, "the caller", patched, model.CodeUnavailable)
	servicetest.Hears(t, "the caller", stocked, model.CodeUnavailable)
}

func TestNothingIsRebuiltInSync(t *testing.T) {
	t.Parallel()
	vouchers := NewVouchers(VoucherDeps{Stock: SyncStock{}, Selling: func() error { return nil }})
	servicetest.Hears(t, "the caller", vouchers.Rebuild(t.Context(), "v1", "boss"), model.CodeConflict)
}

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
	stats := model.Stats{
		Stock: v.Stock, Remaining: v.Remaining, Sold: s.sold,
		OrdersByStatus: map[model.OrderStatus]int64{
			model.OrderUnpaid: s.sold, model.OrderProcessing: 0,
		},
	}
	if s.count != nil {
		s.count()
	}
	return stats, nil
}

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
	entries := check.Value(cache.New(s.table, s.hot, telemetry.New(prometheus.NewRegistry()),
		slog.New(slog.DiscardHandler)))(t)
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
			if err != nil || v.Remaining != tt.remaining || v.Reserved != tt.reserved || v.Phase != tt.phase ||
				v.Title != "Tea" || v.ServerTime.IsZero() {
				t.Errorf("%+v, %v", v, err)
			}
			for _, phase := range model.Phases() {
				page, err := vouchers.List(t.Context(), model.VoucherQuery{Phase: phase})
				check.That(t, err == nil && page.Items != nil, "%+v, %v", page, err)
				if shown := len(page.Items) == 1; s.sale.State() == model.CopyOpen && s.hot.Down == nil &&
					shown != (phase == tt.phase) {
					t.Errorf("asked for %s, shown %v", phase, shown)
				}
			}
			page, err := vouchers.List(t.Context(), model.VoucherQuery{})
			check.That(t, err == nil && len(page.Items) == 1 && page.Items[0].Remaining == tt.remaining &&
				page.Items[0].Phase == tt.phase, "%+v, %v", page, err)
			stats, err := vouchers.Stats(t.Context(), "v1")
			if err != nil || stats.Reserved != tt.reserved ||
				stats.OrdersByStatus[model.OrderProcessing] != tt.reserved ||
				stats.Remaining != tt.remaining || stats.Sold != 3 ||
				stats.Stock != stats.Remaining+stats.Reserved+stats.Sold {
				t.Errorf("%+v, %v", stats, err)
			}
		})
	}
}

func TestViewNeedsTheDatabaseAndKnowsWhatIsNotThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		vouchers, _, s := newShelf(t)
		servicetest.Hears(t, "the caller", check.ErrorOf(vouchers.Get(t.Context(), "v2", true)), model.CodeNotFound)
		s.table.With(func(db *servicetest.Table) { db.Err = model.Unavailable("gone", nil) })
		servicetest.Hears(t, "the caller", check.ErrorOf(vouchers.Get(t.Context(), "v1", true)), model.CodeUnavailable)
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
		check.That(t, err == nil && stats.Reserved == 0 && stats.Sold == 4 && stats.Remaining == 6, "%+v, %v", stats,
			err)
		rows.sold = 9 // for good: the copy is wrong
		if stats, _ := vouchers.Stats(t.Context(), "v1"); stats.Reserved != 0 {
			t.Errorf("%+v", stats)
		}
	})
}
