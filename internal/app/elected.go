package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"seckill/config"
	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/queue"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/service/repair"
)

// elector holds elections beside the hot copies, whatever the users' locks are.
func (i *Instance) elector(s servers, deployment string) repair.Elector {
	return repair.Elector{Seats: i.lockOptions(s).InRedis(budget.Stop), Deployment: deployment, Metrics: i.elections, Log: i.log}
}

// runElected does until the stop what one of all instances does.
func (i *Instance) runElected(s servers, mode orderMode, name string, run func(ctx context.Context, by repair.Elector)) {
	by := i.elector(s, mode.deployment)
	i.parts.Loop(name, budget.Call, func(ctx context.Context) {
		s.sole.Await(ctx)
		run(ctx, by)
	})
}

// expiryStore is the database as expiry asks it.
type expiryStore struct {
	*repository.Orders
	*repository.Payments
}

// elected is what expires orders and draws, in both order modes; an instance that only serves has none of it.
type elected struct {
	expiry  *repair.Expiry
	draws   *repair.Draws
	samples *repair.Samples
}

// openElected makes it, with its metrics. Nothing runs yet.
func (i *Instance) openElected(s servers, mode orderMode, async *AsyncParts, provider repair.Provider) (e elected) {
	clocks := i.openClocks(s)
	if i.cfg.Role == config.RoleAPI {
		return e
	}
	changes := hotcopy.NewVoucherChanges(s.redis)
	e.expiry = &repair.Expiry{
		Store: expiryStore{s.db.Orders, s.db.Payments}, Provider: provider,
		Announce: changes.AnnounceReturn, Clocks: clocks, Metrics: telemetry.NewExpiry(i.registry), Log: i.log,
	}
	e.samples = &repair.Samples{Store: s.db, Metrics: telemetry.NewSamples(i.registry), Log: i.log}
	e.draws = &repair.Draws{Store: s.db.Draws, Announce: changes.Announce, May: mode.guard.Selling, Metrics: telemetry.NewDraws(i.registry), Log: i.log}
	e.draws.Drain = func(context.Context, string) error { return mode.guard.Selling() } // in sync the queue is empty, where the database is sold from in sync
	if async != nil {
		e.draws.Drain = async.Rebuilder.Drain
	}
	return e
}

// openClocks compares the clocks from now on.
func (i *Instance) openClocks(s servers) *repair.Clocks {
	clocks := &repair.Clocks{
		Database: s.db.Clock, Redis: func(ctx context.Context) (time.Time, error) { return s.redis.Time(ctx).Result() },
		Metrics: telemetry.NewClocks(i.registry), Log: i.log,
	}
	i.parts.Loop("clocks", budget.Brief, clocks.Run)
	return clocks
}

// run expires orders and draws until the stop.
func (e elected) run(i *Instance, s servers, mode orderMode) {
	if e.expiry != nil {
		i.runElected(s, mode, "expiry", e.expiry.Run)
		i.runElected(s, mode, "draws", e.draws.Run)
		i.runElected(s, mode, "samples", e.samples.Run)
	}
}

// publishEvents publishes what happens to orders and vouchers until the stop, where a
// stream for that is configured, unless this instance only serves.
func (i *Instance) publishEvents(ctx context.Context, s servers, mode orderMode) error {
	if i.cfg.Role == config.RoleAPI {
		return nil
	}
	waiting := telemetry.NewEvents(i.registry)
	if i.cfg.Events == "" {
		return nil
	}
	log := i.log.With(slog.String("part", "events"))
	stream, err := queue.OpenEvents(ctx, queue.EventOptions{
		URL: i.cfg.NATSURL, Access: natsAccess(i.cfg), Stream: i.cfg.Events, Deployment: mode.deployment, Replicas: i.cfg.NATSReplicas, Log: log,
	})
	if err != nil {
		return fmt.Errorf("reach the stream of events (SECKILL_EVENTS): %w", err)
	}
	i.parts.OnClose("stream of events", func(context.Context) error { stream.Close(); return nil })
	relay := &repair.EventRelay{Store: repository.NewEvents(s.db.Database), Stream: stream, Waiting: waiting, Log: log}
	i.runElected(s, mode, "events", relay.Run) //nolint:contextcheck // until the stop
	return nil
}
