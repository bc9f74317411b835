package repository_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// together so many vouchers of a crowd are created at the same instant.
const together = 7

// crowd makes copies of one voucher, the oldest first: number n is created n / together seconds after it.
func (f *fixture) crowd(t testing.TB, like model.Voucher, count int) {
	t.Helper()
	const columns = "title, description, price, face_value, currency, stock, remaining, begin_at, end_at, state, version, revision"
	const some = 1000 // in one statement
	second, concat := "1000000 * (n.n / 7)", "'crowd' || n.n"
	if f.store.dialect == "mysql" {
		second, concat = "INTERVAL n.n DIV 7 SECOND", "CONCAT('crowd', n.n)"
	}
	for begin := 0; begin < count; begin += some {
		f.exec(t, fmt.Sprintf(`INSERT INTO vouchers (id, created_at, %s)
			WITH d(n) AS (SELECT 0 UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9),
			n(n) AS (SELECT %d + a.n + 10 * b.n + 100 * c.n FROM d a, d b, d c)
			SELECT %s, v.created_at + %s, %s FROM n JOIN vouchers v ON v.id = '%s' WHERE n.n <= %d`,
			columns, begin+1, concat, second, columns, like.ID, count))
	}
	if f.store.dialect == "mysql" {
		f.exec(t, "ANALYZE TABLE vouchers")
	}
}

// rare makes one voucher for each phase, the oldest, where a list comes last; the crowd is in another phase.
func (f *fixture) rare(t testing.TB) map[model.Phase]*model.Voucher {
	t.Helper()
	now := time.Now()
	made := map[model.Phase]*model.Voucher{}
	for phase, v := range map[model.Phase]model.VoucherFields{
		model.PhaseEnded:    {Stock: 1, BeginAt: now.Add(-2 * time.Hour), EndAt: now.Add(-time.Hour)},
		model.PhaseUpcoming: {Stock: 1, BeginAt: now.Add(time.Hour), EndAt: now.Add(2 * time.Hour)},
		model.PhaseSoldOut:  {Stock: 0, BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour)},
		model.PhasePaused: {
			Stock: 1, BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour),
			State: model.VoucherPaused,
		},
		model.PhaseLive: {Stock: 1, BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour)},
	} {
		made[phase] = new(f.voucher(t, v))
	}
	return made
}

func (f *fixture) listed(t testing.TB, q model.VoucherQuery) (ids []string, pages int) {
	t.Helper()
	for {
		page := check.Value(f.vouchers.List(t.Context(), q))(t)
		pages++
		for _, v := range page.Items {
			ids = append(ids, v.ID)
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return ids, pages
		}
	}
}

func TestRarePhases(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		rare := f.rare(t)
		const crowd, bound = 1300, 1000
		f.crowd(t, *rare[model.PhaseLive], crowd)
		numbers := make([]int, crowd)
		for n := range numbers {
			numbers[n] = n + 1
		}
		id := func(n int) string { return fmt.Sprint("crowd", n) }
		slices.SortFunc(numbers, func(a, b int) int {
			return cmp.Or(cmp.Compare(b/together, a/together),
				strings.Compare(id(b), id(a)))
		})
		want := map[model.Phase][]string{}
		for _, n := range numbers {
			phase := model.PhaseLive
			if n/together == numbers[bound-1]/together { // where a page must end, some are of the rarer phase
				phase = model.PhaseUpcoming
				check.Must(t, check.ErrorOf(f.vouchers.Patch(t.Context(), id(n),
					model.VoucherPatch{BeginAt: &rare[phase].BeginAt, EndAt: &rare[phase].EndAt})))
			}
			want[phase] = append(want[phase], id(n))
		}
		for _, phase := range model.Phases() {
			want := append(want[phase], rare[phase].ID)
			for _, all := range []bool{false, true} {
				got, pages := f.listed(t, model.VoucherQuery{Phase: phase, All: all, Limit: 100})
				check.That(t, slices.Equal(got, want),
					"%s, all %v: %d listed on %d pages, want %d", phase, all, len(got), pages, len(want))
			}
			if page, err := f.vouchers.List(t.Context(), model.VoucherQuery{Phase: phase}); err != nil ||
				(phase == model.PhaseSoldOut || phase == model.PhasePaused) && len(page.Items) != 1 {
				t.Errorf("%s: the first page has %d, %v", phase, len(page.Items), err)
			}
		}
		check.Equal(t, "vouchers on a page of no limit",
			len(check.Value(f.vouchers.List(t.Context(), model.VoucherQuery{}))(t).Items), model.PageSize(0))
		if got, _ := f.listed(t, model.VoucherQuery{Limit: 100}); len(got) != crowd+len(rare) {
			t.Errorf("%d listed", len(got))
		}
		if got, _ := f.listed(t, model.VoucherQuery{OnSale: true, Limit: 100}); len(got) != crowd-together+2 {
			t.Errorf("%d on sale", len(got))
		}
		draft := f.voucher(t, model.VoucherFields{
			Title: "Cake 100% for one", State: model.VoucherDraft,
			BeginAt: time.Now(), EndAt: time.Now().Add(time.Hour),
		}).ID
		for _, test := range []struct {
			q    model.VoucherQuery
			want []string
		}{
			{model.VoucherQuery{State: model.VoucherDraft}, []string{draft}},
			{model.VoucherQuery{State: model.VoucherArchived}, nil},
			{model.VoucherQuery{Phase: model.PhasePaused}, []string{rare[model.PhasePaused].ID}},
			{model.VoucherQuery{Words: " one  CAKE "}, []string{draft}},
			{model.VoucherQuery{Words: "cake tea"}, nil},
			{model.VoucherQuery{Words: "1%0"}, nil},
			{model.VoucherQuery{Words: "cake", Phase: model.PhasePaused}, nil},
			{model.VoucherQuery{Phase: model.PhaseSoldOut, From: time.Now(), To: time.Now()}, []string{rare[model.PhaseSoldOut].ID}},
			{model.VoucherQuery{Phase: model.PhaseSoldOut, From: time.Now().Add(2 * time.Hour)}, nil},
		} {
			var got []string
			for _, v := range check.Value(f.vouchers.Shelf(t.Context(), test.q))(t).Items {
				got = append(got, v.ID)
			}
			check.That(t, slices.Equal(got, test.want), "%+v lists %q, want %q", test.q, got, test.want)
		}
		shelf := check.Value(f.vouchers.Shelf(t.Context(), model.VoucherQuery{Limit: 100}))(t)
		check.Equal(t, "all, and those that are live", fmt.Sprint(shelf.Counts[""], shelf.Counts["live"], shelf.NextCursor),
			fmt.Sprint(crowd+len(rare)+1, crowd-together+1, "100"))
		wantCode(t, check.ErrorOf(f.vouchers.Shelf(t.Context(), model.VoucherQuery{State: "gone"})),
			model.CodeValidation)
	})
}

// An UPDATE of the hot row changes nothing that an index has; only the last unit moves it in them.
func TestSalesLeaveTheIndexesOfListsAlone(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		f := newFixture(t, store{dialect: "mysql", strategy: strategy})
		v := f.onSale(t, 3)
		indexed := list(t, f.db.SQL(), "SELECT DISTINCT column_name FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'vouchers'")
		check.That(t, slices.Contains(indexed, "sold_out") && slices.Contains(indexed, "created_at"),
			"the indexes have %q", indexed)
		entry := func() string {
			return list(t, f.db.SQL(), "SELECT CONCAT_WS('|', "+strings.Join(indexed, ", ")+
				") FROM vouchers WHERE id = '"+v.ID+"'")[0]
		}
		before := entry()
		for i := range 3 {
			check.Must(t, f.place(t, order(t, v.ID, user(i))).Err)
			check.Equal(t, "the entry has moved", entry() != before, i == 2)
		}
	})
}

// While every connection of lists is taken, purchases go on, and further lists are told to come again.
func TestBusyListsTakeNothingFromSales(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 100)
		hasty := f.hasty(t)
		lists := func(f *fixture) map[string]error {
			lists := map[string]func() error{
				"vouchers": func() error { return check.ErrorOf(f.vouchers.List(t.Context(), model.VoucherQuery{})) },
				"shown":    func() error { return check.ErrorOf(f.vouchers.ShowMany(t.Context(), []string{v.ID})) },
				"orders":   func() error { return check.ErrorOf(f.orders.List(t.Context(), model.OrderQuery{UserID: "u"})) },
				"export": func() error {
					return f.orders.Each(t.Context(), model.OrderQuery{VoucherID: v.ID},
						func(model.BookedOrder) error { return nil })
				},
				"stats": func() error { return check.ErrorOf(f.vouchers.Stats(t.Context(), v.ID)) },
				"audit": func() error { return check.ErrorOf(f.vouchers.Audit(t.Context(), v.ID)) },
			}
			names := slices.Collect(maps.Keys(lists))
			errs := make([]error, len(names))
			check.Volley(len(names), func(i int) { errs[i] = lists[names[i]]() })
			told := map[string]error{}
			for i, name := range names {
				told[name] = errs[i]
			}
			return told
		}
		release := f.keepListsBusy(t)
		for n := range 20 {
			check.Must(t, f.place(t, order(t, v.ID, user(n))).Err)
		}
		check.Must(t, check.ErrorOf(f.vouchers.Get(t.Context(), v.ID)))
		release()
		for name, err := range lists(f) {
			check.That(t, err == nil, "%s: %v", name, err)
		}
		defer hasty.keepListsBusy(t)()
		for name, err := range lists(hasty) {
			check.That(t, model.CodeOf(err) == model.CodeUnavailable,
				"%s while all are busy: %v, want UNAVAILABLE", name, err)
		}
	})
}

func (f *fixture) keepListsBusy(t *testing.T) (release func()) {
	t.Helper()
	taken, end := make(chan struct{}), make(chan struct{})
	var lists sync.WaitGroup
	connections := map[string]int{sqldb.MySQL: 4, sqldb.SQLite: 3}[f.store.dialect]
	for range connections {
		lists.Go(func() {
			_ = f.db.Browse(context.Background(), "keep a list busy",
				func(*gorm.DB) error { taken <- struct{}{}; <-end; return nil })
		})
	}
	for range connections {
		check.Receive(t, "a connection of lists", taken)
	}
	return func() { close(end); lists.Wait() }
}

// The orders of a sale are read whole, oldest first and each once, with the money of each.
func TestSoldOrders(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.voucher(t, model.VoucherFields{Title: title, Price: 7, Stock: 9})
		other := l.onSale(t, 9)
		l.bought(t, other.ID, "somebody")
		unpaid := l.bought(t, v.ID, "unpaid")
		paid, _ := l.paid(t, v.ID, "paid")
		refunded, _ := l.paid(t, v.ID, "refunded")
		refund := l.refunded(t, refunded.ID)
		check.Must(t, l.refunds.Done(t.Context(), refund.ID))
		late := l.bought(t, v.ID, "late")
		notice := money(t, l.started(t, late))
		l.cancels(t, "late", late.ID)
		check.Value(l.payments.Settle(t.Context(), notice))(t)
		found := map[string]model.BookedOrder{}
		last := model.BookedOrder{}
		check.Must(t, l.orders.Sold(t.Context(), v.ID, func(o model.BookedOrder) error {
			check.That(t, found[o.ID].ID == "" && !o.CreatedAt.Before(last.CreatedAt), "%s comes after %s", o.ID,
				last.ID)
			found[o.ID], last = o, o
			return nil
		}))
		check.Equal(t, "orders", len(found), 4)
		for id, want := range map[string]string{
			unpaid.ID: "unpaid 0 0 false\n", paid.ID: "paid 7 0 false\n", refunded.ID: "refunded 7 7 true\n",
			late.ID: "refunded 7 0 true\n",
		} {
			o := found[id]
			check.Equal(t, "order", fmt.Sprintln(o.Status, o.Received, o.Returned, o.ClosedAt != nil), want)
			check.That(t, o.TookUnit(), "%s took no unit", id)
		}
		wantCode(t, l.orders.Sold(t.Context(), "no id", nil), model.CodeNotFound)
	})
}

// What a process has counted takes the place of what it stored before, and is added to what others counted.
func TestAnswers(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		answers := &repository.Answers{DB: f.db}
		first := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
		store := func(process string, after int, ok uint64) {
			t.Helper()
			check.Must(t, answers.Store(t.Context(), process, map[string]model.Counted{
				"v1": {First: first.Add(time.Duration(after) * time.Second), Latest: first.Add(time.Duration(after+1) * time.Second), ByCode: map[string]*model.Heard{"OK": {First: first, Took: []uint64{ok}, Steps: []uint32{0, 1}}, "SOLD_OUT": {Took: []uint64{0, 1}}}},
				"v2": {First: first, Latest: first, ByCode: map[string]*model.Heard{"PAUSED": {Took: []uint64{1}}}},
			}))
		}
		store("p1", 0, 1)
		store("p1", 0, 2)
		store("p2", 5, 40)
		check.Must(t, answers.Store(t.Context(), "p1", nil))
		got := check.Value(answers.Read(t.Context(), "v1"))(t)
		check.Equal(t, "answers", fmt.Sprint(got.ByCode, got.Since, got.Until),
			fmt.Sprint(map[string]int64{"OK": 42, "SOLD_OUT": 2}, first, first.Add(6*time.Second)))
		heard := got.Heard[0]["OK"]
		check.That(t, len(got.Heard) == 2 && heard.First.Equal(first) && slices.Equal(heard.Steps, []uint32{0, 1}), "%+v", heard)
		none := check.Value(answers.Read(t.Context(), "v3"))(t)
		check.That(t, none.Since == nil && len(none.ByCode) == 0, "%+v", none)
		wantCode(t, check.ErrorOf(answers.Read(t.Context(), "no id")), model.CodeNotFound)
	})
}
