//part:stores

package repository_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
)

// TestOverdueIsReadByItsIndex: a look that finds nothing reads nothing, however many
// orders there are, and a page is not sorted.
func TestOverdueIsReadByItsIndex(t *testing.T) {
	t.Parallel()
	const orders = 1000
	f := newFixture(t, stores()[0])
	v := f.onSale(t, orders)
	var asked []model.Order
	for i := range orders {
		asked = append(asked, order(t, v.ID, user(i)))
	}
	f.create(t, asked...)
	f.exec(t, "UPDATE orders SET expires_at = created_at WHERE user_id < ?", user(300))
	f.exec(t, "ANALYZE TABLE orders")
	statement := check.Value(os.ReadFile("sql/order_overdue.sql"))(t)
	plan := testserver.Plan(t, f.db.SQL(), withoutComments(string(statement)), time.Unix(0, 0), time.Unix(0, 0), "", 100)
	found := 0
	for _, step := range plan {
		if step.Table != "orders" {
			continue
		}
		found++
		check.That(t, step.Key == "orders_due" && !strings.Contains(step.Extra, "filesort"),
			"orders of voucher %s are read by %s (%s)", v.ID, step.Key, step.Extra)
	}
	check.Equal(t, "plans of orders", found, 1)
}

func withoutComments(statement string) string {
	var lines []string
	for line := range strings.Lines(statement) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// overdue is a voucher with so many orders whose time has passed, a hundred at each instant, as purchases make them.
func overdue(b *testing.B, f *fixture, orders int) {
	b.Helper()
	v := f.onSale(b, int64(orders))
	db := check.Value(sql.Open("mysql", f.options.DSN))(b) // which waits as long as it takes
	defer func() { check.Must(b, db.Close()) }()
	for from := 0; from < orders; from += 5000 {
		check.Must(b, check.ErrorOf(db.ExecContext(b.Context(), fmt.Sprintf(
			"INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, unpaid_at, expires_at) "+
				"SELECT CONCAT(LPAD(seq, 26, '0'), '.', ?), ?, MD5(seq), 'unpaid', 1000, 'CNY', ?, ?, ? + INTERVAL seq DIV 100 MICROSECOND "+
				"FROM %s", testserver.Numbers(from+1, min(from+5000, orders))), v.ID, v.ID, longAgo, longAgo, longAgo)))
	}
	f.exec(b, "UPDATE vouchers SET remaining = 0 WHERE id = ?", v.ID)
}

const longAgo = "2026-01-01 00:00:00"

// expireAll expires what is overdue, one batch after the other, and tells how many that were.
func expireAll(ctx context.Context, tb testing.TB, f *fixture, size int) (expired int) {
	tb.Helper()
	for last := (model.OverdueOrder{}); ctx.Err() == nil; {
		page, err := f.orders.Overdue(ctx, false, last, 2000)
		if len(page) == 0 || err != nil {
			return expired
		}
		last = page[len(page)-1]
		for batch := range slices.Chunk(page, size) {
			ids := make([]string, len(batch))
			for i, order := range batch {
				ids[i] = order.ID
			}
			orders, err := f.orders.Expire(ctx, ids)
			if expired += len(orders); err != nil {
				return expired
			}
		}
	}
	return expired
}

// BenchmarkExpire measures what an order that expires costs: the processor time of the service and of MariaDB, which
// has the sizes and the durability of production.
//
//	go test ./repository -run '^$' -bench 'Expire$' -benchtime 1x
func BenchmarkExpire(b *testing.B) {
	const orders = 20_000
	for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
		for _, size := range []int{100, 500} {
			b.Run(fmt.Sprintf("%s/batch=%d", mode, size), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					f, server := benchFixture(b)
					check.Must(b, check.ErrorOf(f.modes.Adopt(b.Context(), mode)))
					f.asIn(b, mode)
					overdue(b, f, orders)
					ours, theirs := testserver.CPU(b, os.Getpid()), testserver.CPU(b, server.PID())
					b.StartTimer()
					expired := float64(expireAll(b.Context(), b, f, size))
					b.ReportMetric((testserver.CPU(b, os.Getpid())-ours).Seconds()*1e6/expired, "µs/order")
					b.ReportMetric((testserver.CPU(b, server.PID())-theirs).Seconds()*1e6/expired, "mariadb-µs/order")
				}
			})
		}
	}
}

// TestOnlyReturnedUnitsGoToTheHotCopy: of orders that move in one transaction, those that keep their units write no
// release, and only the others' units are on sale again.
func TestOnlyReturnedUnitsGoToTheHotCopy(t *testing.T) {
	t.Parallel()
	over(t, dialects(), newAsync, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v := l.onSale(t, 2)
		kept, returned := l.bought(t, v.ID, "alice"), l.bought(t, v.ID, "bob")
		moved := check.Value(repository.MoveTogether(t.Context(), l.db, []model.Order{kept, returned},
			[]model.OrderStatus{model.OrderPaid, model.OrderCanceled}, []model.Mover{model.MoverProvider, model.MoverBuyer}))(t)
		check.That(t, moved[0].Status == model.OrderPaid && moved[1].Status == model.OrderCanceled, "moved %+v", moved)
		list := check.Value(l.releases.After(t.Context(), model.Release{}, 10))(t)
		check.That(t, len(list) == 1 && list[0].OrderID == returned.ID,
			"the outbox has %+v, want order %s alone", list, returned.ID)
		l.balanced(t, v.ID, 1)
	})
}

// coolingDown is a voucher with a cool-down.
func (f *fixture) coolingDown(t testing.TB, stock int64, cooldown time.Duration) model.Voucher {
	t.Helper()
	return f.voucher(t, model.VoucherFields{
		Stock: stock, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour), Cooldown: model.Window(cooldown),
	})
}

// TestACancellationDuringAPurchaseOpensNoGap: an order is canceled while the same user's next purchase reads first the
// cool-downs and then the live orders. The purchase has locked the voucher's row before, and so it finds the order
// live. Without that lock it would find neither a cool-down nor an order.
func TestACancellationDuringAPurchaseOpensNoGap(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		near := newFixture(t, store{dialect: "mysql", strategy: strategy})
		v := near.coolingDown(t, 3, time.Hour)
		first := order(t, v.ID, "ann")
		check.Must(t, near.place(t, first).Err)
		canceled := make(chan error, 1)
		far := near.wired(t, onceOn("SELECT id, voucher_id, user_id, status", func(*wire) verdict {
			go func() {
				_, _, err := near.cancel(t.Context(), "ann", first.ID)
				canceled <- err
			}()
			check.Eventually(t, "the cancellation waits for the row, or is done", func() bool {
				return near.blocked(t, v.ID) || len(canceled) > 0
			})
			return pass
		}))
		wantCode(t, far.place(t, order(t, v.ID, "ann")).Err, model.CodeAlreadyOrdered)
		check.Must(t, <-canceled)
		wantCode(t, far.place(t, order(t, v.ID, "ann")).Err, model.CodeCoolingDown)
		near.balanced(t, v.ID, 0)
	})
}

// TestWhoWaitsIsListed, page by page, for hot copies that are loaded and for the answers from memory; who has waited is
// not.
func TestWhoWaitsIsListed(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		const waiting = 1100 // in three pages of buyers
		v := f.coolingDown(t, 2*waiting, time.Minute)
		var batch []model.Order
		var asked []model.Cancellation
		for i := range waiting + 2 {
			batch = append(batch, order(t, v.ID, fmt.Sprintf("u%05d", i)))
			asked = append(asked, model.Cancellation{OrderID: batch[i].ID, UserID: batch[i].UserID})
		}
		f.create(t, batch...)
		check.Must(t, check.ErrorOf(f.orders.Cancel(t.Context(), asked[1:]))) // the first has an order
		again := f.create(t, batch[1])[0].Order                               // as a repeated message finds it
		check.That(t, again.Status == model.OrderCanceled && again.CooldownUntil != nil, "found again: %+v", again)
		last := batch[waiting+1].UserID
		f.exec(t, "UPDATE orders SET cooldown_until = created_at WHERE user_id = ?", last) // and the last has waited
		check.Must(t, check.ErrorOf(f.copies.Close(t.Context(), v.ID, 0, "")))
		var buyers []string
		var cooling []model.Cooling
		check.Must(t, f.orders.Buyers(t.Context(), v, func(u string) error { buyers = append(buyers, u); return nil }))
		check.Must(t, f.copies.Snapshot(t.Context(), v.ID, 1, func(s model.Snapshot) error {
			return s.Cooling(t.Context(), func(some []model.Cooling) error {
				cooling = append(cooling, some...)
				return nil
			})
		}))
		check.Equal(t, "who has an order or waits", len(buyers), waiting+1)
		check.Equal(t, "who waits", len(cooling), waiting)
		check.That(t, buyers[0] == batch[0].UserID && cooling[waiting-1].UserID < last, "%s, %s", buyers[0], cooling[waiting-1].UserID)
		check.That(t, cooling[0].UserID == again.UserID && cooling[0].Until.Equal(*again.CooldownUntil), "%+v, want %v", cooling[0], again.CooldownUntil)
	})
}

// TestWhoCoolsDownGetsNoPlace on a waitlist, which may be an order at once. Whose unit goes to who waits cools down
// like others.
func TestWhoCoolsDownGetsNoPlace(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, mode model.OrderMode) {
		v := l.voucher(t, model.VoucherFields{
			Stock: 1, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour), Cooldown: model.Window(time.Hour), Waitlist: true,
		})
		ends := func(user string) {
			t.Helper()
			check.Must(t, check.ErrorOf(l.orders.Cancel(t.Context(), []model.Cancellation{{OrderID: l.owns(t, v.ID, user).ID, UserID: user}})))
		}
		refused := func() {
			t.Helper()
			_, _, err := l.join(t.Context(), v.ID, "ann")
			wantCode(t, err, model.CodeCoolingDown)
		}
		l.bought(t, v.ID, "ann")
		ends("ann")
		refused()
		l.bought(t, v.ID, "bob")
		refused()
		l.joins(t, v.ID, "carl")
		ends("bob")
		check.That(t, l.owns(t, v.ID, "carl").Live(), "the unit does not belong to the user who waited")
		told := l.number(t, "SELECT COUNT(*) FROM releases WHERE user_id = 'bob' AND heir_id IS NOT NULL AND cooldown_until IS NOT NULL AND voucher_id = ?", v.ID)
		check.Equal(t, "releases that tell the hot copy both", told, map[model.OrderMode]int64{model.ModeAsync: 1}[mode])
		wantCode(t, l.place(t, order(t, v.ID, "bob")).Err, model.CodeCoolingDown)
		l.balanced(t, v.ID, 1)
	})
}
