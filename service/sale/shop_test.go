package sale

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository/hotcopy/hotcopytest"
	"seckill/service/backlog"
	"seckill/service/sale/cache"
	"seckill/service/servicetest"
)

// desk is a store of orders whose transactions a test can hold up.
type desk struct {
	OrderStore // of the rest nothing is called

	table  *servicetest.Table
	took   time.Duration // of one transaction
	err    error
	calls  atomic.Int64
	orders atomic.Int64
}

func (d *desk) CreateOrders(ctx context.Context, orders []model.Order) ([]model.Outcome, error) {
	d.calls.Add(1)
	select {
	case <-time.After(d.took):
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", model.ErrUnknownOutcome, ctx.Err())
	}
	if d.err != nil {
		return nil, d.err
	}
	outcomes := make([]model.Outcome, len(orders))
	d.table.With(func(t *servicetest.Table) {
		for i, order := range orders {
			outcomes[i] = d.create(t, order)
		}
	})
	return outcomes, nil
}

func (d *desk) create(t *servicetest.Table, order model.Order) model.Outcome {
	if t.Voucher.Remaining == 0 {
		return model.Outcome{Err: model.SoldOut()}
	}
	t.Voucher.Remaining--
	t.Voucher.Version++ // only what changes the row does: see repository.Vouchers
	t.Users = append(t.Users, order.UserID)
	d.orders.Add(1)
	order.Status = model.OrderUnpaid
	return model.Outcome{Order: order, Created: true}
}

// shop is a service of orders over fakes, in the bubble of one test.
type shop struct {
	*Orders
	table   *servicetest.Table
	desk    *desk
	keys    *servicetest.Locks
	metrics *prometheus.Registry
}

func newShop(t *testing.T) shop {
	t.Helper()
	db := servicetest.NewTable()
	s := shop{
		table: db, desk: &desk{table: db, took: time.Millisecond},
		keys: servicetest.NewLocks(), metrics: prometheus.NewRegistry(),
	}
	metrics := telemetry.New(s.metrics)
	entries := check.Value(cache.OfDatabase(db, metrics, slog.New(slog.DiscardHandler)))(t)
	s.Orders = NewSync(Deps{
		Store: s.desk, Cache: entries, Locks: s.keys, LockWait: time.Second, Selling: func() error { return nil },
		Metrics: metrics, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		s.Close(context.Background())
		entries.Close(context.Background())
	})
	return s
}

// inShop runs a test in a shop, on a clock of its own.
func inShop(t *testing.T, test func(*testing.T, shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newShop(t)) })
}

func TestMain(m *testing.M) { servicetest.Main(m) }

// hotShop is a service of asynchronous orders over fakes, in the bubble of one test.
type hotShop struct {
	*Orders

	table   *servicetest.Table
	rows    *rows
	hot     *hotcopytest.Copies
	sale    *hotcopytest.Sale // in hot
	line    *line
	keys    *servicetest.Locks
	cache   *cache.Vouchers
	seller  *asyncSeller
	doctor  *doctor
	metrics *prometheus.Registry
}

// newHotShop sells the voucher of newTable.
func newHotShop(t *testing.T, change func(*Deps, *AsyncDeps)) hotShop {
	t.Helper()
	db := servicetest.NewTable()
	s := hotShop{
		table: db, rows: &rows{table: db, byID: map[string]model.Order{}}, hot: hotcopytest.New(t), line: newLine(),
		keys: servicetest.NewLocks(), doctor: &doctor{}, metrics: prometheus.NewRegistry(),
	}
	voucher := db.Voucher
	voucher.Currency = "CNY"
	s.sale, s.hot.Took = s.hot.Add(voucher), servicetest.QueryTime
	metrics, log := telemetry.New(s.metrics), slog.New(slog.DiscardHandler)
	s.cache = check.Value(cache.OfHotCopies(db, s.hot, metrics, log))(t)
	orders := Deps{
		Store: s.rows, Cache: s.cache, Locks: s.keys, LockWait: time.Second, Metrics: metrics, Log: log,
		Announce: func(context.Context, string) error { return nil }, Selling: func() error { return nil },
	}
	async := AsyncDeps{
		Hot: s.hot, Queue: s.line, Released: s.rows.DoneOrders, Epochs: sameEpoch(s.hot).Latest, Rebuild: s.doctor.rebuild,
		ScriptLocks: true, Admission: telemetry.NewAdmission(s.metrics),
	}
	watch := backlog.New(s.line, 30*time.Second, async.Admission, log)
	async.Backlog = watch
	if change != nil {
		change(&orders, &async)
	}
	watching, end := context.WithCancel(context.Background())
	go watch.Run(watching)
	s.Orders = NewAsync(orders, async)
	s.seller = s.Orders.seller.(*asyncSeller)
	t.Cleanup(func() {
		end()
		s.Close(context.Background())
		s.cache.Close(context.Background())
	})
	return s
}

// inHotShop runs a test in a shop, on a clock of its own.
func inHotShop(t *testing.T, test func(*testing.T, hotShop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newHotShop(t, nil)) })
}

// inHotShops is inHotShop for a subtest, which runs beside the others.
func inHotShops(t *testing.T, name string, test func(*testing.T, hotShop)) {
	t.Helper()
	servicetest.Bubble(t, name, func(t *testing.T) { test(t, newHotShop(t, nil)) })
}
