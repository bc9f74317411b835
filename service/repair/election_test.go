package repair

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/model"
	"seckill/service/servicetest"
)

// Work ends when its lock is lost: another instance may have been elected by then.
func TestWorkEndsWithItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := servicetest.NewLocks()
		locks.Lost = true
		e := election{Elector: electing(locks), job: "work"}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		ended := 0
		running.Go(func() {
			e.run(ctx, func(ctx context.Context) {
				<-ctx.Done()
				ended++
			})
		})
		<-time.After(electionHandover / 2)
		synctest.Wait()
		check.Equal(t, "works that have ended", ended, 1)
		stop()
		running.Wait()
	})
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

// dueDraw is a store with one draw that is to be done.
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

// Who is elected and may not draw, because the database is sold from in another mode, or cannot, gives the lock up, and another
// instance draws. Guards: may in election, the end of lookout.run.
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
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			instance := func() *Draws {
				return &Draws{
					Store: &dueDraw{away: &atomic.Bool{}}, Metrics: telemetry.NewDraws(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
					Drain: func(context.Context, string) error { return nil },
				}
			}
			bad, other := instance(), instance()
			var spoiled atomic.Bool
			spoil(bad, &spoiled)
			run := func(d *Draws) { running.Go(func() { d.Run(ctx, electing(seats{locks})) }) }
			closed := func(d *Draws) int64 { return d.Store.(*dueDraw).closed.Load() }
			run(bad)
			servicetest.Pass(time.Minute)
			check.That(t, closed(bad) > 0, "the first one is not elected")
			run(other)
			servicetest.Pass(time.Minute)
			check.Equal(t, "draws by one that is not elected", closed(other), 0)
			spoiled.Store(true)
			servicetest.Pass(electionTries*drawRest + time.Second)
			check.That(t, closed(other) > 0, "nobody draws")
			before := closed(bad)
			spoiled.Store(false)
			servicetest.Pass(time.Minute)
			check.Equal(t, "draws by one that gave up, while another draws", closed(bad), before)
			stop()
			running.Wait()
			check.Must(t, locks.Close(context.WithoutCancel(ctx)))
		})
	}
}

// A lock whose lease does not end keeps nobody from the work: its holder is replaced after some looks without a sign of life. One
// that renews its lease is not. Guards: left > before.left and electionLooks in watch.
func TestAHolderWithoutASignOfLifeIsReplaced(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]func(ago time.Duration) time.Duration{
		"the lease has no end":      func(time.Duration) time.Duration { return -1 },
		"its clock was a day ahead": func(ago time.Duration) time.Duration { return 24*time.Hour - ago },
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			locks := servicetest.NewLocks()
			began := time.Now()
			e := election{Elector: electing(locks), job: "work"}
			locks.Busy, locks.Left = e.name(), func() time.Duration { // renewed each third of a lease of 8 s
				return 8*time.Second - time.Since(began)%(8*time.Second/3)
			}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			var works atomic.Int64
			running.Go(func() {
				e.run(ctx, func(ctx context.Context) { works.Add(1); <-ctx.Done() })
			})
			servicetest.Pass(time.Hour)
			check.Equal(t, "works beside a holder that lives", works.Load(), 0)
			locks.With(func(l *servicetest.Locks) { l.Left = func() time.Duration { return left(time.Since(began)) } })
			servicetest.Pass((electionLooks + 2) * electionWait)
			check.Equal(t, "works in place of one that is dead", works.Load(), 1)
			stop()
			running.Wait()
		})
	}
}
