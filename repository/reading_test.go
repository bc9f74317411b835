package repository_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	httpwire "seckill/handler/wire"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

type crowd struct {
	life

	draws       *repository.Draws
	events      *repository.Events
	sold, drawn model.Voucher
	rows        int
	order       string // one of sold
}

func crowdOf(t testing.TB, f *fixture) *crowd {
	t.Helper()
	c := &crowd{life: lifeOf(f), draws: repository.NewDraws(f.db, paymentWindow)}
	c.events = &repository.Events{DB: f.db, URLs: []string{"https://x/"}, Stream: "nats:S"}
	check.Must(t, check.ErrorOf(c.events.Line(t.Context())))
	c.sold = c.voucher(t, model.VoucherFields{Stock: 9, Waitlist: true, Cooldown: model.Window(time.Hour)})
	c.drawn = c.voucher(t, model.VoucherFields{Stock: 9, Allocation: model.ByDraw})
	return c
}

func (c *crowd) grow(t testing.TB, rows int) {
	t.Helper()
	from, to := c.rows+1, c.rows+rows
	c.rows = to
	c.order = fmt.Sprintf("o%d", to/2)
	for _, statement := range []string{
		"INSERT INTO vouchers (id, title, description, price, face_value, currency, stock, remaining, begin_at, end_at, state, version, created_at, copy_epoch, copy_open_epoch)" +
			" SELECT CONCAT('v', seq, '.', part), 'x', '', 1, 1, 'CNY', 1, 1, NOW(6) - INTERVAL 2 DAY, NOW(6) - INTERVAL 1 DAY, 'published', 1, NOW(6) - INTERVAL 10 DAY + INTERVAL seq MICROSECOND, 1, 1" +
			// These are more rows than a search looks at.
			" FROM $ JOIN (SELECT 1 AS part UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6) AS parts",
		"INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, expires_at, closed_at, cooldown_until)" +
			" SELECT CONCAT('o', seq), 'SOLD', CONCAT('u', seq), ELT(IF(seq < 9, 5, 1 + seq % 4), 'unpaid', 'paid', 'canceled', 'expired', 'failed'), 1, 'CNY'," +
			" NOW(6) - INTERVAL 2 DAY + INTERVAL seq MICROSECOND, NOW(6) - INTERVAL 1 DAY, IF(seq % 4 < 2, NULL, NOW(6) - INTERVAL 1 DAY), IF(seq % 4 < 2, NULL, NOW(6) - INTERVAL 1 HOUR) FROM $",
		"INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, expires_at)" +
			" SELECT CONCAT('d', seq), 'DRAWN', CONCAT('u', seq), 'paid', 1, 'CNY', NOW(6) - INTERVAL 1 DAY + INTERVAL seq MICROSECOND, NULL FROM $",
		"INSERT IGNORE INTO order_instants SELECT 'closed', closed_at, id FROM orders WHERE closed_at IS NOT NULL",
		"INSERT INTO waitlist (voucher_id, place, user_id, joined_at, payment_window, order_id)" +
			" SELECT 'SOLD', seq, CONCAT('u', seq), NOW(6), 1, CONCAT('o', seq) FROM $",
		"INSERT INTO draw_entries (voucher_id, user_id, nonce, entered_at) SELECT 'DRAWN', CONCAT('u', seq), UNHEX(MD5(seq)), NOW(6) FROM $",
		"INSERT INTO draw_places (voucher_id, place, user_id, leaf) SELECT 'DRAWN', seq, CONCAT('u', seq), UNHEX(SHA2(seq, 256)) FROM $",
		"INSERT INTO payments (id, order_id, status, amount, currency, created_at, decided_at)" +
			" SELECT CONCAT('p', seq), CONCAT('o', seq), 'succeeded', 1, 'CNY', NOW(6), NOW(6) FROM $",
		"INSERT INTO refunds (id, payment_id, order_id, status, amount, currency, reason, actor, created_at, closed_at)" +
			" SELECT CONCAT('r', seq), CONCAT('p', seq), CONCAT('o', seq), IF(seq < 9, 'failed', 'done'), 1, 'CNY', '', 'system', NOW(6) - INTERVAL 1 DAY + INTERVAL seq MICROSECOND, NOW(6) FROM $",
		"INSERT INTO admin_log (changed_at, actor, action, subject) SELECT NOW(6), IF(seq < 9, 'somebody', 'admin'), 'voucher.change', 'SOLD' FROM $",
		"INSERT INTO accounts (id, username, username_key, role, password_hash, created_at, changed_at)" +
			" SELECT CONCAT('u', seq), CONCAT('u', seq), CONCAT('u', seq), 'user', 'x', NOW(6), NOW(6) FROM $",
		"INSERT INTO releases (order_id, voucher_id, user_id) SELECT CONCAT('o', seq), 'SOLD', CONCAT('u', seq) FROM $",
		"INSERT INTO events (type, subject, happened_at, data, position) SELECT 'order.paid', CONCAT('o', seq), NOW(6), '{}', seq FROM $",
		"INSERT INTO order_history (order_id, moved_at, from_status, to_status, actor) SELECT CONCAT('o', seq), NOW(6), 'unpaid', 'paid', 'system' FROM $",
	} {
		const atOnce = 50_000 // a statement has seconds
		for first := from; first <= to; first += atOnce {
			numbers := testserver.Numbers(first, min(first+atOnce-1, to))
			c.exec(t, strings.NewReplacer("SOLD", c.sold.ID, "DRAWN", c.drawn.ID, "$", numbers).Replace(statement))
		}
	}
	c.exec(t, "UPDATE vouchers SET places = ?, places_served = ?, remaining = 0 WHERE id = ?", to, to, c.sold.ID)
	c.exec(t, "UPDATE draws SET entries = ?, position = ?, winners = ?, closed_at = NOW(6) - INTERVAL 2 DAY, root = REPEAT('x', 32), drawn_at = NOW(6) WHERE voucher_id = ?", to, to, to, c.drawn.ID)
	for _, table := range []string{"vouchers", "orders", "waitlist", "draw_entries", "draw_places", "payments", "refunds", "admin_log", "accounts", "releases", "events", "order_history"} {
		check.Must(t, check.ErrorOf(c.db.SQL().ExecContext(t.Context(), "ANALYZE TABLE "+table)))
	}
}

// readings are all calls that read what grows with a sale, or with the years.
func (c *crowd) readings(t testing.TB) map[string]func(context.Context) error {
	t.Helper()
	list := map[string]func(context.Context) error{
		"report: orders":   func(ctx context.Context) error { return c.orders.Sold(ctx, c.sold.ID, ignore) },
		"report: waitlist": func(ctx context.Context) error { return check.ErrorOf(c.orders.Waited(ctx, c.sold.ID)) },
		"report: draw":     func(ctx context.Context) error { return check.ErrorOf(c.draws.Report(ctx, c.drawn.ID)) },
		"audit":            func(ctx context.Context) error { return check.ErrorOf(c.vouchers.Audit(ctx, c.sold.ID)) },
		"audit of a draw":  func(ctx context.Context) error { return check.ErrorOf(c.vouchers.Audit(ctx, c.drawn.ID)) },
		"stats":            func(ctx context.Context) error { return check.ErrorOf(c.vouchers.Stats(ctx, c.sold.ID)) },
		"takings":          func(ctx context.Context) error { return check.ErrorOf(c.vouchers.Takings(ctx, c.sold.ID)) },
		"what came since": func(ctx context.Context) error {
			return check.ErrorOf(c.vouchers.Since(ctx, time.Now().Add(-time.Hour)))
		},
		"today, before anything came": func(ctx context.Context) error {
			return check.ErrorOf(c.vouchers.Since(ctx, time.Now().Add(time.Hour)))
		},
		"export": func(ctx context.Context) error {
			return c.orders.Each(ctx, model.OrderQuery{VoucherID: c.sold.ID}, ignore)
		},
		"export of a status": func(ctx context.Context) error {
			return c.orders.Each(ctx, model.OrderQuery{VoucherID: c.sold.ID, Status: model.OrderPaid}, ignore)
		},
		"buyers":      func(ctx context.Context) error { return c.orders.Buyers(ctx, c.sold, ignore) },
		"live orders": func(ctx context.Context) error { return c.orders.Live(ctx, c.sold.ID, ignore) },
		"entries of a draw": func(ctx context.Context) error {
			return c.draws.Entries(ctx, c.drawn.ID, func(string, []byte) error { return nil })
		},
		"leaves of a draw": func(ctx context.Context) error {
			return check.ErrorOf(c.draws.Leaves(ctx, c.drawn.ID, true, fmt.Sprint(c.rows/2), 1000))
		},
		"an entry":              func(ctx context.Context) error { return check.ErrorOf(c.draws.Entry(ctx, c.drawn.ID, "u"+c.order[1:])) },
		"draws that are due":    func(ctx context.Context) error { return check.ErrorOf(c.draws.Due(ctx)) },
		"a place":               func(ctx context.Context) error { return check.ErrorOf(c.orders.Place(ctx, c.sold.ID, "u"+c.order[1:])) },
		"lapsed codes":          func(ctx context.Context) error { return c.orders.Lapse(ctx) },
		"waitlists":             func(ctx context.Context) error { _, _, err := c.orders.Waitlists(ctx); return err },
		"an order's history":    func(ctx context.Context) error { return check.ErrorOf(c.orders.Detail(ctx, c.order)) },
		"an order's payments":   func(ctx context.Context) error { return check.ErrorOf(c.payments.OfOrder(ctx, c.order)) },
		"outbox of events":      func(ctx context.Context) error { return check.ErrorOf(c.events.Line(ctx)) },
		"events for a receiver": func(ctx context.Context) error { _, _, err := c.events.After(ctx, c.events.URLs[0], 100); return err },
		"receivers of events":   func(ctx context.Context) error { return check.ErrorOf(c.events.Receivers(ctx)) },
		"old events":            func(ctx context.Context) error { return check.ErrorOf(c.events.Forget(ctx)) },
		"outbox of releases":    func(ctx context.Context) error { return check.ErrorOf(c.releases.After(ctx, model.Release{}, 100)) },
		"administrators":        func(ctx context.Context) error { return check.ErrorOf(c.accounts.Administrators(ctx)) },
		"changed accounts": func(ctx context.Context) error {
			return check.ErrorOf(c.accounts.Changed(ctx, time.Now().Add(-time.Hour), 100))
		},
		"back: a unit for nobody": func(ctx context.Context) error {
			back, err := c.orders.Expire(ctx, []string{c.order})
			check.Equal(t, "units that came back", len(back), 1)
			return err
		},
		"vouchers of a sale":    func(ctx context.Context) error { return check.ErrorOf(c.vouchers.IDs(ctx)) },
		"copies that are shown": func(ctx context.Context) error { return check.ErrorOf(c.copies.Watched(ctx)) },
		"copies that are kept":  func(ctx context.Context) error { return check.ErrorOf(c.copies.Kept(ctx)) },
		"payments that are due": func(ctx context.Context) error { return check.ErrorOf(c.payments.Due(ctx, 100)) },
		"refunds that are due":  func(ctx context.Context) error { return check.ErrorOf(c.refunds.Due(ctx, 100)) },
		"snapshot": func(ctx context.Context) error {
			return c.copies.Snapshot(ctx, c.sold.ID, 0, func(s model.Snapshot) error {
				if err := s.Cooling(ctx, func([]model.Cooling) error { return nil }); err != nil {
					return err
				}
				return s.Live(ctx, func([]model.Order) error { return nil })
			})
		},
	}
	for _, paying := range []bool{true, false} {
		list[fmt.Sprintf("overdue orders, paying %t", paying)] = func(ctx context.Context) error {
			return check.ErrorOf(c.orders.Overdue(ctx, paying, model.OverdueOrder{}, 100))
		}
	}
	for _, words := range []string{"", "x", "tea", c.order, "u" + c.order[1:], "no such thing"} {
		for _, status := range []model.OrderStatus{"", model.OrderPaid, model.OrderFailed, model.OrderRefunded} {
			list[fmt.Sprintf("search for %q, status %q", words, status)] = func(ctx context.Context) error {
				return check.ErrorOf(c.orders.List(ctx, model.OrderQuery{Words: words, Status: status}))
			}
		}
		list[fmt.Sprintf("count of %q", words)] = func(ctx context.Context) error {
			return check.ErrorOf(c.orders.Counts(ctx, model.OrderQuery{Words: words}))
		}
		list[fmt.Sprintf("the users of %q", words)] = func(ctx context.Context) error {
			return check.ErrorOf((&repository.People{DB: c.db}).Find(ctx, cmp.Or(words, "x"), nil))
		}
		list[fmt.Sprintf("shelf with %q", words)] = func(ctx context.Context) error {
			return check.ErrorOf(c.vouchers.Shelf(ctx, model.VoucherQuery{Words: words, By: "price"}))
		}
	}
	for _, status := range []model.OrderStatus{"", model.OrderPaid, model.OrderFailed, model.OrderRefunded} {
		for _, user := range []string{"", "u" + c.order[1:]} {
			for _, voucher := range []string{"", c.sold.ID} {
				if user == "" && voucher == "" {
					continue // those are searched for
				}
				list[fmt.Sprintf("orders of user %q, voucher %q, status %q", user, voucher,
					status)] = func(ctx context.Context) error {
					return check.ErrorOf(c.orders.List(ctx,
						model.OrderQuery{UserID: user, VoucherID: voucher, Status: status}))
				}
			}
		}
	}
	for _, of := range model.OrderInstants() {
		q := model.OrderQuery{Span: model.Span{Of: of, From: time.Now().Add(-72 * time.Hour)}}
		list["search of those "+string(of)] = func(ctx context.Context) error { return check.ErrorOf(c.orders.List(ctx, q)) }
		list["books of those "+string(of)] = func(ctx context.Context) error { return c.orders.Each(ctx, q, ignore) }
		q.VoucherID = c.sold.ID
		list["books of a voucher, "+string(of)] = func(ctx context.Context) error { return c.orders.Each(ctx, q, ignore) }
	}
	for _, status := range append(model.RefundStatuses(), "") {
		list[fmt.Sprintf("refunds, status %q", status)] = func(ctx context.Context) error {
			return check.ErrorOf(c.refunds.List(ctx, model.RefundQuery{Status: status}))
		}
	}
	for _, phase := range []model.Phase{"", model.PhaseUpcoming, model.PhaseLive, model.PhaseSoldOut, model.PhaseEnded, model.PhasePaused} {
		list[fmt.Sprintf("vouchers, phase %q", phase)] = func(ctx context.Context) error {
			return check.ErrorOf(c.vouchers.List(ctx, model.VoucherQuery{Phase: phase}))
		}
	}
	for name, page := range map[string]func(ctx context.Context, cursor string) (string, error){
		"log of a voucher": func(ctx context.Context, cursor string) (string, error) {
			page, err := c.log.List(ctx, model.AdminLogQuery{Subject: c.sold.ID, Cursor: cursor, Limit: 100})
			return page.NextCursor, err
		},
		"log of an administrator": func(ctx context.Context, cursor string) (string, error) {
			page, err := c.log.List(ctx, model.AdminLogQuery{Actor: "admin", Cursor: cursor, Limit: 100})
			return page.NextCursor, err
		},
		"orders of a voucher": func(ctx context.Context, cursor string) (string, error) {
			page, err := c.orders.List(ctx, model.OrderQuery{
				VoucherID: c.sold.ID, Status: model.OrderPaid,
				Cursor: cursor, Limit: 100,
			})
			return page.NextCursor, err
		},
		"orders of a status": func(ctx context.Context, cursor string) (string, error) {
			page, err := c.orders.List(ctx, model.OrderQuery{Status: model.OrderPaid, Cursor: cursor, Limit: 100})
			return page.NextCursor, err
		},
		"refunds": func(ctx context.Context, cursor string) (string, error) {
			page, err := c.refunds.List(ctx, model.RefundQuery{Status: model.RefundDone, Cursor: cursor, Limit: 100})
			return page.NextCursor, err
		},
		"vouchers": func(ctx context.Context, cursor string) (string, error) {
			page, err := c.vouchers.List(ctx, model.VoucherQuery{Cursor: cursor, Limit: 100})
			return page.NextCursor, err
		},
	} {
		list["all pages: "+name] = func(ctx context.Context) error {
			next, err := page(ctx, "")
			for next != "" && err == nil {
				next, err = page(ctx, next)
			}
			return err
		}
	}
	for _, q := range []model.AdminLogQuery{{}, {Actor: "somebody"}, {Subject: c.sold.ID}, {Actor: "somebody", Subject: c.sold.ID}, {Actor: "nobody", Subject: c.sold.ID}} {
		list[fmt.Sprintf("log of actor %q, subject %q", q.Actor, q.Subject)] = func(ctx context.Context) error { return check.ErrorOf(c.log.List(ctx, q)) }
	}
	return list
}

func ignore[T any](T) error { return nil }

// Twice the rows take at most 2.5 times the reading. A page, even of rare rows, and a unit that comes back take no
// more. Overdue orders are found in the order of their index.
func TestNoReadingGrowsFasterThanItsRows(t *testing.T) {
	t.Parallel()
	f, _, admin := ownServer(t)
	check.Must(t, check.ErrorOf(f.modes.Adopt(t.Context(), model.ModeAsync)))
	c := crowdOf(t, f)
	read := func() int64 {
		rows := check.Value(admin.QueryContext(t.Context(),
			"SHOW GLOBAL STATUS WHERE variable_name LIKE 'Handler_read%' OR variable_name = 'Handler_icp_attempts'"))(t)
		defer rows.Close()
		var sum int64
		for rows.Next() {
			var name string
			var n int64
			check.Must(t, rows.Scan(&name, &n))
			sum += n
		}
		check.Must(t, rows.Err())
		return sum
	}
	half := check.Count(t, "ROWS", 2000, 50_000)
	measured := map[string]int64{}
	for range 2 {
		c.grow(t, half)
		readings := c.readings(t)
		for _, name := range slices.Sorted(maps.Keys(readings)) {
			before := read()
			began := time.Now()
			check.Must(t, readings[name](check.Context(t)))
			now := read() - before
			plain := strings.NewReplacer(c.order, "o", "u"+c.order[1:], "u").Replace(name)
			t.Logf("%-60s %d rows: %9d read, %s", plain, c.rows, now, time.Since(began))
			if then, ok := measured[plain]; ok {
				most := 2.5 * float64(then+400)
				switch kind, _, _ := strings.Cut(plain, " "); kind {
				case "search", "back:", "vouchers,":
					most = float64(then + 400)
				case "waitlists": // there are six times as many vouchers
					most = float64(2 * c.rows)
				case "today,":
					most = 400
				}
				check.That(t, float64(now) <= most, "%s: %d are read of %d rows, %d of %d", plain, then, half, now,
					2*half)
			}
			measured[plain] = now
		}
	}
	overdue := check.Value(os.ReadFile("sql/order_overdue.sql"))(t)
	type step struct{ Table, Key, Extra string }
	var plan []step
	check.Must(t, f.db.Read(t.Context(), "explain", func(db *gorm.DB) error {
		return db.Raw("EXPLAIN FORMAT=TRADITIONAL "+string(overdue), time.Unix(0, 0), time.Unix(0, 0), "", 100).Scan(&plan).Error
	}))
	at := slices.IndexFunc(plan, func(step step) bool { return step.Table == "orders" })
	check.That(t, at >= 0 && plan[at].Key == "orders_due" && !strings.Contains(plan[at].Extra, "filesort"), "%+v", plan)
}

// A month's books are streamed: what an export keeps in memory is that of a page, whatever the rows. ROWS=1000000 tries
// a large shop's, in minutes.
func TestBooksOfAMonthAreStreamed(t *testing.T) { //nolint:paralleltest // the heap is this test's alone
	f := newFixture(t, stores()[0])
	v, rows := f.onSale(t, 9), check.Count(t, "ROWS", 4000, 50_000)
	const atOnce = 50_000 // a statement has seconds
	for first := 1; first <= rows; first += atOnce {
		numbers := testserver.Numbers(first, min(first+atOnce-1, rows))
		f.exec(t, "INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, paid_at, closed_at) SELECT CONCAT('o', seq), ?, CONCAT('u', seq),"+
			" ELT(1 + seq % 4, 'paid', 'refunded', 'paid', 'expired'), 1000, 'CNY', NOW(6) - INTERVAL 2 DAY + INTERVAL seq MICROSECOND,"+
			" IF(seq % 4 = 3, NULL, NOW(6) - INTERVAL 1 DAY + INTERVAL seq % 1000 MICROSECOND), IF(seq % 2 = 0, NULL, NOW(6) - INTERVAL 1 HOUR) FROM "+numbers, v.ID)
		f.exec(t, "INSERT INTO payments (id, order_id, status, amount, currency, created_at, decided_at)"+
			" SELECT CONCAT('p', seq), CONCAT('o', seq), 'succeeded', 1000, 'CNY', NOW(6), NOW(6) FROM "+numbers+" WHERE seq % 4 < 3")
		f.exec(t, "INSERT INTO refunds (id, payment_id, order_id, status, amount, currency, reason, actor, created_at, closed_at)"+
			" SELECT CONCAT('r', seq), CONCAT('p', seq), CONCAT('o', seq), 'done', 1000, 'CNY', '', 'boss', NOW(6), NOW(6) FROM "+numbers+" WHERE seq % 4 = 1")
	}
	f.exec(t, "INSERT INTO order_instants SELECT 'paid', paid_at, id FROM orders WHERE paid_at IS NOT NULL")
	var sold model.ReportMoney
	check.Must(t, f.orders.Sold(t.Context(), v.ID, func(o model.BookedOrder) error {
		sold.Received, sold.Returned = sold.Received+o.Received, sold.Returned+o.Returned
		return nil
	}))
	for _, format := range []string{"csv", "xlsx"} {
		for _, of := range []model.OrderInstant{model.InstantCreated, model.InstantPaid} {
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			peak, seen, began := uint64(0), 0, time.Now()
			var sum model.ReportMoney
			q := model.OrderQuery{Span: model.Span{Of: of, From: time.Now().Add(-30 * 24 * time.Hour), To: time.Now()}}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			begun, err := httpwire.ExportOrders(discarded{http.Header{}}, request, "orders", format, nil, func(row func(model.BookedOrder) error) error {
				return f.orders.Each(t.Context(), q, func(o model.BookedOrder) error {
					if seen++; seen%(rows/50) == 0 {
						runtime.GC()
						runtime.ReadMemStats(&now)
						peak = max(peak, now.HeapAlloc-min(before.HeapAlloc, now.HeapAlloc))
					}
					sum.Received, sum.Returned = sum.Received+o.Received, sum.Returned+o.Returned
					return row(o)
				})
			})
			check.Must(t, err)
			want := f.number(t, "SELECT COUNT("+string(of)+"_at) FROM orders")
			t.Logf("%s of those %s: %d rows in %s, %.1f MB of heap at most", format, of, seen, time.Since(began), float64(peak)/1e6)
			check.That(t, begun && int64(seen) == want && peak < 48<<20, "%d rows of %d, %d bytes of heap", seen, want, peak)
			check.Equal(t, "the sums", sum, sold)
			check.That(t, sum.Returned > 0 && sum.Returned < sum.Received, "%+v", sum)
		}
	}
}

type discarded struct{ header http.Header }

func (d discarded) Header() http.Header            { return d.header }
func (d discarded) Write(data []byte) (int, error) { return len(data), nil }
func (d discarded) WriteHeader(int)                {}

// A reading that runs out of time, or whose caller goes away, ends in the server too: it would keep its connection.
func TestNoReadingOutlastsItsCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stores()[0])
	keeper := check.Value(f.db.SQL().Conn(t.Context()))(t)
	t.Cleanup(func() { _ = keeper.Close() })
	running := func() (n int) {
		t.Helper()
		check.Must(t, keeper.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist"+
			" WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command = 'Query'").Scan(&n))
		return n
	}
	numbers := "(SELECT seq FROM " + testserver.Numbers(1, 1000) + ")"
	endless := func(db *gorm.DB) error { // for hours
		var n int
		return db.Raw("SELECT COUNT(*) FROM " + numbers + " AS a, " + numbers + " AS b, " + numbers + " AS c, " +
			numbers + " AS d WHERE a.seq + b.seq + c.seq + d.seq < 0").Scan(&n).Error
	}
	for name, read := range map[string]func(context.Context) error{
		"a list":        func(ctx context.Context) error { return f.db.Browse(ctx, "list", endless) },
		"a question":    func(ctx context.Context) error { return f.db.Read(ctx, "ask", endless) },
		"a snapshot":    func(ctx context.Context) error { return sqldb.Named("look", f.db.Snapshot(ctx, endless)) },
		"a locking one": func(ctx context.Context) error { return f.db.Write(ctx, "lock", endless) },
	} {
		err := read(check.Expiring(t))
		check.That(t, model.CodeOf(err) == model.CodeUnavailable, "%s: %v", name, err)
		check.Eventually(t, "the server has ended "+name, func() bool { return running() == 0 })
	}

	v := f.onSale(t, 1)
	check.Must(t, check.ErrorOf(keeper.ExecContext(t.Context(), "LOCK TABLES orders WRITE")))
	gone, leave := context.WithCancel(t.Context())
	again, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	call := func(ctx context.Context, times int) {
		for range times {
			calls.Go(func() { _ = f.orders.Sold(ctx, v.ID, ignore) })
		}
	}
	const most = 4 // connections of lists
	call(gone, most)
	check.Eventually(t, "they are read", func() bool { return running() == most })
	leave()
	call(again, most)
	check.Stays(t, "who goes away and comes back has no more of them read", func() bool { return running() <= most })
	stop()
	check.Must(t, check.ErrorOf(keeper.ExecContext(t.Context(), "UNLOCK TABLES")))
	calls.Wait()
}

// BenchmarkCreateOrders measures orders a second of one voucher, on a MariaDB that flushes every commit.
func BenchmarkCreateOrders(b *testing.B) {
	for _, s := range stores() {
		for _, shape := range []struct{ batch, writers int }{{1, 1}, {1, 16}, {16, 4}, {100, 2}, {500, 2}} {
			b.Run(fmt.Sprintf("%s/batch=%d/writers=%d", s, shape.batch, shape.writers), func(b *testing.B) {
				options := sqldb.Options{SQLiteFile: b.TempDir() + "/bench.db"}
				if s.dialect == "mysql" {
					server := testserver.MariaDB(b)
					options = sqldb.Options{DSN: server.DSN("bench")}
					createSchema(b, server, "bench")
				}
				f := openFixture(b, s, options)
				check.Must(b, f.db.Migrate(b.Context()))
				v := f.onSale(b, model.MaxAmount)
				var next atomic.Int64
				b.ResetTimer()
				check.Volley(shape.writers, func(int) {
					for next.Add(1) <= int64(b.N) {
						batch := make([]model.Order, shape.batch)
						for i := range batch {
							batch[i] = order(b, v.ID, newID(b))
						}
						if _, err := f.orders.CreateOrders(b.Context(), batch); err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N*shape.batch)/b.Elapsed().Seconds(), "orders/s")
			})
		}
	}
}

func createSchema(b *testing.B, server *testserver.Server, name string) {
	b.Helper()
	db := check.Value(sqldb.Open(b.Context(), sqldb.Options{DSN: server.AdminDSN("mysql")}))(b)
	check.Must(b, check.ErrorOf(db.SQL().ExecContext(b.Context(), "CREATE DATABASE IF NOT EXISTS "+name)))
	check.Must(b, db.Close())
}
