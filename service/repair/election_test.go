package repair

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/model"
	"seckill/service/servicetest"
)

// Work ends when its lock is lost, for another may be elected. No lost lock or failed election is final.
func TestWorkEndsWithItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := servicetest.NewLocks()
		locks.Err = errors.New("away")
		var begun atomic.Int64 // where the lease is lost before, no look begins
		e, ended := working(locks,
			func(ctx context.Context, ended *atomic.Int64) { begun.Add(1); <-ctx.Done(); ended.Add(1) })
		stop := check.Running(t, e.run)
		servicetest.Pass(3 * time.Second)
		check.Equal(t, "locks taken while none can be", locks.Taken.Load(), 0)
		locks.With(func(l *servicetest.Locks) { l.Err, l.Lost = nil, true }) // each lease is lost at once
		servicetest.Pass(5 * time.Second)
		synctest.Wait()
		check.That(t, locks.Taken.Load() > 1 && ended.Load() == begun.Load(), "%d of %d works have ended", ended.Load(),
			begun.Load())
		locks.With(func(l *servicetest.Locks) { l.Lost = false })
		servicetest.Pass(5 * time.Second)
		synctest.Wait()
		check.Equal(t, "works that have not ended", begun.Load()-ended.Load(), 1)
		stop()
		check.Equal(t, "locks taken, of those given back", locks.Taken.Load(), locks.Released.Load())
	})
}

func working(locks Seats, work func(ctx context.Context, count *atomic.Int64)) (e *election, count *atomic.Int64) {
	count = &atomic.Int64{}
	do := func(ctx context.Context) error { work(ctx, count); return nil }
	return &election{Elector: electing(locks), job: "work", looks: []*look{{do: do}}}, count
}

// seats are locks as they are, for instances that exclude one another.
type seats struct{ *lock.Client }

func (s seats) Lock(ctx context.Context, name string, wait time.Duration) (model.Lease, error) {
	lease, err := s.Mutex(name).Lock(ctx, lock.Wait(wait))
	if errors.Is(err, lock.ErrTimeout) {
		err = model.ErrLockBusy
	}
	return lease, err
}

type dueDraw struct {
	DrawStore

	away   *atomic.Bool // the database, from this instance
	closed atomic.Int64 // times this instance came so far as to close the draw
}

func (d *dueDraw) Due(context.Context) ([]model.DrawState, error) {
	if d.away.Load() {
		return nil, errors.New("the database is away")
	}
	return []model.DrawState{{VoucherID: "v", Overdue: time.Second}}, nil
}

func (d *dueDraw) Close(context.Context, string) (model.DrawState, error) {
	d.closed.Add(1)
	return model.DrawState{}, model.ErrSuperseded // it is all that is asked here
}

// Who cannot draw gives the election up. Guards: may in election, the end of look.run.
func TestWhoCannotDrawLetsOthersDraw(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(d *Draws, bad *atomic.Bool){
		"its orders of before are not drained": func(d *Draws, bad *atomic.Bool) {
			d.Drain = func(context.Context, string) error {
				if bad.Load() {
					return errors.New("another order mode")
				}
				return nil
			}
		},
		"its database is away": func(d *Draws, bad *atomic.Bool) { d.Store.(*dueDraw).away = bad },
		"it may not": func(d *Draws, bad *atomic.Bool) {
			d.May = func() error {
				if bad.Load() {
					return errors.New("another order mode")
				}
				return nil
			}
		},
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			locks := lock.New(lock.NewMemoryStore(), lock.WatchdogLease(8*time.Second))
			instance := func() *Draws {
				return &Draws{
					Store: &dueDraw{away: &atomic.Bool{}}, Metrics: telemetry.NewDraws(prometheus.NewRegistry()),
					Log:   slog.New(slog.DiscardHandler),
					Drain: func(context.Context, string) error { return nil },
				}
			}
			bad, other := instance(), instance()
			var spoiled atomic.Bool
			spoil(bad, &spoiled)
			run := func(d *Draws) (stop func()) {
				return check.Running(t, func(ctx context.Context) { d.Run(ctx, electing(seats{locks})) })
			}
			closed := func(d *Draws) int64 { return d.Store.(*dueDraw).closed.Load() }
			stopBad := run(bad)
			servicetest.Pass(time.Minute)
			check.That(t, closed(bad) > 0, "the first one is not elected")
			stopOther := run(other)
			servicetest.Pass(time.Minute)
			check.Equal(t, "draws by one that is not elected", closed(other), 0)
			spoiled.Store(true)
			servicetest.Pass(electionTries*budget.Answer + time.Second)
			check.That(t, closed(other) > 0, "nobody draws")
			before := closed(bad)
			spoiled.Store(false)
			servicetest.Pass(time.Minute)
			check.Equal(t, "draws by one that gave up, while another draws", closed(bad), before)
			stopBad()
			stopOther()
			check.Must(t, locks.Close(t.Context()))
		})
	}
}

// One that renews its lease stays. Guards: left > before.left and electionLooks in watch.
func TestAHolderWithoutASignOfLifeIsReplaced(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]func(ago time.Duration) time.Duration{
		"the lease has no end":      func(time.Duration) time.Duration { return -1 },
		"its clock was a day ahead": func(ago time.Duration) time.Duration { return 24*time.Hour - ago },
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			locks := servicetest.NewLocks()
			began := time.Now()
			e, works := working(locks, func(ctx context.Context, works *atomic.Int64) { works.Add(1); <-ctx.Done() })
			locks.Busy, locks.Left = e.name(), func() time.Duration { // renewed each third of a lease of 8 s
				return 8*time.Second - time.Since(began)%(8*time.Second/3)
			}
			check.Running(t, e.run)
			servicetest.Pass(time.Hour)
			check.Equal(t, "works beside a holder that lives", works.Load(), 0)
			locks.With(func(l *servicetest.Locks) { l.Left = func() time.Duration { return left(time.Since(began)) } })
			servicetest.Pass((electionLooks + 2) * budget.Call)
			check.Equal(t, "works in place of one that is dead", works.Load(), 1)
		})
	}
}

// mailbox is an outbox of events, and a receiver that now and then takes only some.
type mailbox struct {
	mu       sync.Mutex
	outbox   []model.Event
	receiver model.EventReceiver
	stream   []int64
	calls    []int // how many events each call of Publish had
	take     int   // of the next publish; negative: all
	answer   error
	stuck    bool
}

func (m *mailbox) Line(context.Context) (bool, error)   { return false, nil }
func (m *mailbox) Forget(context.Context) (bool, error) { return false, nil }

func (m *mailbox) After(_ context.Context, _ string, limit int) (model.EventReceiver, []model.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := m.outbox[m.receiver.Position:]
	return m.receiver, left[:min(limit, len(left))], nil
}

func (m *mailbox) Advance(_ context.Context, _, is model.EventReceiver) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck {
		return errors.New("the database is away")
	}
	m.receiver = is
	return nil
}

func (m *mailbox) Publish(_ context.Context, events []model.Event) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, len(events))
	taken := events
	if m.take >= 0 && m.take < len(events) {
		taken = events[:m.take]
	}
	for _, event := range taken {
		m.stream = append(m.stream, event.ID)
	}
	if len(taken) < len(events) {
		return len(taken), m.answer
	}
	return len(taken), nil
}

// relays has a relay run with a mailbox for a while.
func (m *mailbox) relays(t *testing.T, longest time.Duration) (metrics *prometheus.Registry, stop func()) {
	t.Helper()
	m.answer = errors.New("no answer")
	for id := range int64(1200) {
		m.outbox = append(m.outbox, model.Event{ID: id + 1, Position: id + 1, HappenedAt: time.Now()})
	}
	metrics = prometheus.NewRegistry()
	relay := &EventRelay{
		Job: "events", Store: m, Metrics: telemetry.NewEvents(metrics),
		Receivers: []*EventReceiver{{Name: "r", Label: "r", Stream: m, Longest: longest}},
	}
	return metrics, check.Running(t, func(ctx context.Context) { relay.Run(ctx, electing(servicetest.NewLocks())) })
}

func (m *mailbox) with(change func()) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// Every event is published in order, whatever fails, and again only when it could not be noted.
func TestEventsAreRelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &mailbox{take: 700, stuck: true}
		metrics, stop := m.relays(t, 0)
		servicetest.Pass(1500 * time.Millisecond) // published twice, noted never
		m.with(func() {
			check.Equal(t, "events published that could not be noted", len(m.stream), 2*eventPage)
			m.stream, m.stuck, m.take = nil, false, 123
		})
		servicetest.Pass(3 * time.Second)
		m.with(func() { m.take = 0 })
		servicetest.Pass(3 * time.Second)
		wait := servicetest.Counted(t, metrics, "seckill_events_waiting_seconds")
		m.with(func() { m.take = -1 }) // all
		servicetest.Pass(3 * time.Second)
		stop()
		check.That(t, wait >= 1.5, "the wait of an event that the stream did not take is %v s", wait)
		for i, id := range m.stream {
			check.Need(t, id == int64(i+1), "event %d is published as number %d", id, i+1)
		}
		check.Equal(t, "events published", len(m.stream), 1200)
	})
}

// A receiver that fails is asked less and less often, with one event, at least every hour, and one that wants no more
// not at all, until somebody restarts it.
func TestReceiversRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &mailbox{}
		metrics, stop := m.relays(t, time.Hour)
		defer stop()
		servicetest.Pass(24 * time.Hour)
		m.with(func() {
			check.That(t, m.calls[0] == eventPage && slices.Max(m.calls[1:]) == 1, "the calls had %v events", m.calls)
			check.That(t, len(m.calls) > 24+10 && len(m.calls) < 24*2+12, "it was asked %d times in a day", len(m.calls))
			m.calls, m.answer = nil, model.ErrReceiverGone
		})
		check.That(t, servicetest.Counted(t, metrics, "seckill_events_waiting_seconds") > 80000, "nobody tells that events wait")
		servicetest.Pass(24 * time.Hour)
		m.with(func() {
			check.That(t, len(m.calls) == 1 && m.receiver.Stopped, "a receiver that wants no more was asked %d times, and is %+v", len(m.calls), m.receiver)
			m.receiver.Stopped, m.receiver.Failures, m.receiver.NextAt, m.take = false, 0, nil, -1
		})
		servicetest.Pass(time.Second)
		m.with(func() {
			check.Equal(t, "events that were published then", len(m.stream), 1200)
			check.That(t, m.receiver.Failures == 0 && m.receiver.LastAnswer == "2xx" && m.receiver.Delivered == 1200, "it is %+v", m.receiver)
		})
	})
}

type pended struct {
	HotCopies

	step func(name string) error
}

func (p pended) Pendings(
	ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error,
) error {
	if err := p.step("hot.pendings"); err != nil {
		return err
	}
	return p.HotCopies.Pendings(ctx, voucherID, epoch, yield)
}

// The mode changes while no instance sells and no order waits; what cannot be asked prevents it too.
func TestModeChange(t *testing.T) {
	t.Parallel()
	const sync, async = model.ModeSync, model.ModeAsync
	away := errors.New("away")
	runs := func(mode model.OrderMode) model.Instance { return model.Instance{Name: "shop-1:8080", Mode: mode} }
	for name, tt := range map[string]struct {
		from, to model.OrderMode
		alive    []model.Instance
		stage    func(t *testing.T, s *stage)
		fails    string // what cannot be asked
		says     []string
	}{
		"nobody sells, and everything is done": {from: async, to: sync, stage: func(_ *testing.T, s *stage) { s.sell("o1", "u1") }},
		"back to async":                        {from: sync, to: async},
		"the instances of the other mode wait": {from: async, to: sync, alive: []model.Instance{runs(sync)}},
		"an instance sells":                    {from: async, to: sync, alive: []model.Instance{runs(sync), runs(async)}, says: []string{"shop-1:8080."}},
		"an instance sells in sync":            {from: sync, to: async, alive: []model.Instance{runs(sync)}, says: []string{"shop-1:8080."}},
		"an order is queued":                   {from: async, to: sync, stage: func(_ *testing.T, s *stage) { s.publish(s.admit("o1", "u1")) }, says: []string{"1 messages", "1 reservations"}},
		"an order is in no message":            {from: async, to: sync, stage: func(_ *testing.T, s *stage) { s.admit("o1", "u1") }, says: []string{"0 messages", "1 reservations"}},
		"both": {
			from: async, to: sync, alive: []model.Instance{runs(async)},
			stage: func(_ *testing.T, s *stage) { s.publish(s.admit("o1", "u1")) },
			says:  []string{"shop-1:8080.", "1 messages"},
		},
		"the instances cannot be asked":   {from: sync, to: async, fails: "alive"},
		"the queue cannot be asked":       {from: async, to: sync, fails: "queue.backlog"},
		"the hot copies cannot be asked":  {from: async, to: sync, fails: "hot.pendings"},
		"the vouchers cannot be asked":    {from: async, to: sync, fails: "db.watched"},
		"the rows cannot be asked":        {from: async, to: sync, stage: func(_ *testing.T, s *stage) { s.admit("o1", "u1") }, fails: "db.find"},
		"the mode itself cannot be asked": {from: async, to: sync, fails: "mode.read"},
		"a hot copy cannot be closed":     {from: async, to: sync, fails: "hot.close"},
	} {
		onStages(t, name, func(t *testing.T, s *stage) {
			s.mode.Mode = tt.from
			if tt.stage != nil {
				tt.stage(t, s)
			}
			if tt.fails != "" {
				s.fail(tt.fails, away)
			}
			deps := s.parts()
			deps.Hot = pended{deps.Hot, s.step}
			change := ModeChange{
				Deps: deps, Commit: modeSide{s}.Change,
				Alive: func(context.Context) ([]model.Instance, error) {
					return tt.alive, s.step("alive")
				},
			}
			err := change.Do(t.Context(), tt.to)
			want, code := tt.from, model.CodeConflict
			switch {
			case tt.fails != "":
				check.Is(t, "the change", err, away)
				code = ""
			case tt.says == nil:
				check.Must(t, err)
				want, code = tt.to, ""
			}
			if code != "" {
				check.Equal(t, "the code of "+err.Error(), model.CodeOf(err), code)
			}
			for _, part := range tt.says {
				check.That(t, strings.Contains(err.Error(), part), "%q does not name %q", err, part)
			}
			check.Equal(t, "the mode afterwards", s.mode.Mode, want)
			check.Equal(t, "the hot copy is open", s.hot().State() == model.CopyOpen, tt.from == sync ||
				want == tt.from)
		})
	}
}
