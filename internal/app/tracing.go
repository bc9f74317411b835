package app

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"seckill/internal/payment"
	"seckill/internal/telemetry"
	"seckill/internal/tracing"
	"seckill/model"
	"seckill/queue"
	"seckill/repository/hotcopy"
	"seckill/service"
	"seckill/service/sale"
	"seckill/service/worker"
)

// tracesPatience is what the last spans have to be exported at a stop: a collector that is well needs milliseconds.
const tracesPatience = 500 * time.Millisecond

// openTracing begins to trace where the settings ask for it. Where they do not there is no tracer, and what follows in
// this file leaves every part as it is.
func (i *Instance) openTracing(ctx context.Context) (err error) {
	metrics := telemetry.NewTracing(i.registry)
	if !i.cfg.Tracing.On {
		return nil
	}
	tracing.LogTo(i.log)
	i.tracer, err = tracing.Start(ctx, tracing.Options{
		Ratio: i.cfg.Tracing.Ratio, ParentBased: i.cfg.Tracing.ParentBased, Metrics: metrics, Log: i.log,
	})
	if err != nil {
		return err
	}
	i.onCloseWithin(tracesPatience, "tracing", i.tracer.Stop)
	i.log.InfoContext(ctx, "requests are traced", slog.Float64("ratio", i.cfg.Tracing.Ratio))
	return nil
}

// tracedRequests is the first of the handler's chain; nil: none.
func (i *Instance) tracedRequests() gin.HandlerFunc {
	if i.tracer == nil {
		return nil
	}
	return i.tracer.HTTP()
}

// traced tells the services how an order is traced; nil: none is.
func (i *Instance) traced() sale.Trace {
	if i.tracer == nil {
		return nil
	}
	return tracing.Of
}

func (i *Instance) traceRedis(client redis.UniversalClient) error {
	if i.tracer == nil {
		return nil
	}
	return i.tracer.Redis(client)
}

// pools is how the database's pools of connections are opened; nil: as usual.
func (i *Instance) pools() func(driver.Connector) *sql.DB {
	if i.tracer == nil {
		return nil
	}
	return i.tracer.OpenDB
}

// tracedLocks records the waits for users' locks.
func (i *Instance) tracedLocks(locks model.Locker) model.Locker {
	if i.tracer == nil {
		return locks
	}
	return tracedLocks{locks, i.tracer}
}

type tracedLocks struct {
	model.Locker

	tracer *tracing.Tracer
}

// Lock implements model.Locker.
func (l tracedLocks) Lock(ctx context.Context, name string, wait time.Duration) (model.Lease, error) {
	ctx, end := l.tracer.Step(ctx, "lock")
	lease, err := l.Locker.Lock(ctx, name, wait)
	end(err)
	return lease, err
}

// tracedOrders records the commits of orders in sync.
func (i *Instance) tracedOrders(store sale.OrderStore) sale.OrderStore {
	if i.tracer == nil {
		return store
	}
	return tracedOrders{store, i.tracer}
}

type tracedOrders struct {
	sale.OrderStore

	tracer *tracing.Tracer
}

// CreateOrders implements sale.OrderStore.
func (s tracedOrders) CreateOrders(ctx context.Context, orders []model.Order) ([]model.Outcome, error) {
	ctx, group := s.tracer.Group(ctx, "commit", len(orders), func(i int) model.Order { return orders[i] })
	outcomes, err := s.OrderStore.CreateOrders(ctx, orders)
	group.End(failures(err, outcomes, outcomeErr))
	return outcomes, err
}

// hotCopies are what both sides of the queue need of the hot copies.
type hotCopies interface {
	sale.HotCopies
	worker.HotCopies
}

// tracedHot records what is reserved and settled.
func (i *Instance) tracedHot(hot *hotcopy.Store) hotCopies {
	if i.tracer == nil {
		return hot
	}
	return tracedHot{hot, i.tracer}
}

type tracedHot struct {
	*hotcopy.Store

	tracer *tracing.Tracer
}

// Reserve implements sale.HotCopies. A reservation is traced as its request is.
func (h tracedHot) Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error) {
	ctx, group := h.tracer.Group(ctx, "reserve", len(asked), func(i int) model.Order {
		return model.Order{ID: asked[i].OrderID, VoucherID: asked[i].VoucherID, Trace: asked[i].Trace}
	})
	results, err := h.Store.Reserve(ctx, asked)
	for i := range results {
		results[i].Trace = asked[i].Trace
	}
	group.End(failures(err, results, func(r model.ReserveResult) error { return r.Err }))
	return results, err
}

// Settle implements worker.HotCopies, for the orders of the group that is being persisted.
func (h tracedHot) Settle(ctx context.Context, voucherID string, orders []model.Order) error {
	ctx, group := h.tracer.Group(ctx, "settle", len(orders), func(i int) model.Order {
		return model.Order{ID: orders[i].ID, VoucherID: voucherID, Trace: tracing.Within(ctx, orders[i].ID)}
	})
	err := h.Store.Settle(ctx, voucherID, orders)
	group.End(func(int) error { return err })
	return err
}

// ReleaseAll implements worker.HotCopies, for units that the instance which closed their orders has not given back.
func (h tracedHot) ReleaseAll(ctx context.Context, voucherID string, releases []model.Release) (bool, error) {
	ctx, end := h.tracer.Work(ctx, "release", len(releases))
	applied, err := h.Store.ReleaseAll(ctx, voucherID, releases)
	end(err)
	return applied, err
}

// Load implements worker.HotCopies, for a part of a rebuild.
func (h tracedHot) Load(ctx context.Context, record model.EpochRecord, live []model.Order, carried []model.Reservation) error {
	ctx, end := h.tracer.Work(ctx, "load", len(live)+len(carried))
	err := h.Store.Load(ctx, record, live, carried)
	end(err)
	return err
}

// tracedExpiry records the transactions that expire orders.
func (i *Instance) tracedExpiry(store worker.ExpiryStore) worker.ExpiryStore {
	if i.tracer == nil {
		return store
	}
	return tracedExpiry{store, i.tracer}
}

type tracedExpiry struct {
	worker.ExpiryStore

	tracer *tracing.Tracer
}

// Expire implements worker.ExpiryStore.
func (s tracedExpiry) Expire(ctx context.Context, ids []string) ([]model.Order, error) {
	ctx, end := s.tracer.Work(ctx, "expire", len(ids))
	expired, err := s.ExpiryStore.Expire(ctx, ids)
	end(err)
	return expired, err
}

// tracedProvider records what the payment provider is asked, by requests and behind them.
func (i *Instance) tracedProvider(provider service.Provider) service.Provider {
	if i.tracer == nil {
		return provider
	}
	return tracedProvider{provider, i.tracer}
}

type tracedProvider struct {
	service.Provider

	tracer *tracing.Tracer
}

// Start implements service.Provider.
func (p tracedProvider) Start(ctx context.Context, r payment.Checkout) (payment.Payment, error) {
	ctx, end := p.tracer.Work(ctx, "start payment", 1)
	started, err := p.Provider.Start(ctx, r)
	end(err)
	return started, err
}

// LookUp implements service.Provider.
func (p tracedProvider) LookUp(ctx context.Context, id string) (payment.Payment, error) {
	ctx, end := p.tracer.Work(ctx, "look up payment", 1)
	found, err := p.Provider.LookUp(ctx, id)
	end(err)
	return found, err
}

// Refund implements service.Provider.
func (p tracedProvider) Refund(ctx context.Context, key string, r payment.Refund) error {
	ctx, end := p.tracer.Work(ctx, "refund", 1)
	err := p.Provider.Refund(ctx, key, r)
	end(err)
	return err
}

// tracedQueue records what is published. The message carries on from there.
func (i *Instance) tracedQueue(q *queue.Queue) sale.Queue {
	if i.tracer == nil {
		return q
	}
	return tracedQueue{q, i.tracer}
}

type tracedQueue struct {
	*queue.Queue

	tracer *tracing.Tracer
}

// Publish implements sale.Queue.
func (q tracedQueue) Publish(ctx context.Context, reservations []model.Reservation) error {
	ctx, group := q.tracer.Group(ctx, "publish", len(reservations), orderOf(reservations))
	err := q.Queue.Publish(ctx, followed(reservations, group))
	group.End(func(int) error { return err })
	return err
}

// tracedDatabase records the commits of orders in async.
func (i *Instance) tracedDatabase(db *Database) worker.Database {
	if i.tracer == nil {
		return db
	}
	return tracedDatabase{db, i.tracer}
}

type tracedDatabase struct {
	*Database

	tracer *tracing.Tracer
}

// Persist implements worker.Database.
func (d tracedDatabase) Persist(ctx context.Context, reservations []model.Reservation) ([]model.Outcome, error) {
	ctx, group := d.tracer.Group(ctx, "commit", len(reservations), orderOf(reservations))
	outcomes, err := d.Database.Persist(ctx, reservations)
	group.End(failures(err, outcomes, outcomeErr))
	return outcomes, err
}

// tracedPersist records what a worker does with the orders of one call, from the queue to the settling.
func (i *Instance) tracedPersist(persist queue.Persist) queue.Persist {
	if i.tracer == nil {
		return persist
	}
	return func(ctx context.Context, reservations []model.Reservation) []error {
		ctx, group := i.tracer.Group(ctx, "persist", len(reservations), orderOf(reservations))
		verdicts := persist(ctx, followed(reservations, group))
		group.End(failures(nil, verdicts, func(verdict error) error { return verdict }))
		return verdicts
	}
}

func orderOf(reservations []model.Reservation) func(i int) model.Order {
	return func(i int) model.Order { return reservations[i].Order }
}

// followed are reservations whose next step follows the group.
func followed(reservations []model.Reservation, group *tracing.Group) []model.Reservation {
	if group == nil {
		return reservations
	}
	next := append([]model.Reservation(nil), reservations...)
	group.Each(func(i int, trace string) { next[i].Trace = trace })
	return next
}

func outcomeErr(outcome model.Outcome) error { return outcome.Err }

// failures is why each order of a group failed: as the whole did, or as its own answer says where there is one.
func failures[T any](whole error, answers []T, own func(T) error) func(i int) error {
	return func(i int) error {
		if whole != nil || i >= len(answers) {
			return whole
		}
		return own(answers[i])
	}
}
