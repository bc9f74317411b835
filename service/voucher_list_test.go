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

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/sale/cache"
	"seckill/service/servicetest"
)

// catalog is a store of vouchers whose queries take a while.
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

// cursor is a query of its own for each number.
func cursor(n int) string {
	return model.Cursor{At: time.UnixMicro(int64(n)), ID: "v"}.String()
}

// newCatalog sells one voucher for two seconds, beginning in one.
func newCatalog(t *testing.T) (*Vouchers, *catalog) {
	t.Helper()
	entries := check.Value(cache.OfDatabase(servicetest.NewTable(), telemetry.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { entries.Close(context.Background()) })
	now := time.Now()
	store := &catalog{took: 10 * time.Millisecond, vouchers: []model.Voucher{{
		ID: "v9", VoucherFields: model.VoucherFields{
			State: model.VoucherPublished, Stock: 1, Remaining: 1, BeginAt: now.Add(time.Second), EndAt: now.Add(3 * time.Second),
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
		var crowd sync.WaitGroup
		for range 30 {
			crowd.Go(func() {
				for began := time.Now(); time.Since(began) < 3*time.Second; {
					page, err := vouchers.List(t.Context(), model.VoucherQuery{})
					if err != nil || len(page.Items) != 1 || !page.Items[0].ServerTime.Equal(time.Now()) && time.Since(page.Items[0].ServerTime) > store.took {
						t.Errorf("%+v, %v", page, err)
						return
					}
					servicetest.Pass(5 * time.Millisecond)
				}
			})
		}
		crowd.Wait()
		check.That(t, store.queries <= 12 && store.most <= 1, "%d queries in 3 s, %d at once", store.queries, store.most)
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
			if all, same := list(""), list(tt.was); !slices.Equal(all, []model.Phase{tt.was}) || !slices.Equal(same, all) {
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

// A change by an administrator is listed at once by the instance that made it, by others
// within a second, also when reading is slow.
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
		servicetest.Pass(listMaxAge + time.Millisecond)
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
		var flood sync.WaitGroup
		var mu sync.Mutex
		answers := map[model.Code]int{}
		for n := range 2000 {
			flood.Go(func() {
				began := time.Now()
				_, err := vouchers.List(t.Context(), model.VoucherQuery{Cursor: cursor(n)})
				servicetest.InTime(t, "an answer", began, listPatience+200*time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					answers[model.CodeOf(err)]++
				}
			})
		}
		flood.Wait()
		if store.most > listReaders || answers[model.CodeUnavailable] == 0 || len(answers) != 1 || vouchers.lists.queue != 0 {
			t.Errorf("%d queries at once, answers %v, %d wait", store.most, answers, vouchers.lists.queue)
		}
		store.took = 0
		store.most = 0
		for n := range 2 * maxLists {
			check.Must(t, check.ErrorOf(vouchers.List(t.Context(), model.VoucherQuery{Cursor: cursor(n)})))
		}
		l := vouchers.lists
		if size := 16_000 + voucherBytes; l.kept.Len() > maxLists || l.bytes != l.kept.Len()*size || l.bytes > maxListBytes {
			t.Errorf("%d pages of %d bytes", l.kept.Len(), l.bytes)
		}
	})
}

// A failure is told to all who wait, and kept for nobody.
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
		servicetest.Hears(t, "a client that is gone", check.ErrorOf(vouchers.List(gone, model.VoucherQuery{Cursor: cursor(1)})), model.CodeUnavailable)
		servicetest.Pass(time.Second) // the query ends by itself
	})
}
