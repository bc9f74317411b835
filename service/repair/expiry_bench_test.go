package repair_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/ids"
	"seckill/internal/lane"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
	"seckill/service/repair"
)

// It sells a voucher at half of the machine's capacity, alone and beside EXPIRY_ORDERS orders that expire at one
// instant (`make bench-expiry`). It prints capacity/s, orders of a closed load; expired-s, until the last one has
// expired; sold-ratio, orders a second beside expiry divided by those alone; alone-p99-ms and beside-p99-ms, from when
// an order was due to be sent until its commit.
func BenchmarkSaleBesideExpiry(b *testing.B) {
	orders, err := strconv.Atoi(os.Getenv("EXPIRY_ORDERS"))
	if err != nil {
		orders = 100_000
	}
	for _, other := range []bool{false, true} {
		b.Run(map[bool]string{false: "same", true: "other"}[other]+"-voucher", func(b *testing.B) {
			for b.Loop() {
				m := newMarket(b, testserver.MariaDB(b, "--innodb-buffer-pool-size=512M",
					"--innodb-log-file-size=256M"))
				f := m.measure(b, orders, other, time.Second)
				b.ReportMetric(0, "ns/op") // which says nothing
				b.ReportMetric(f.capacity, "capacity/s")
				b.ReportMetric(f.expired.Seconds(), "expired-s")
				b.ReportMetric(f.beside.rate/f.alone.rate, "sold-ratio")
				b.ReportMetric(milliseconds(f.alone.p99), "alone-p99-ms")
				b.ReportMetric(milliseconds(f.beside.p99), "beside-p99-ms")
			}
		})
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Sales are in sync mode, and expiry has its own connections.
type market struct {
	orders   *repository.Orders
	vouchers *repository.Vouchers
	expiring *repository.Orders // over connections of its own
	payments *repository.Payments
	admin    *sql.DB
}

type figures struct {
	capacity      float64
	alone, beside run
	expired       time.Duration // from when they were due until the last one had expired
}

type run struct {
	rate float64 // orders made in a second
	p99  time.Duration
}

func newMarket(tb testing.TB, server *testserver.Server) *market {
	tb.Helper()
	m := &market{admin: check.Value(sql.Open("mysql", server.DSN(testserver.DefaultSchema)))(tb)}
	tb.Cleanup(func() { check.Must(tb, m.admin.Close()) })
	open := func() *sqldb.Database {
		db := check.Value(sqldb.Open(tb.Context(),
			sqldb.Options{DSN: server.DSN(testserver.DefaultSchema), Slack: check.Deadline}))(tb)
		tb.Cleanup(func() { check.Must(tb, db.Close()) })
		check.Must(tb, db.Migrate(tb.Context()))
		return db
	}
	orders := func(db *sqldb.Database) *repository.Orders {
		return check.Value(repository.NewOrders(db, repository.OrderOptions{PaymentWindow: time.Hour}))(tb)
	}
	selling, expiring := open(), open()
	m.orders, m.vouchers = orders(selling), repository.NewVouchers(selling, "CNY")
	m.expiring, m.payments = orders(expiring), &repository.Payments{DB: expiring}
	return m
}

func (m *market) voucher(tb testing.TB, stock int64) model.Voucher {
	tb.Helper()
	return check.Value(m.vouchers.Create(tb.Context(), check.Value(ids.New())(tb), model.VoucherFields{
		Title: "x", Price: 1000, FaceValue: 2000, Stock: stock, State: model.VoucherPublished,
		BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour),
	}, "", model.Idempotency{}))(tb)
}

func (m *market) measure(tb testing.TB, orders int, other bool, unit time.Duration) figures {
	tb.Helper()
	lapsing := m.voucher(tb, int64(orders)+100_000_000)
	sold := lapsing
	if other {
		sold = m.voucher(tb, 100_000_000)
	}
	var f figures
	f.capacity = m.closed(tb, sold.ID, 3*unit)
	rate := f.capacity / 2
	f.alone = m.sell(tb, sold.ID, rate, func(context.Context) { poll.Pause(tb.Context(), 5*unit) })
	due := m.lapse(tb, lapsing.ID, orders)
	f.beside = m.sell(tb, sold.ID, rate, func(ctx context.Context) {
		f.expired = m.expire(ctx, tb, orders).Sub(due)
	})
	m.check(tb, lapsing.ID, orders)
	return f
}

// Each buyer of closed asks again after its answer; it returns orders a second.
func (m *market) closed(tb testing.TB, voucherID string, length time.Duration) float64 {
	tb.Helper()
	const buyers = 256 // that the service lets in at once
	group := m.group()
	defer group.Close(tb.Context())
	var sold atomic.Int64
	began := time.Now()
	check.Volley(buyers, func(int) {
		for end := began.Add(length); time.Now().Before(end); {
			if err := buy(tb, group, voucherID); err != nil {
				tb.Errorf("buy: %v", err)
				return
			}
			sold.Add(1)
		}
	})
	return float64(sold.Load()) / time.Since(began).Seconds()
}

func (m *market) group() *lane.Group[model.Order, model.Outcome] {
	return lane.New(m.orders.CreateOrders,
		lane.Options{Writers: 2, MaxBatch: 500, MaxQueue: 8192, Timeout: 6 * time.Second})
}

func buy(tb testing.TB, group *lane.Group[model.Order, model.Outcome], voucherID string) error {
	tb.Helper()
	id := check.Value(ids.New())(tb)
	ticket, err := group.Submit(tb.Context(),
		model.Order{ID: model.OrderID(id, voucherID), VoucherID: voucherID, UserID: id})
	if err != nil {
		return err
	}
	outcome, err := ticket.Wait(tb.Context())
	if err != nil {
		return err
	}
	return outcome.Err
}

// Orders refused because too many wait are not sold.
func (m *market) sell(tb testing.TB, voucherID string, rate float64, while func(ctx context.Context)) run {
	tb.Helper()
	group := m.group()
	ctx, stop := context.WithCancel(tb.Context())
	var mu sync.Mutex
	var waits []time.Duration
	var buyers sync.WaitGroup
	began := time.Now()
	buyers.Go(func() {
		sent := 0
		poll.Every(ctx, time.Millisecond, func() {
			for ; ; sent++ {
				due := began.Add(time.Duration(float64(sent) / rate * float64(time.Second)))
				if due.After(time.Now()) {
					return
				}
				buyers.Go(func() {
					if buy(tb, group, voucherID) != nil {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					waits = append(waits, time.Since(due))
				})
			}
		})
	})
	while(ctx)
	var sold int // by now
	check.Eventually(tb, "something is sold", func() bool {
		mu.Lock()
		defer mu.Unlock()
		sold = len(waits)
		return sold > 0
	})
	length := time.Since(began)
	stop()
	buyers.Wait()
	group.Close(tb.Context())
	slices.Sort(waits)
	return run{rate: float64(sold) / length.Seconds(), p99: waits[len(waits)*99/100]}
}

// lapse makes live orders that fall due within a few milliseconds, a hundred at each instant, and tells when.
func (m *market) lapse(tb testing.TB, voucherID string, orders int) time.Time {
	tb.Helper()
	const atOnce, perOrder = 5000, 150 * time.Microsecond // which making one may take
	due := time.Now().Add(2*time.Second + time.Duration(orders)*perOrder).Truncate(time.Microsecond).UTC()
	for from := 0; from < orders; from += atOnce {
		check.Must(tb, check.ErrorOf(m.admin.ExecContext(tb.Context(), fmt.Sprintf(
			"INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, unpaid_at, expires_at) "+
				"SELECT CONCAT(LPAD(seq, 26, '0'), '.', ?), ?, MD5(seq), 'unpaid', 1000, 'CNY', NOW(6), NOW(6), ? + INTERVAL seq DIV 100 MICROSECOND "+
				"FROM %s", testserver.Numbers(from+1, min(from+atOnce, orders))), voucherID, voucherID,
			due.Format("2006-01-02 15:04:05.999999"))))
	}
	check.Must(tb, check.ErrorOf(m.admin.ExecContext(tb.Context(),
		"UPDATE vouchers SET remaining = remaining - ? WHERE id = ?", orders, voucherID)))
	if time.Now().After(due) {
		tb.Logf("the orders were made too late: they are in more of a hurry than others")
	}
	poll.Pause(tb.Context(), time.Until(due)-time.Second)
	return due
}

func (m *market) expire(ctx context.Context, tb testing.TB, orders int) time.Time {
	tb.Helper()
	ctx, stop := context.WithCancel(ctx)
	store := &countingStore{Orders: m.expiring, Payments: m.payments, left: orders, done: make(chan time.Time, 1)}
	expiry := repair.Expiry{
		Store: store, Clocks: &repair.Clocks{Log: slog.New(slog.DiscardHandler)},
		Metrics: telemetry.NewExpiry(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
		Announce: func(context.Context, string) error { return nil },
	}
	var running sync.WaitGroup
	running.Go(func() { expiry.Run(ctx, electing(unlocked{lifetime: ctx})) })
	defer running.Wait()
	defer stop()
	return <-store.done
}

type countingStore struct {
	*repository.Orders
	*repository.Payments

	mu   sync.Mutex
	left int
	done chan time.Time
}

func (s *countingStore) Expire(ctx context.Context, orderIDs []string) ([]model.Order, error) {
	expired, err := s.Orders.Expire(ctx, orderIDs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left -= len(expired); s.left == 0 && len(expired) > 0 {
		s.done <- time.Now()
	}
	return expired, err
}

func (m *market) check(tb testing.TB, voucherID string, orders int) {
	tb.Helper()
	number := func(question string) (n int) {
		check.Must(tb, m.admin.QueryRowContext(tb.Context(), question, voucherID).Scan(&n))
		return n
	}
	check.Equal(tb, "expired orders", number("SELECT COUNT(*) FROM orders WHERE voucher_id = ? AND status = 'expired'"),
		orders)
	check.Equal(tb, "what their history tells", number(
		"SELECT COUNT(*) FROM order_history JOIN orders ON orders.id = order_id WHERE voucher_id = ? AND to_status = 'expired'"), orders)
	if audit := check.Value(m.vouchers.Audit(tb.Context(), voucherID))(tb); !audit.Balanced {
		tb.Errorf("the voucher does not add up: %+v", audit.Database)
	}
}

func sold(t testing.TB, db *sql.DB, voucherID string, orders int) {
	t.Helper()
	const at = 50_000
	for first := 0; first < orders; first += at {
		last := min(first+at, orders) - 1
		check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), fmt.Sprintf(`
			INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at)
			SELECT CONCAT('live', LPAD(seq, 8, '0'), '.', v.id), v.id, CONCAT('live', seq), 'unpaid', v.price, v.currency, v.created_at
			FROM vouchers v JOIN %s WHERE v.id = ?`, testserver.Numbers(first, last)), voucherID)))
	}
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(),
		"UPDATE vouchers SET remaining = remaining - ? WHERE id = ?", orders, voucherID)))
}

// How long a rebuild closes a sale, beyond its queue; three in ten of BUYERS are reserved. A million: 5 s at most.
func BenchmarkReopenedSale(b *testing.B) {
	buyers := check.Count(b, "BUYERS", 20_000, 20_000)
	reserved := buyers * 3 / 10
	for b.Loop() {
		shop := openBackstage(b, testserver.Redis(b, "--appendonly", "no", "--maxmemory", "0").URL())
		v := shop.voucher(b, int64(buyers)+10)
		sold(b, shop.db.SQL(), v.ID, buyers-reserved)
		check.Must(b, shop.Rebuilder.Do(b.Context(), v.ID, model.AnyEpoch))
		for first := 0; first < reserved; first += 500 {
			check.Must(b, check.ErrorOf(shop.hot.Reserve(b.Context(),
				admissions(v.ID, first, min(first+500, reserved)))))
		}
		began := time.Now()
		check.Must(b, shop.Rebuilder.Do(b.Context(), v.ID, model.AnyEpoch))
		b.ReportMetric(time.Since(began).Seconds(), "closed-s")
		hot := check.Value(shop.hot.Read(b.Context(), []string{v.ID}))(b)[v.ID]
		check.That(b, hot.State == model.CopyOpen && hot.Buyers == int64(buyers) && hot.Reserved == int64(reserved) &&
			hot.Voucher.Remaining == 10, "%+v", hot)
	}
}
