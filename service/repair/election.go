package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// electionHandover is between a term and the next attempt, for others, and between looks whether it may work.
	electionHandover = budget.Look / 4
	// electionLooks without a sign of life end a term: over two leases, renewed at each second look by a holder.
	electionLooks = 10
	electionTries = 3 // failures of its work in a row make an elected instance give the lock to others
)

// Seats are the locks of elections.
type Seats interface {
	model.Locker

	// Holder tells who has a lock, "" for nobody, and how long the lease still lasts unless it is renewed.
	Holder(ctx context.Context, name string) (holder string, left time.Duration, err error)
	ForceUnlock(ctx context.Context, name string) (bool, error) // frees a lock, whoever has it
}

// Elector says how an instance is elected.
type Elector struct {
	Seats      Seats
	Deployment string // others on the same lock server have other names
	Metrics    *telemetry.Gauges
	Log        *slog.Logger
}

// election is for work that one instance does to save effort; two repeat it. A lock without a live holder is taken.
type election struct {
	Elector

	job   string // names the lock
	looks []*look
	limit time.Duration     // of one look; 0: its own
	term  func(begins bool) // is told where a term begins and ends; nil: nobody is
	// alone says that the work cannot wait for the lock server: while nobody can be elected, every instance does it.
	alone   bool
	may     func() error // an error while this instance must leave the work to others; nil: never
	trouble telemetry.Trouble
	seen    sign
}

type look struct {
	do          func(ctx context.Context) error
	pause, rest time.Duration // after a look that went well, and after one that failed
	share       int           // times what a look took is rested, if that is longer than pause, up to budget.Survey
	what, done  string        // for the log: these could not be, or can be, so
	tries       int           // this many failures in a row end the term; 0: electionTries
	trouble     telemetry.Trouble
}

// sign is what the latest look showed of the lock that another instance has.
type sign struct {
	holder string
	left   time.Duration
	silent int // looks in a row that showed no renewal
}

func (e *election) name() string { return "seckill:" + e.job + ":" + e.Deployment }

func (e *election) run(ctx context.Context) {
	e.Metrics.WithLabelValues(e.job).Set(0)
	for ctx.Err() == nil {
		if !e.able() {
			poll.Pause(ctx, electionHandover)
			continue
		}
		lease, err := e.Seats.Lock(ctx, e.name(), budget.Call)
		if errors.Is(err, model.ErrLockBusy) {
			e.watch(ctx) // another instance does it
			continue
		}
		e.seen = sign{}
		if ctx.Err() == nil {
			e.trouble.Note(ctx, e.Log, err, "the lock of exclusive work cannot be asked for; it is tried again",
				"the lock of exclusive work can be asked for again", slog.String("lock", e.name()))
		}
		pause := budget.Look
		switch {
		case err == nil:
			e.elected(ctx, lease)
			pause = electionHandover
		case e.alone:
			term, cancel := context.WithTimeout(ctx, budget.Settled)
			e.work(term)
			cancel()
		}
		poll.Pause(ctx, pause)
	}
}

func (e *election) able() bool { return e.may == nil || e.may() == nil }

func (e *election) elected(ctx context.Context, lease model.Lease) {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(lease.Context(), cancel)() //nolint:contextcheck // the lock has a life of its own
	e.work(working)
	if err := lease.Unlock(); err != nil {
		e.Log.WarnContext(ctx, "a lock of exclusive work was not given back and ends by itself",
			slog.String("lock", e.name()), slog.Any("error", err))
	}
}

// work is one term. It ends with ctx, when too many looks in a row fail, and when others must do the work.
func (e *election) work(ctx context.Context) {
	ctx, giveUp := context.WithCancel(ctx)
	e.Metrics.WithLabelValues(e.job).Set(1)
	if e.term != nil {
		e.term(true)
		defer e.term(false)
	}
	defer e.Metrics.WithLabelValues(e.job).Set(0)
	var all sync.WaitGroup
	defer all.Wait()
	defer giveUp()
	for _, one := range e.looks {
		all.Go(func() { defer giveUp(); one.run(ctx, e.Log, e.limit) })
	}
	_ = poll.Until(ctx, electionHandover, func() (done bool, _ error) { return !e.able(), nil })
}

// run looks until ctx ends, or too many looks in a row have failed.
func (l *look) run(ctx context.Context, log *slog.Logger, limit time.Duration) {
	for failed := 0; ctx.Err() == nil; {
		began := time.Now()
		limited, enough := context.WithTimeout(ctx, cmp.Or(limit, budget.Hour))
		err := l.do(limited)
		enough()
		if ctx.Err() != nil {
			return
		}
		l.trouble.Note(ctx, log, err, l.what+" could not be "+l.done+"; it is tried again",
			l.what+" can be "+l.done+" again")
		if err == nil {
			failed = 0
			poll.Pause(ctx, rest(time.Since(began), l.share, l.pause, max(l.pause, budget.Survey)))
		} else if failed++; failed < cmp.Or(l.tries, electionTries) {
			poll.Pause(ctx, rest(time.Since(began), l.share, l.rest, max(l.rest, budget.Survey)))
		} else {
			return
		}
	}
}

// rest is the pause behind work that took so long: share times as long, within bounds.
func rest(took time.Duration, share int, least, most time.Duration) time.Duration {
	return max(least, min(time.Duration(share)*took, most))
}

// watch looks for a sign of life of a lock's holder: a lease that lasts longer than before. It asks no clock.
func (e *election) watch(ctx context.Context) {
	holder, left, err := e.Seats.Holder(ctx, e.name())
	if err != nil || holder == "" {
		return // the next attempt tells
	}
	before := e.seen
	e.seen = sign{holder: holder, left: left}
	if holder != before.holder || left > before.left {
		return
	}
	if e.seen.silent = before.silent + 1; e.seen.silent < electionLooks {
		return
	}
	e.seen.silent = 0
	e.Log.WarnContext(ctx, "the holder of a lock of exclusive work shows no sign of life and is replaced",
		slog.String("lock", e.name()),
		slog.String("holder", holder), slog.Duration("left", left), slog.Int("looks", electionLooks))
	if _, err := e.Seats.ForceUnlock(ctx, e.name()); err != nil {
		e.Log.WarnContext(ctx, "a lock of exclusive work could not be taken from its holder; it is tried again",
			slog.String("lock", e.name()), slog.Any("error", err))
	}
}

// ModeChange changes the order mode of a database that nobody sells from.
type ModeChange struct {
	Deps Deps

	// Alive lists the instances that have given a sign of life lately.
	Alive func(ctx context.Context) ([]model.Instance, error)
	// Commit makes a mode that of the database, and begins another epoch of each open hot copy. It may be repeated.
	Commit func(ctx context.Context, to model.OrderMode) error
}

// Do changes the mode. CONFLICT names instances that sell or will, and orders without a row. An error: no change.
func (c *ModeChange) Do(ctx context.Context, to model.OrderMode) error {
	record, err := c.Deps.Mode(ctx)
	if err != nil {
		return fmt.Errorf("read the order mode: %w", err)
	}
	selling, err := c.selling(ctx, record.Mode)
	if err != nil {
		return err
	}
	waiting := ""
	var epochs []model.EpochRecord
	if record.Mode == model.ModeAsync {
		if epochs, err = c.Deps.Epochs.Kept(ctx); err != nil {
			return fmt.Errorf("read the vouchers: %w", err)
		}
		if waiting, err = c.waiting(ctx, epochs); err != nil {
			return err
		}
	}
	if against := selling + waiting; against != "" {
		return model.Conflict("The order mode stays " + string(record.Mode) + "." + against)
	}
	// Redis first: if the rest fails, the instances find a closed copy and rebuild it.
	for _, epoch := range epochs {
		if !epoch.Open() {
			continue
		}
		epoch.Epoch++
		if err := c.Deps.Hot.Close(ctx, epoch); err != nil {
			return fmt.Errorf("close the hot copy of voucher %s: %w", epoch.VoucherID, err)
		}
	}
	return c.Commit(ctx, to)
}

func (c *ModeChange) selling(ctx context.Context, mode model.OrderMode) (against string, err error) {
	alive, err := c.Alive(ctx)
	if err != nil {
		return "", fmt.Errorf("ask which instances sell: %w", err)
	}
	var names []string
	for _, instance := range alive {
		if instance.Mode == mode {
			names = append(names, instance.Name)
		}
	}
	if len(names) > 0 {
		against = fmt.Sprintf(" Instances sell: %s. Stop them first; one that was killed counts for some seconds.",
			strings.Join(names, ", "))
	}
	return against, nil
}

// waiting says how many orders were accepted and have no row yet: messages, and reservations without one.
func (c *ModeChange) waiting(ctx context.Context, epochs []model.EpochRecord) (against string, err error) {
	backlog, err := c.Deps.Queue.Backlog(ctx)
	if err != nil {
		return "", fmt.Errorf("look at the queue: %w", err)
	}
	open := map[string]bool{} // some come twice
	for _, epoch := range epochs {
		if epoch.OpenEpoch == 0 {
			continue
		}
		var reserved []model.Reservation
		err := c.Deps.Hot.Pendings(ctx, epoch.VoucherID, epoch.OpenEpoch, func(r model.Reservation) error {
			reserved = append(reserved, r)
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("read the reservations of voucher %s: %w", epoch.VoucherID, err)
		}
		_, left, err := c.Deps.splitByRow(ctx, reserved)
		if err != nil {
			return "", err
		}
		for _, r := range left {
			open[r.ID] = true
		}
	}
	if backlog.Messages > 0 || len(open) > 0 {
		against = fmt.Sprintf(" Orders wait: %d messages, and %d reservations without a row. Let a worker finish them, and stop it.",
			backlog.Messages, len(open))
	}
	return against, nil
}
