package repair

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/poll"
	"seckill/model"
)

const (
	// modeEvery is between two readings of the order mode: instances notice a switch
	// well within a second. Until then no unit is sold twice, because each transaction
	// that takes one checks the mode too.
	modeEvery = 300 * time.Millisecond
	// modeTimeout bounds one reading.
	modeTimeout = 2 * time.Second
)

// ModeWatcher knows in which order mode the database was sold from at the latest
// reading. While the database is away that stays as it was, because async sells on.
type ModeWatcher struct {
	read func(context.Context) (model.ModeRecord, error)
	mine model.OrderMode
	log  *slog.Logger
	last atomic.Pointer[model.ModeRecord]
}

// NewModeWatcher makes the watcher of an instance whose order mode is mine; Run does
// the watching.
func NewModeWatcher(
	read func(context.Context) (model.ModeRecord, error), mine model.OrderMode, log *slog.Logger,
) *ModeWatcher {
	return &ModeWatcher{read: read, mine: mine, log: log}
}

// Adopt has a database without vouchers adopt this instance's mode, and returns the name of the database's deployment.
// Lacks says what the schema lacks that another process may have yet to make; nil: nobody else makes it. An instance in sync
// waits for that and is not ready: there is no error, and the name is not known yet. One in async needs the name, which
// its queue has.
func (w *ModeWatcher) Adopt(
	ctx context.Context, adopt func(context.Context, model.OrderMode) (model.ModeRecord, error), lacks func(context.Context) error,
) (deployment string, err error) {
	record, err := adopt(ctx, w.mine)
	switch {
	case err == nil:
		return record.Deployment, w.Refresh(ctx)
	case lacks == nil:
	case w.mine == model.ModeSync:
		return "", nil
	default:
		if missing := lacks(ctx); missing != nil {
			return "", missing
		}
	}
	return "", fmt.Errorf("look at the order mode of the database: %w", err)
}

// Run reads the mode again and again until ctx ends.
func (w *ModeWatcher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.Refresh(ctx) // after an error the latest reading counts
		poll.Pause(ctx, modeEvery)
	}
}

// Refresh reads the mode now.
func (w *ModeWatcher) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, modeTimeout)
	defer cancel()
	record, err := w.read(ctx)
	if err != nil {
		return fmt.Errorf("read the order mode: %w", err)
	}
	before := w.last.Swap(&record)
	if before == nil || *before != record {
		w.log.InfoContext(ctx, "the database's order mode", slog.String("mode", string(record.Mode)),
			slog.String("switching_to", string(record.SwitchingTo)), slog.String("instance", string(w.mine)))
	}
	return nil
}

// Selling is nil while this instance may sell. UNAVAILABLE says that the database's
// mode is another one, is being switched, or could not be read yet.
func (w *ModeWatcher) Selling() error {
	record := w.last.Load()
	switch {
	case record == nil:
		return model.Unavailable("It is not known yet how this database is sold from.", nil)
	case !record.Serves(w.mine):
		return model.Unavailable("The order mode is being switched.", nil)
	default:
		return nil
	}
}

// Probe is the readiness check: it names the two modes.
func (w *ModeWatcher) Probe(context.Context) error {
	record := w.last.Load()
	switch {
	case record == nil:
		return model.Unavailable("the database's order mode could not be read yet", nil)
	case record.SwitchingTo != "":
		return model.Unavailable(fmt.Sprintf("the database is being switched from order mode %s to %s by `seckill mode`",
			record.Mode, record.SwitchingTo), nil)
	case record.Mode != w.mine:
		return model.Unavailable(fmt.Sprintf("the database is sold from in order mode %s and this instance is %s; `seckill mode %s` switches it",
			record.Mode, w.mine, w.mine), nil)
	default:
		return nil
	}
}

const (
	// drainReport is between two reports to the operator who waits for the queue.
	drainReport = time.Second
	// modePatience is how long a step is repeated while the mode's row is locked. The
	// transactions that take units hold a shared lock on it, and from a process that
	// was stopped the database takes that lock away after 10 s.
	modePatience = 15 * time.Second
)

// ModeSwitch changes the order mode of a database: it closes the sales, makes rows of
// the orders under way, and opens the sales again. A switch that was interrupted can
// be repeated, wherever it stopped.
type ModeSwitch struct {
	Deps Deps

	Rebuilds *Rebuilder
	Persist  func(ctx context.Context, reservations []model.Reservation) []error
	// BeginSwitch and FinishSwitch change the database's order mode. Both may be
	// repeated.
	BeginSwitch, FinishSwitch func(ctx context.Context, to model.OrderMode) error
	// Progress tells the operator what happens.
	Progress func(line string)
}

// Switch changes the mode. CONFLICT while a switch to another one is under way.
func (s *ModeSwitch) Switch(ctx context.Context, to model.OrderMode) error {
	record, err := s.Deps.Mode(ctx)
	if err != nil {
		return fmt.Errorf("read the order mode: %w", err)
	}
	if err := insist(ctx, to, s.BeginSwitch); err != nil {
		return fmt.Errorf("begin the switch to %s: %w", to, err)
	}
	if record.Mode == model.ModeAsync && to == model.ModeSync {
		s.say("The sales are closed.")
		if err := s.drain(ctx); err != nil {
			return err
		}
	}
	if err := insist(ctx, to, s.FinishSwitch); err != nil {
		return fmt.Errorf("finish the switch to %s: %w", to, err)
	}
	s.say("The database is sold from in order mode %s.", to)
	if to == model.ModeAsync {
		return s.open(ctx)
	}
	return nil
}

// insist repeats a step while the database is too busy for it.
func insist(ctx context.Context, to model.OrderMode, step func(context.Context, model.OrderMode) error) error {
	for began := time.Now(); ; poll.Pause(ctx, longestLook) {
		err := step(ctx, to)
		if model.CodeOf(err) != model.CodeUnavailable || ctx.Err() != nil || time.Since(began) > modePatience {
			return err
		}
	}
}

func (s *ModeSwitch) say(format string, args ...any) { s.Progress(fmt.Sprintf(format, args...)) }

// drain closes every hot copy and makes rows of all reservations. A hot copy whose
// sale is long over is closed too. Otherwise, if that sale were extended in the mode
// sync, the hot copy would not hear of its orders, and would still count as good once
// the mode is async again.
func (s *ModeSwitch) drain(ctx context.Context) error {
	var closed []model.EpochRecord
	// A rebuild that began before the switch may be in the way. It opens nothing any
	// more, and no other one begins.
	err := whileElsewhere(ctx, func() (err error) {
		closed, err = s.closeAll(ctx)
		return err
	})
	if err != nil {
		return err
	}
	s.say("%d hot copies are closed.", len(closed))
	if err := s.awaitQueue(ctx); err != nil {
		return err
	}
	for _, epoch := range closed {
		if err := s.rescue(ctx, epoch); err != nil {
			return fmt.Errorf("persist what was admitted of voucher %s: %w", epoch.VoucherID, err)
		}
	}
	s.say("Everything that was admitted is persisted.")
	return nil
}

// closeAll begins another epoch of every hot copy, and returns those epochs. No user
// can buy in them.
func (s *ModeSwitch) closeAll(ctx context.Context) ([]model.EpochRecord, error) {
	latest, err := s.Deps.Epochs.Kept(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the vouchers: %w", err)
	}
	closed := make([]model.EpochRecord, 0, len(latest))
	for _, epoch := range latest {
		next, err := s.Deps.Epochs.Close(ctx, epoch.VoucherID, epoch.Epoch, "")
		if err != nil {
			return nil, fmt.Errorf("close voucher %s: %w", epoch.VoucherID, err)
		}
		if err := s.Deps.Hot.Close(ctx, next); err != nil {
			return nil, fmt.Errorf("close the hot copy of voucher %s: %w", next.VoucherID, err)
		}
		closed = append(closed, next)
	}
	return closed, nil
}

// awaitQueue waits until every message is persisted.
func (s *ModeSwitch) awaitQueue(ctx context.Context) error {
	reporting, stop := context.WithCancel(ctx)
	var reports sync.WaitGroup
	reports.Go(func() {
		poll.Every(reporting, drainReport, func() {
			if now, err := s.Deps.Queue.Backlog(reporting); err == nil {
				s.say("Waiting for %d messages, the oldest of them %s old.", now.Messages, now.Age.Round(time.Second))
			}
		})
	})
	defer func() { stop(); reports.Wait() }()
	return s.Deps.Backlog.AwaitAll(ctx)
}

// rescue persists the reservations that are in no message: the instance that made
// them died, or is publishing them still and will find their epoch closed. They
// count as orders of the latest epoch, in which no hot copy reserves any more.
func (s *ModeSwitch) rescue(ctx context.Context, epoch model.EpochRecord) error {
	if epoch.OpenEpoch == 0 {
		return nil
	}
	left, err := s.unpersisted(ctx, epoch)
	if err != nil || len(left) == 0 {
		return err
	}
	for part := range slices.Chunk(left, findChunk) {
		for i, err := range s.Persist(ctx, part) {
			if err != nil {
				return fmt.Errorf("order %s: %w", part[i].ID, err)
			}
		}
	}
	s.say("%d orders of voucher %s were persisted without a message.", len(left), epoch.VoucherID)
	again, err := s.unpersisted(ctx, epoch)
	if err != nil {
		return err
	}
	if len(again) > 0 {
		return model.Unavailable("Some orders could not be persisted.",
			fmt.Errorf("%d reservations are left, the first of them %s", len(again), again[0].ID))
	}
	return nil
}

// unpersisted returns the reservations of the closed epoch that have no row.
func (s *ModeSwitch) unpersisted(ctx context.Context, epoch model.EpochRecord) ([]model.Reservation, error) {
	var reserved []model.Reservation
	known := map[string]bool{}
	err := s.Deps.Hot.Pendings(ctx, epoch.VoucherID, epoch.OpenEpoch, func(r model.Reservation) error {
		if !known[r.ID] {
			known[r.ID] = true
			r.Epoch, r.Sequence = epoch.Epoch, 0
			reserved = append(reserved, r)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the reservations: %w", err)
	}
	_, left, err := s.Deps.splitByRow(ctx, reserved)
	return left, err
}

// open loads every voucher's hot copy, and waits for those that an instance is
// loading already.
func (s *ModeSwitch) open(ctx context.Context) error {
	watched, err := s.Deps.Epochs.Watched(ctx)
	if err != nil {
		return fmt.Errorf("read the vouchers: %w", err)
	}
	for _, epoch := range watched {
		if err := s.Rebuilds.Do(ctx, epoch.VoucherID, 0); err != nil {
			return fmt.Errorf("load the hot copy of voucher %s: %w", epoch.VoucherID, err)
		}
	}
	s.say("%d hot copies are open.", len(watched))
	return nil
}
