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
