package sale

import (
	"context"
	"log/slog"
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
