//part:stores

package repository_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// divided are stores whose vouchers are divided.
func divided() []store {
	return []store{
		{dialect: "mysql", strategy: repository.StockConditional, shards: 16},
		{dialect: "mysql", strategy: repository.StockPessimistic, shards: 3},
		{dialect: "sqlite", strategy: repository.StockOptimistic, shards: 3},
	}
}

func (f *fixture) divide(t testing.TB, id string, shards int) model.Voucher {
	t.Helper()
	return check.Value(f.vouchers.Patch(t.Context(), id, model.VoucherPatch{Shards: &shards}))(t)
}

// apart tells how many of a voucher's parts have another revision than its row.
func (f *fixture) apart(t testing.TB, id string) int64 {
	t.Helper()
	return f.number(t, "SELECT COUNT(*) FROM voucher_stock WHERE voucher_id = ? AND revision <> (SELECT revision FROM vouchers WHERE id = ?)", id, id)
}

// buyAll has other users buy what is left, one batch after the other, until one hears SOLD_OUT.
func (f *fixture) buyAll(t testing.TB, id string) (sold int64) {
	t.Helper()
	for {
		var batch []model.Order
		for range 20 {
			batch = append(batch, order(t, id, newID(t)))
		}
		refused := false
		for _, outcome := range f.create(t, batch...) {
			if outcome.Err == nil {
				sold++
			} else {
				wantCode(t, outcome.Err, model.CodeSoldOut)
				refused = true
			}
		}
		if refused {
			return sold
		}
	}
}

// TestDividedSale: four times as many buyers as units, some of them twice, through several
// writers at once and 16 parts. All units are sold, one to a user, no SOLD_OUT is said while
// one is left, and the server has ended no deadlock.
func TestDividedSale(t *testing.T) {
	t.Parallel()
	const size = 10
	units, writers := check.Count(t, "UNITS", 100, 400), check.Count(t, "WRITERS", 4, 8)
	f, deadlocks := newFixture(t, divided()[0]).watched(t, repository.StockConditional)
	v := f.onSale(t, int64(units))
	var next atomic.Int64
	results := newTally()
	check.Volley(writers, func(int) {
		for {
			end := int(next.Add(size))
			if end > 4*units {
				return
			}
			var batch []model.Order
			for n := end - size; n < end; n++ {
				batch = append(batch, order(t, v.ID, user(n-n%7))) // of seven, one user
			}
			outcomes, err := f.orders.CreateOrders(t.Context(), batch)
			if err != nil {
				t.Error(err)
				return
			}
			for i, outcome := range outcomes {
				results.add(t, batch[i], outcome)
			}
		}
	})
	want := (4*units + 6) / 7
	if len(results.created) != want || len(results.already) == 0 {
		t.Errorf("%d users bought, %d heard of their orders, want %d; refusals %v", len(results.created), len(results.already), want, results.counts)
	}
	var sold atomic.Int64
	check.Volley(writers, func(int) {
		for {
			var batch []model.Order
			for range size {
				batch = append(batch, order(t, v.ID, newID(t)))
			}
			outcomes, err := f.orders.CreateOrders(t.Context(), batch)
			if err != nil {
				t.Error(err)
				return
			}
			for _, outcome := range outcomes {
				if outcome.Err == nil {
					sold.Add(1)
					continue
				}
				wantCode(t, outcome.Err, model.CodeSoldOut)
				if left := check.Value(f.vouchers.Get(t.Context(), v.ID))(t).Remaining; left != 0 {
					t.Errorf("SOLD_OUT while %d remained", left)
				}
				return
			}
		}
	})
	check.Equal(t, "units sold to the others", sold.Load(), int64(units-want))
	f.balanced(t, v.ID, int64(units))
	check.Equal(t, "deadlocks", deadlocks.Load(), 0)
}

// TestLargeGroupsDoNotBeginAnew: a group that needs several parts, some of which others take from
// meanwhile, waits for them and is not sent back to its beginning.
func TestLargeGroupsDoNotBeginAnew(t *testing.T) {
	t.Parallel()
	near := newFixture(t, divided()[0])
	v := near.onSale(t, 48)
	var others sync.Once
	var begun atomic.Int32
	far := near.wired(t, func(_ *wire, statement string) verdict {
		if strings.HasPrefix(statement, "SELECT id, voucher_id, user_id") {
			others.Do(func() {
				for i := range 8 {
					check.Must(t, near.place(t, order(t, v.ID, user(i))).Err)
				}
			})
		}
		if statement == "ROLLBACK" {
			begun.Add(1)
		}
		return pass
	})
	far.orders.LookFirst()
	var batch []model.Order
	for i := range 40 {
		batch = append(batch, order(t, v.ID, user(100+i)))
	}
	for i, outcome := range far.create(t, batch...) {
		if outcome.Err != nil || !outcome.Created {
			t.Errorf("order %d: %+v", i, outcome)
		}
	}
	check.Equal(t, "transactions that began anew", begun.Load(), 0)
	near.balanced(t, v.ID, 48)
}

// TestUnitsComeBackToParts: canceled and expired orders, one by one and many at once, are on sale again.
func TestUnitsComeBackToParts(t *testing.T) {
	t.Parallel()
	over(t, divided()[:check.Count(t, "DIVIDED", 1, 3)], newFixture, func(t *testing.T, f *fixture) {
		const units, canceled, lapsed = 24, 8, 12
		l := lifeOf(f)
		v := f.onSale(t, units)
		var bought []model.Order
		for i := 0; len(bought) < units; i++ {
			if model.PartOf(user(i), f.store.shards) > 0 { // whose units come back to another part than the row
				bought = append(bought, l.bought(t, v.ID, user(i)))
			}
		}
		check.Volley(canceled, func(i int) {
			_, _, err := f.cancel(t.Context(), bought[i].UserID, bought[i].ID)
			check.Is(t, "a cancellation", err, nil)
		})
		var ids []string
		for _, o := range bought[canceled : canceled+lapsed] {
			l.lapse(t, o)
			ids = append(ids, o.ID)
		}
		check.Equal(t, "orders expired", len(check.Value(f.orders.Expire(t.Context(), ids))(t)), lapsed)
		f.balanced(t, v.ID, units-canceled-lapsed)
		check.Equal(t, "sold again", f.buyAll(t, v.ID), canceled+lapsed)
		f.balanced(t, v.ID, units)
	})
}

// TestDividedDuringTheSale: into 16 parts, 3, and one again, with another stock between, while
// buyers buy and cancel. The version never goes back, and every unit is sold.
func TestDividedDuringTheSale(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 100)
		var done atomic.Bool
		var live atomic.Int64
		check.Volley(5, func(w int) {
			if w == 4 {
				defer done.Store(true)
				was := v
				for n, shards := range []int{16, 3, 1, 16, 1, 5} {
					now := f.divide(t, v.ID, shards)
					if now.Version <= was.Version || int(now.Shards) != shards {
						t.Errorf("divided into %d: %+v, was %+v", shards, now, was)
					}
					was = now
					delta := int64(7 - 4*(n%2))
					check.Must(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Delta: &delta}, model.Idempotency{})))
				}
				return
			}
			for n := 0; !done.Load() || n == 0; n++ {
				asked := []model.Order{order(t, v.ID, newID(t)), order(t, v.ID, newID(t))}
				outcomes, err := f.orders.CreateOrders(t.Context(), asked)
				if err != nil {
					t.Error(err)
					return
				}
				for i, outcome := range outcomes {
					if outcome.Err != nil {
						wantCode(t, outcome.Err, model.CodeSoldOut)
						continue
					}
					if i == 0 {
						live.Add(1)
					} else if _, changed, err := f.cancel(t.Context(), asked[i].UserID, asked[i].ID); err != nil || !changed {
						t.Errorf("cancel: %v, %v", changed, err)
					}
				}
			}
		})
		sold := f.buyAll(t, v.ID)
		check.Equal(t, "live orders", live.Load()+sold, int64(100+3*7+3*3))
		f.balanced(t, v.ID, live.Load()+sold)
		check.Equal(t, "parts that are not the row", f.number(t, "SELECT COUNT(*) FROM voucher_stock"), 4)
	})
}

// TestSalesFromAnyPartObey what administrators and rebuilds change after the voucher was
// read: between the reading and the UPDATE of a part the sale is paused.
func TestSalesFromAnyPartObey(t *testing.T) {
	t.Parallel()
	near := newAsync(t, store{dialect: "mysql", strategy: repository.StockConditional, shards: 4})
	v := near.onSale(t, 100)
	var paused atomic.Int32
	for i := range 8 { // of so many users, some are at home in each part
		published, pause := model.VoucherPublished, model.VoucherPaused
		check.Must(t, check.ErrorOf(near.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{State: &published})))
		far := near.wired(t, onceOn("UPDATE voucher_stock", func(*wire) verdict {
			check.Must(t, check.ErrorOf(near.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{State: &pause})))
			paused.Add(1)
			return pass
		}))
		far.asIn(t, model.ModeAsync)
		before := paused.Load()
		outcome := far.place(t, order(t, v.ID, user(i)))
		if paused.Load() > before {
			wantCode(t, outcome.Err, model.CodePaused)
		} else {
			check.Must(t, outcome.Err) // from the row, where the statement is that of undivided vouchers
		}
		check.Equal(t, "parts of another revision", near.apart(t, v.ID), 0)
	}
	if paused.Load() < 3 {
		t.Errorf("%d sales were interrupted", paused.Load())
	}
	near.opened(t, v.ID)
	check.Equal(t, "parts of another revision after a rebuild", near.apart(t, v.ID), 0)
	title := "New"
	check.Must(t, check.ErrorOf(near.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{Title: &title})))
	check.Equal(t, "parts of another revision after a change", near.apart(t, v.ID), 0)
}

// TestPartsAreLockedBetweenVouchers: a purchase of a divided voucher and of one behind it waits
// for a part of the first without a lock on the second, as every other transaction does.
func TestPartsAreLockedBetweenVouchers(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy repository.StockStrategy) {
		f := newFixture(t, store{dialect: "mysql", strategy: strategy})
		one, two := f.onSale(t, 5), f.onSale(t, 5)
		if two.ID < one.ID {
			one, two = two, one
		}
		f.divide(t, one.ID, 3)
		other := f.begin(t)
		execTx(t, other, "UPDATE vouchers SET title = 'x' WHERE id = ?", one.ID)
		execTx(t, other, "UPDATE voucher_stock SET version = version + 1 WHERE voucher_id = ?", one.ID)
		bought := make(chan error, 1)
		go func() {
			outcomes, err := f.orders.CreateOrders(context.Background(), []model.Order{order(t, two.ID, "alice"), order(t, one.ID, "alice")})
			for _, outcome := range outcomes {
				err = errors.Join(err, outcome.Err)
			}
			bought <- err
		}()
		check.Eventually(t, "the purchase waits for a part", func() bool { return f.blocked(t, one.ID) })
		execTx(t, other, "SELECT id FROM vouchers WHERE id = ? FOR UPDATE NOWAIT", two.ID)
		check.Must(t, other.Commit())
		check.Must(t, <-bought)
		f.balanced(t, one.ID, 1)
		f.balanced(t, two.ID, 1)
	})
}

// TestLostParts: a voucher that has lost a part is sold no more, because nothing could tell
// when it is sold out, and its audit says so also when the sum is right. Orders can be
// canceled. The repair restores the parts from the live orders.
func TestLostParts(t *testing.T) {
	t.Parallel()
	over(t, divided(), newFixture, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v, other := f.onSale(t, 60), f.onSale(t, 1)
		var bought []model.Order
		for i := range 10 {
			bought = append(bought, l.bought(t, v.ID, user(i)))
		}
		for lose, lost := range map[string]int64{
			"DELETE FROM voucher_stock WHERE voucher_id = ? AND shard > 0":                                                                             int64(f.store.shards - 1),
			"DELETE FROM voucher_stock WHERE voucher_id = ? AND shard = 2":                                                                             1,
			"UPDATE voucher_stock SET revision = revision - 1 WHERE voucher_id = ? AND shard = 1":                                                      1,
			"UPDATE voucher_stock SET shard = 99 WHERE voucher_id = ? AND shard = 1":                                                                   2,
			"INSERT INTO voucher_stock (voucher_id, shard, remaining, version, revision) SELECT id, 99, 0, 0, revision - 1 FROM vouchers WHERE id = ?": 1,
		} {
			f.exec(t, lose, v.ID)
			for name, err := range map[string]error{
				"buy":    check.ErrorOf(f.orders.CreateOrders(t.Context(), []model.Order{order(t, v.ID, newID(t))})),
				"stock":  check.ErrorOf(f.changeStock(t, v.ID, 1)),
				"divide": check.ErrorOf(f.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{Shards: new(1)})),
			} {
				if model.CodeOf(err) != model.CodeUnavailable || !strings.Contains(fmt.Sprint(err), v.ID) {
					t.Errorf("%s: %v, want UNAVAILABLE with the voucher", name, err)
				}
			}
			audit := check.Value(f.vouchers.Audit(t.Context(), v.ID))(t)
			if audit.Balanced || audit.Database.PartsLost != lost {
				t.Errorf("%+v", audit)
			}
			_, changed, err := f.cancel(t.Context(), bought[0].UserID, bought[0].ID)
			if err != nil || !changed {
				t.Errorf("cancel: %v, %v", changed, err)
			}
			bought = bought[1:]
			found := check.Value(f.vouchers.RepairStock(t.Context(), v.ID))(t)
			if found == nil || found.LiveOrders != int64(len(bought)) {
				t.Errorf("repaired %+v", found)
			}
			if again := check.Value(f.vouchers.RepairStock(t.Context(), v.ID))(t); again != nil {
				t.Errorf("repaired again: %+v", again)
			}
			f.balanced(t, v.ID, int64(len(bought)))
		}
		check.Must(t, f.place(t, order(t, other.ID, "alice")).Err)
		check.Equal(t, "units sold after the repair", f.buyAll(t, v.ID), int64(60-len(bought)))
		f.balanced(t, v.ID, 60)
	})
}

// TestListsOfDividedVouchers: their phase is that of all parts, whatever the row has, and
// pages of the two phases have each voucher once and in order.
func TestListsOfDividedVouchers(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		now := time.Now()
		want := map[model.Phase][]string{}
		for i := range 12 {
			v := f.voucher(t, model.NewVoucher{
				Stock: int64(i % 3), Shards: 1 + 3*(i%2), BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour),
			})
			if i == 1 || i == 5 { // what is left is in the last part
				f.exec(t, "UPDATE vouchers SET remaining = 0 WHERE id = ?", v.ID)
				f.exec(t, "UPDATE voucher_stock SET remaining = CASE WHEN shard = 3 THEN ? ELSE 0 END WHERE voucher_id = ?", v.Stock, v.ID)
			}
			want[v.Phase] = slices.Insert(want[v.Phase], 0, v.ID)
		}
		f.exec(t, "UPDATE vouchers SET created_at = (SELECT created_at FROM (SELECT MIN(created_at) AS created_at FROM vouchers) AS first) WHERE shards > 1")
		newest := func(phase model.Phase) []string {
			list := want[phase]
			slices.SortFunc(list, func(a, b string) int {
				one, two := check.Value(f.vouchers.Get(t.Context(), a))(t), check.Value(f.vouchers.Get(t.Context(), b))(t)
				if c := two.CreatedAt.Compare(one.CreatedAt); c != 0 {
					return c
				}
				return strings.Compare(b, a)
			})
			return list
		}
		for _, phase := range []model.Phase{model.PhaseLive, model.PhaseSoldOut} {
			for _, all := range []bool{false, true} {
				for _, limit := range []int{1, 2, 100} {
					if got, _ := f.listed(t, model.VoucherQuery{Phase: phase, All: all, Limit: limit}); !slices.Equal(got, newest(phase)) || len(got) == 0 {
						t.Errorf("%s, all %v, by %d: %v, want %v", phase, all, limit, got, newest(phase))
					}
				}
			}
		}
		page := check.Value(f.vouchers.List(t.Context(), model.VoucherQuery{All: true, Limit: 100}))(t)
		public := check.Value(f.vouchers.List(t.Context(), model.VoucherQuery{Limit: 100}))(t)
		for i, v := range page.Items {
			if v.Shards == 4 && (v.Remaining != v.Stock || !public.Items[i].Shards.IsZero()) {
				t.Errorf("listed as %+v, publicly as %+v", v, public.Items[i])
			}
		}
	})
}

// TestListedOnce: a voucher that is divided while a list is read is on it once.
func TestListedOnce(t *testing.T) {
	t.Parallel()
	near := newFixture(t, divided()[0])
	v := near.onSale(t, 5)
	near.divide(t, v.ID, 1)
	var once sync.Once
	far := near.through(t, func(_ *wire, statement string) verdict {
		if strings.Contains(statement, "sold_out = 2") {
			once.Do(func() { near.divide(t, v.ID, 2) })
		}
		return pass
	})
	got, _ := far.listed(t, model.VoucherQuery{Phase: model.PhaseLive})
	check.Equal(t, "vouchers listed", len(got), 1)
	check.Equal(t, "parts", check.Value(near.vouchers.Get(t.Context(), v.ID))(t).Shards, 2)
}

// TestManyListedDividedVouchers: more than one page may examine, of both kinds.
func TestManyListedDividedVouchers(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		const crowd = 1200 // a page may examine 1000
		rare := f.rare(t)
		f.crowd(t, *rare[model.PhaseLive], crowd)
		// Most are divided and not sold out, so that a page of the others must end where theirs does.
		f.exec(t, "UPDATE vouchers SET remaining = 0 WHERE id LIKE 'crowd%'")
		f.exec(t, "UPDATE vouchers SET shards = 2 WHERE id LIKE 'crowd%' AND id NOT LIKE 'crowd%11'")
		f.exec(t, "INSERT INTO voucher_stock (voucher_id, shard, remaining, version, revision)"+
			" SELECT id, 1, CASE WHEN id LIKE 'crowd%77' THEN 0 ELSE 1 END, 0, revision FROM vouchers WHERE shards = 2")
		soldOut := f.number(t, "SELECT COUNT(*) FROM vouchers WHERE id LIKE 'crowd%11' OR id LIKE 'crowd%77'")
		for phase, want := range map[model.Phase]int64{model.PhaseSoldOut: soldOut + 1, model.PhaseLive: crowd - soldOut + 1} {
			got, pages := f.listed(t, model.VoucherQuery{Phase: phase, Limit: 100})
			once := map[string]bool{}
			for _, id := range got {
				once[id] = true
			}
			if int64(len(got)) != want || len(once) != len(got) {
				t.Errorf("%s: %d listed on %d pages, of %d vouchers, want %d", phase, len(got), pages, len(once), want)
			}
		}
	})
}

// TestMigrationToParts: a database with vouchers from before, which are not divided, and can
// be. The migration may be repeated, as after the death of a process in its middle.
func TestMigrationToParts(t *testing.T) {
	t.Parallel()
	over(t, dialects(), freshFixture, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 3)
		check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
		const soldOut = "GENERATED ALWAYS AS (CASE WHEN remaining = 0 AND state <> 'paused' THEN 1 ELSE 0 END)"
		before := map[string][]string{
			"mysql": {"ALTER TABLE vouchers MODIFY COLUMN sold_out TINYINT " + soldOut + " STORED, DROP COLUMN shards"},
			"sqlite": {
				"DROP INDEX vouchers_newest", "DROP INDEX vouchers_state", "ALTER TABLE vouchers DROP COLUMN sold_out",
				"ALTER TABLE vouchers DROP COLUMN shards", "ALTER TABLE vouchers ADD COLUMN sold_out INTEGER " + soldOut + " VIRTUAL",
				"CREATE INDEX vouchers_newest ON vouchers (created_at, id, state, sold_out, begin_at, end_at)",
				"CREATE INDEX vouchers_state ON vouchers (state, sold_out, created_at, id, begin_at, end_at)",
			},
		}[f.store.dialect]
		for _, statement := range append(before, "DROP TABLE voucher_stock", "ALTER TABLE vouchers DROP COLUMN copy_shards", "ALTER TABLE accounts DROP COLUMN level", "DELETE FROM schema_migrations WHERE version_id > 19") {
			f.exec(t, statement)
		}
		check.Must(t, f.db.Migrate(t.Context()))
		if f.store.dialect == "mysql" {
			f.exec(t, "DELETE FROM schema_migrations WHERE version_id > 19")
			check.Must(t, f.db.Migrate(t.Context()))
		}
		f.balanced(t, v.ID, 1)
		if now := check.Value(f.vouchers.Get(t.Context(), v.ID))(t); now.Shards != 1 || now.Remaining != 2 {
			t.Errorf("%+v", now)
		}
		f.divide(t, v.ID, 2)
		check.Equal(t, "units sold from two parts", f.buyAll(t, v.ID), 2)
		if got, _ := f.listed(t, model.VoucherQuery{Phase: model.PhaseSoldOut}); !slices.Equal(got, []string{v.ID}) {
			t.Errorf("sold out: %v", got)
		}
	})
}
