package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"seckill/config"
	"seckill/internal/budget"
	"seckill/internal/embedded"
	"seckill/internal/parts"
	"seckill/internal/payment"
	"seckill/internal/redisdb"
	"seckill/internal/telemetry"
	"seckill/model"
	"seckill/queue"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/service/backlog"
	"seckill/service/repair"
)

// AsyncParts is what asynchronous orders are made of behind the requests. The exported parts are for commands too.
type AsyncParts struct {
	*repair.Worker

	DB    *Database
	Queue *queue.Queue
	Hot   *hotcopy.Store

	instance  *Instance
	mode      orderMode
	servers   servers
	parts     repair.Deps
	backlog   *backlog.Watch
	admission *telemetry.Admission
	delivered *telemetry.Delivery
}

// openAsyncParts opens the queue and puts together what works on it. Nothing runs yet.
func (i *Instance) openAsyncParts(ctx context.Context, s servers, mode orderMode) (*AsyncParts, error) {
	if i.cfg.RedisURL != "" {
		redisdb.AdviseExpiry(ctx, s.redis, i.log)
	}
	q, err := i.openQueue(ctx, mode.deployment)
	if err != nil {
		return nil, err
	}
	hot := hotcopy.New(s.redis, hotcopy.Options{
		Identity: s.incarnation, Trace: i.tracer,
		LockKeys: i.lockOptions(s).InScripts(),
	})
	admission := telemetry.NewAdmission(i.registry)
	watch := backlog.New(q, i.cfg.BacklogMaxAge, admission, i.log)
	parts := repair.Deps{
		Database: s.db, Epochs: s.db.Epochs, Hot: hot, Queue: q, Backlog: watch,
		Mode:    mode.redis.AgreedMode(s.db.Modes.Read),
		Metrics: telemetry.NewWorker(i.registry), AdminLog: s.db.AdminLog, Log: i.log,
	}
	behind := repair.New(parts, i.elector(s, mode.deployment), mode.guard.Selling)
	i.parts.OnClose("orders on their way into the database",
		func(ctx context.Context) error { behind.Persister.Close(ctx); return nil })
	return &AsyncParts{
		Worker: behind,
		DB:     s.db, Queue: q, Hot: hot, instance: i, mode: mode, servers: s, parts: parts,
		backlog: watch, admission: admission, delivered: telemetry.NewDelivery(i.registry),
	}, nil
}

// openQueue connects to the queue, or starts one inside this process with its files in the data directory.
func (i *Instance) openQueue(ctx context.Context, deployment string) (*queue.Queue, error) {
	options := queue.Options{
		URL: i.cfg.NATSURL, Access: natsAccess(i.cfg), Deployment: deployment, Replicas: i.cfg.NATSReplicas,
		Trace: i.tracer, Log: i.log.With(slog.String("part", "queue")),
	}
	store := func(context.Context) error { return nil } // of an external server Ping knows what there is to know
	if i.cfg.NATSURL == "" {
		inside, err := embedded.StartNATS(i.cfg.DataDir, i.log.With(slog.String("part", "nats")))
		if err != nil {
			return nil, fmt.Errorf("start the embedded queue: %w", err)
		}
		i.parts.OnClose("embedded queue", func(context.Context) error { inside.Close(); return nil })
		i.parts.Loop("store of the queue", budget.Call, inside.KeepOpen) //nolint:contextcheck // until the stop
		store = inside.Check
		options.InProcess, options.Alone = inside, true
	}
	q, err := queue.Open(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("reach the queue (%s): %w", inDataDir(i.cfg.EmbeddedQueue(), "SECKILL_NATS_URL"), err)
	}
	i.parts.OnClose("queue", func(ctx context.Context) error { q.Close(ctx); return nil })
	i.probe("queue", func(ctx context.Context) error { return cmp.Or(store(ctx), q.Ping(ctx)) })
	i.parts.Loop("connection of the queue", budget.Call, func(ctx context.Context) { //nolint:contextcheck // until the stop
		select {
		case err := <-q.Lost():
			i.failed <- err
		case <-ctx.Done():
		}
	})
	return q, nil
}

func natsAccess(cfg config.Config) queue.Access {
	return queue.Access{TLS: cfg.NATSTLS.Client(), Credentials: cfg.NATSCredentials, NKey: cfg.NATSNKey}
}

// runAsyncParts runs what the role of this instance asks for, until the stop. The consumer ends first.
func (i *Instance) runAsyncParts(a *AsyncParts) {
	i.parts.Loop("backlog", budget.Brief, a.backlog.Run)
	a.whenAlone("rebuilder", parts.Infallible(a.Rebuilder.Run))
	if i.cfg.Role != config.RoleAPI {
		a.whenAlone("reconciler", parts.Infallible(a.Reconciler.Run))
		a.Consume()
	}
}

// whenAlone runs work in the background while no other instance works with other servers on the same database.
func (a *AsyncParts) whenAlone(name string, work func(ctx context.Context) error) {
	a.instance.parts.Background(name, budget.Call, func(ctx context.Context) error {
		a.servers.sole.Await(ctx)
		return a.mode.redis.During(ctx, work)
	})
}

// Consume persists what is queued, until the stop. When the consumer ends before, so does the instance.
func (a *AsyncParts) Consume() {
	observe := func(d queue.Delivery) {
		a.delivered.Persisted(d.Orders, d.Took)
		a.delivered.Acked.Add(float64(d.Acked))
		a.delivered.Moved.Add(float64(d.Moved))
		a.delivered.Delayed.Add(float64(d.Delayed))
		a.delivered.Redelivered.Add(float64(d.Again))
		a.delivered.Unreadable.Add(float64(d.Buried))
	}
	a.whenAlone("consumer", func(ctx context.Context) error {
		err := a.Queue.Consume(ctx, a.Persister.Persist, queue.ConsumeOptions{Observe: observe, Rest: a.OthersConsume})
		if err != nil && ctx.Err() == nil {
			a.instance.failed <- fmt.Errorf("the consumer of the queue ended: %w", err)
		}
		return err
	})
}

// ChangeMode changes the database's order mode while no instance sells and no order waits.
func (a *AsyncParts) ChangeMode(ctx context.Context, to model.OrderMode) error {
	change := repair.ModeChange{
		Deps: a.parts, Alive: a.instance.openInstances(a.servers, a.mode).Alive,
		Commit: a.DB.Modes.Change,
	}
	return change.Do(ctx, to)
}

// InPlaceOfServer reports whether a server must not run beside these parts: the Redis is inside this process.
func (a *AsyncParts) InPlaceOfServer() bool { return a.instance.cfg.RedisURL == "" }

// WithAsyncParts opens everything behind asynchronous orders for one piece of work, beside instances. A Redis that is
// not the database's is refused. Where parts are embedded this process takes its server's place, with an empty Redis.
func WithAsyncParts(ctx context.Context, cfg config.Config, log *slog.Logger, work func(a *AsyncParts) error) error {
	cfg.OrderMode = model.ModeAsync // also when the database is sold from in sync: its queue may hold orders
	cfg.Migrate = false             // a command that looks changes no schema
	i := newInstance(cfg, log)
	defer i.parts.Close(ctx, budget.Stop)
	const running = "what is embedded is inside its server's process, which must be stopped first: %w"
	if err := i.claimDataDir(ctx); err != nil {
		return fmt.Errorf(running, err)
	}
	servers, err := i.openServers(ctx)
	if err != nil {
		return err
	}
	if s := servers.sole; s != nil {
		if err := s.Probe(ctx); err != nil {
			return fmt.Errorf(running, err)
		}
		s.Assume()
	}
	record, err := servers.db.Modes.Read(ctx)
	if err != nil {
		return err
	}
	if !cfg.Embedded() { // one instance uses the file
		// Otherwise it would judge orders by a Redis that knows none of them.
		if err := i.guardRedis(servers).Await(ctx); err != nil {
			return err
		}
	}
	a, err := i.openAsyncParts(ctx, servers, orderMode{deployment: record.Deployment})
	if err != nil {
		return err
	}
	return work(a)
}

// QueueExists fails when the settings mean the embedded queue and there is none.
func QueueExists(cfg config.Config) error {
	if cfg.NATSURL != "" {
		return nil
	}
	return embedded.Exists(filepath.Join(cfg.DataDir, "nats"), "queue", "SECKILL_NATS_URL")
}

// elector holds elections beside the hot copies, whatever the users' locks are.
func (i *Instance) elector(s servers, deployment string) repair.Elector {
	return repair.Elector{
		Seats: i.lockOptions(s).InRedis(budget.Stop), Deployment: deployment, Metrics: i.elections,
		Log: i.log,
	}
}

// runElected does until the stop what one of all instances does.
func (i *Instance) runElected(
	s servers, mode orderMode, name string, run func(ctx context.Context, by repair.Elector),
) {
	by := i.elector(s, mode.deployment)
	i.parts.Loop(name, budget.Call, func(ctx context.Context) {
		s.sole.Await(ctx)
		run(ctx, by)
	})
}

type expiryStore struct {
	*repository.Orders
	*repository.Payments
}

// openElected makes what expires orders and draws, in both order modes, with its metrics, and returns what runs it
// until the stop. An instance that only serves has none of it.
func (i *Instance) openElected(s servers, mode orderMode, async *AsyncParts, provider repair.Provider) (run func()) {
	clocks := &repair.Clocks{
		Database: s.db.Clock, Redis: func(ctx context.Context) (time.Time, error) { return s.redis.Time(ctx).Result() },
		Metrics: telemetry.NewClocks(i.registry), Log: i.log,
	}
	i.parts.Loop("clocks", budget.Brief, clocks.Run)
	if i.cfg.Role == config.RoleAPI {
		return func() {}
	}
	changes := hotcopy.NewVoucherChanges(s.redis)
	expiry := &repair.Expiry{
		Store: expiryStore{s.db.Orders, s.db.Payments}, Provider: provider,
		Announce: changes.AnnounceReturn, Clocks: clocks, Metrics: telemetry.NewExpiry(i.registry), Log: i.log,
	}
	samples := &repair.Samples{Store: s.db, Metrics: telemetry.NewSamples(i.registry)}
	draws := &repair.Draws{
		Store: s.db.Draws, Announce: changes.Announce, May: mode.guard.Selling,
		Drain:   func(context.Context, string) error { return mode.guard.Selling() }, // then the queue is empty
		Metrics: telemetry.NewDraws(i.registry), Log: i.log,
	}
	if async != nil {
		draws.Drain = async.Rebuilder.Drain
	}
	return func() {
		i.runElected(s, mode, "expiry", expiry.Run)
		i.runElected(s, mode, "draws", draws.Run)
		i.runElected(s, mode, "samples", samples.Run)
	}
}

// publishEvents publishes what happens until the stop, where the settings want it, unless this instance only serves.
func (i *Instance) publishEvents(ctx context.Context, s servers, mode orderMode) error {
	if i.cfg.Role == config.RoleAPI {
		return nil
	}
	metrics := telemetry.NewEvents(i.registry)
	if err := i.streamEvents(ctx, s, mode, metrics); err != nil || len(i.cfg.EventsURLs) == 0 {
		return err
	}
	signatures, err := payment.NewSignatures([]string{i.cfg.EventsSecret})
	if err != nil {
		return fmt.Errorf("use SECKILL_EVENTS_SECRET: %w", err)
	}
	// An election of its own: what cannot reach the stream may reach the receivers.
	relay := &repair.EventRelay{Job: "receivers", Store: s.db.Events, Metrics: metrics}
	for _, address := range i.cfg.EventsURLs {
		at, _ := url.Parse(address) // the settings have it checked
		receiver := queue.NewReceiver(address, mode.deployment, signatures, i.cfg.EventsPrivate)
		i.parts.OnClose("receiver of events", func(context.Context) error { receiver.Close(); return nil })
		relay.Receivers = append(relay.Receivers,
			&repair.EventReceiver{Name: address, Label: at.Host, Stream: receiver, Longest: budget.Hour})
	}
	i.runElected(s, mode, relay.Job, relay.Run) //nolint:contextcheck // until the stop
	return nil
}

func (i *Instance) streamEvents(ctx context.Context, s servers, mode orderMode, metrics *telemetry.Events) error {
	if i.cfg.Events == "" {
		return nil
	}
	log := i.log.With(slog.String("part", "events"))
	stream, err := queue.OpenEvents(ctx, queue.EventOptions{
		URL: i.cfg.NATSURL, Access: natsAccess(i.cfg), Stream: i.cfg.Events, Deployment: mode.deployment,
		Replicas: i.cfg.NATSReplicas, Log: log,
	})
	if err != nil {
		return fmt.Errorf("reach the stream of events (SECKILL_EVENTS): %w", err)
	}
	i.parts.OnClose("stream of events", func(context.Context) error { stream.Close(); return nil })
	relay := &repair.EventRelay{Job: "events", Store: s.db.Events, Metrics: metrics, Receivers: []*repair.EventReceiver{
		{Name: s.db.Events.Stream, Label: "stream", Stream: stream},
	}}
	i.runElected(s, mode, relay.Job, relay.Run) //nolint:contextcheck // until the stop
	return nil
}
