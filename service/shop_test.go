package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/model"
)

// desk is a store of orders whose transactions a test can hold up.
type desk struct {
	OrderStore // of the rest nothing is called

	table  *table
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
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	v := &d.table.voucher
	for i, order := range orders {
		if v.Remaining == 0 {
			outcomes[i].Err = model.SoldOut()
			continue
		}
		v.Remaining--
		v.Version++ // only what changes the row does: see repository.Vouchers
		d.orders.Add(1)
		order.Status = model.OrderUnpaid
		outcomes[i] = model.Outcome{Order: order, Created: true}
		d.table.users = append(d.table.users, order.UserID)
	}
	return outcomes, nil
}

// keys are locks of one process; a test can make them slow, busy or lost.
type keys struct {
	mu       sync.Mutex
	held     map[string]bool
	took     time.Duration
	err      error
	lost     bool
	busy     string // the name of a lock somebody else holds
	tried    atomic.Int64
	taken    atomic.Int64
	released atomic.Int64
}

func (k *keys) Lock(ctx context.Context, name string, wait time.Duration) (Lease, error) {
	k.tried.Add(1)
	took := k.took
	if name == k.busy {
		took += wait
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, k.err
	}
	if name == k.busy {
		return nil, ErrLockBusy
	}
	k.taken.Add(1)
	k.held[name] = true
	l := &key{keys: k, name: name, ctx: context.Background()}
	if k.lost {
		var cancel context.CancelFunc
		l.ctx, cancel = context.WithCancel(l.ctx)
		cancel()
	}
	return l, nil
}

func (k *keys) holds(userID string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held["lock:order:"+userID]
}

type key struct {
	keys *keys
	name string
	ctx  context.Context
}

func (l *key) Context() context.Context { return l.ctx }

func (l *key) Unlock() error {
	l.keys.mu.Lock()
	defer l.keys.mu.Unlock()
	delete(l.keys.held, l.name)
	l.keys.released.Add(1)
	return nil
}

// shop is a service of orders over fakes, in the bubble of one test.
type shop struct {
	*Orders
	table   *table
	desk    *desk
	keys    *keys
	metrics *prometheus.Registry
}

func newShop(t *testing.T) shop {
	t.Helper()
	db := newTable()
	s := shop{
		table: db, desk: &desk{table: db, took: time.Millisecond},
		keys: &keys{held: map[string]bool{}}, metrics: prometheus.NewRegistry(),
	}
	metrics := telemetry.New(s.metrics)
	copies, err := NewVoucherCache(db, db, metrics, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Orders = NewOrders(OrderDeps{
		Store: s.desk, Copies: copies, Locks: s.keys, LockWait: time.Second,
		Metrics: metrics, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		s.Close(context.Background())
		copies.Close(context.Background())
	})
	return s
}

// counted is the value of a counter.
func counted(t *testing.T, metrics *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
