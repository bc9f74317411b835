package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	d.table.change(func(v *model.Voucher) {
		for i, order := range orders {
			if v.Remaining == 0 {
				outcomes[i].Err = model.SoldOut()
				continue
			}
			v.Remaining--
			d.orders.Add(1)
			order.Status = model.OrderUnpaid
			outcomes[i] = model.Outcome{Order: order, Created: true}
			d.table.users = append(d.table.users, order.UserID)
		}
	})
	return outcomes, nil
}

// keys are locks of one process; a test can make them slow, busy or lost.
type keys struct {
	mu       sync.Mutex
	held     map[string]bool
	took     time.Duration
	err      error
	lost     bool
	released atomic.Int64
}

func (k *keys) Lock(ctx context.Context, name string, _ time.Duration) (Lease, error) {
	select {
	case <-time.After(k.took):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, k.err
	}
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
	copies, err := NewVoucherCache(db, db, metrics)
	if err != nil {
		t.Fatal(err)
	}
	s.Orders = NewOrders(OrderDeps{
		Store: s.desk, Copies: copies, Locks: s.keys, LockWait: time.Second,
		Metrics: metrics, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		s.Orders.Close()
		copies.Close()
	})
	return s
}

func TestPlaceAnswersWithTheCommittedOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		order, err := s.Place(t.Context(), "alice", "v1")
		if err != nil || order.UserID != "alice" || order.VoucherID != "v1" {
			t.Fatalf("%+v, %v", order, err)
		}
		if voucher, ok := model.VoucherOf(order.ID); !ok || voucher != "v1" {
			t.Errorf("the id %q does not tell the voucher", order.ID)
		}
		if s.keys.holds("alice") {
			t.Error("the user's lock was not given back")
		}
	})
}

func TestPlaceRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(shop)
		voucher string
		want    model.Code
		commits int64 // how many transactions there may be
	}{
		"an id that cannot exist":  {func(shop) {}, "no/voucher", model.CodeNotFound, 0},
		"no such voucher":          {func(shop) {}, "v2", model.CodeNotFound, 0},
		"lock busy":                {func(s shop) { s.keys.err = fmt.Errorf("%w: for 1 s", ErrLockBusy) }, "v1", model.CodeLockBusy, 0},
		"lock store gone":          {func(s shop) { s.keys.err = errors.New("connection refused") }, "v1", model.CodeUnavailable, 0},
		"lock lost before the use": {func(s shop) { s.keys.lost = true }, "v1", model.CodeUnavailable, 0},
		"database gone":            {func(s shop) { s.desk.err = model.Unavailable("gone", nil) }, "v1", model.CodeUnavailable, 1},
		"a bug":                    {func(s shop) { s.desk.err = errors.New("no such column") }, "v1", model.CodeInternal, 1},
		"sold out": {func(s shop) {
			s.table.change(func(v *model.Voucher) { v.Remaining = 0 })
		}, "v1", model.CodeSoldOut, 0},
		"paused while it waited for the lock": {func(s shop) {
			s.keys.took = 2 * time.Second
			time.AfterFunc(time.Second, func() {
				s.table.change(func(v *model.Voucher) { v.State = model.VoucherPaused })
			})
		}, "v1", model.CodePaused, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShop(t)
				tt.prepare(s)
				_, err := s.Place(t.Context(), "alice", tt.voucher)
				if model.CodeOf(err) != tt.want {
					t.Errorf("%v, want %s", err, tt.want)
				}
				if n := s.desk.calls.Load(); n != tt.commits {
					t.Errorf("%d transactions, want %d", n, tt.commits)
				}
				if s.keys.holds("alice") {
					t.Error("the user's lock was not given back")
				}
			})
		})
	}
}

// What could not be decided in time is 503, and the lock is kept until it is
// decided: only then may the same user try again.
func TestUnknownOutcomeKeepsTheLockUntilItIsDecided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.desk.took = 5500 * time.Millisecond
		began := time.Now()
		_, err := s.Place(t.Context(), "alice", "v1")
		if model.CodeOf(err) != model.CodeUnavailable || !errors.Is(err, model.ErrUnknownOutcome) {
			t.Fatalf("%v, want UNAVAILABLE for an unknown outcome", err)
		}
		if took := time.Since(began); took > time.Second+5*time.Second {
			t.Errorf("answered after %v, the longest answer is the wait of 1 s and 5 s", took)
		}
		if !s.keys.holds("alice") {
			t.Error("the lock was given back though the order is not decided")
		}
		<-time.After(time.Second)
		if s.keys.holds("alice") || s.desk.orders.Load() != 1 {
			t.Errorf("afterwards: held %v, %d orders; want the lock back and the order made", s.keys.holds("alice"), s.desk.orders.Load())
		}
		if n := counted(t, s.metrics, "seckill_orders_unknown_total"); n != 1 {
			t.Errorf("%v unknown orders counted, want 1", n)
		}
	})
}

func TestClientThatHangsUpLeavesNoHalfOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.desk.took = time.Second
		ctx, hangUp := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer hangUp()
		if _, err := s.Place(ctx, "alice", "v1"); model.CodeOf(err) != model.CodeUnavailable {
			t.Errorf("%v, want UNAVAILABLE", err)
		}
		if !s.keys.holds("alice") {
			t.Error("the lock was given back in the middle of the order")
		}
		<-time.After(2 * time.Second)
		if s.keys.holds("alice") || s.desk.orders.Load() != 1 {
			t.Errorf("afterwards: held %v, %d orders", s.keys.holds("alice"), s.desk.orders.Load())
		}
	})
}

// A store that never answers must not let requests pile up: each is answered
// in time, and the goroutines behind them end with the transaction's limit.
func TestStoreThatHangsIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.desk.took = time.Hour
		var crowd sync.WaitGroup
		for i := range 1000 {
			crowd.Go(func() {
				began := time.Now()
				if _, err := s.Place(t.Context(), fmt.Sprint("user", i), "v1"); model.CodeOf(err) != model.CodeUnavailable {
					t.Errorf("%v, want UNAVAILABLE", err)
				}
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("answered after %v", took)
				}
			})
		}
		crowd.Wait()
		began := time.Now()
		s.Orders.Close()
		if took := time.Since(began); took > commitTimeout {
			t.Errorf("closing took %v", took)
		}
		if released := s.keys.released.Load(); released != 1000 {
			t.Errorf("%d of 1000 locks were given back", released)
		}
	})
}

func TestConcurrentOrdersShareTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.desk.took = 10 * time.Millisecond
		s.table.change(func(v *model.Voucher) { v.Stock, v.Remaining = 400, 400 })
		var crowd sync.WaitGroup
		var yes, no atomic.Int64
		for i := range 1000 {
			crowd.Go(func() {
				switch _, err := s.Place(t.Context(), fmt.Sprint("user", i), "v1"); {
				case err == nil:
					yes.Add(1)
				case model.CodeOf(err) == model.CodeSoldOut:
					no.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		crowd.Wait()
		if yes.Load() != 400 || no.Load() != 600 {
			t.Errorf("%d sold and %d refused, want 400 and 600", yes.Load(), no.Load())
		}
		if n := s.desk.calls.Load(); n > 100 {
			t.Errorf("%d transactions for 1000 concurrent orders", n)
		}
	})
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
