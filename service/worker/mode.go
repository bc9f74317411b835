package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"seckill/internal/poll"
	"seckill/model"
)

const (
	// modeEvery is between two readings of the order mode: instances notice a
	// switch well within a second. Units are safe before that: each transaction that takes one
	// checks the mode in the same transaction.
	modeEvery = 300 * time.Millisecond
	// modeTimeout bounds one reading.
	modeTimeout = 2 * time.Second
)

// ModeWatcher knows how the database is sold from, as it was last told. A
// database that is away changes nothing: async must sell on without it.
type ModeWatcher struct {
	read func(context.Context) (model.ModeRecord, error)
	mine model.OrderMode
	log  *slog.Logger
	last atomic.Pointer[model.ModeRecord]
}

// NewModeWatcher watches for an instance of a mode; Run does the watching.
func NewModeWatcher(
	read func(context.Context) (model.ModeRecord, error), mine model.OrderMode, log *slog.Logger,
) *ModeWatcher {
	return &ModeWatcher{read: read, mine: mine, log: log}
}

// Run reads the mode again and again until ctx ends.
func (w *ModeWatcher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.Refresh(ctx) // the next one tells
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

// Selling is nil, or UNAVAILABLE when nothing may be sold now: the mode is
// another one, is being switched, or was never learnt.
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
	// drainReport is how often the operator who waits for the queue is told.
	drainReport = time.Second
	// openPoll is how often a copy is looked at that another process loads.
	openPoll = 200 * time.Millisecond
	// modePatience is how long the mode is asked for again while its row cannot be
	// had: who takes units holds it shared, and the database takes it from a process
	// that was stopped meanwhile after 10 s.
	modePatience = 15 * time.Second
)

// ModeSwitch changes how a database is sold from: it closes the sales, lets
// what is under way become orders, and opens again. It can be repeated wherever
// it was interrupted.
type ModeSwitch struct {
	Parts

	Rebuilds *Rebuilder
	Persist  func(ctx context.Context, reservations []model.Reservation) []error
	// BeginSwitch and FinishSwitch change the database's order mode. Both may be
	// repeated.
	BeginSwitch, FinishSwitch func(ctx context.Context, to model.OrderMode) error
	// Progress is told what happens.
	Progress func(line string)
}

// Switch changes the mode. CONFLICT while a switch to another one is under way.
func (s *ModeSwitch) Switch(ctx context.Context, to model.OrderMode) error {
	record, err := s.Mode(ctx)
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
	for began := time.Now(); ; poll.Pause(ctx, openPoll) {
		err := step(ctx, to)
		if model.CodeOf(err) != model.CodeUnavailable || ctx.Err() != nil || time.Since(began) > modePatience {
			return err
		}
	}
}

func (s *ModeSwitch) say(format string, args ...any) { s.Progress(fmt.Sprintf(format, args...)) }

// drain closes every hot copy and makes orders of everything that was admitted.
// One whose sale is long over is closed too: in the other mode it would not hear
// of what is sold when that sale is extended, and still be taken for good when
// this mode comes back.
func (s *ModeSwitch) drain(ctx context.Context) error {
	closed, err := s.closeAll(ctx)
	for elsewhere(err) && ctx.Err() == nil {
		// A rebuild that had begun before the switch was quicker. It opens nothing any
		// more, and none begins.
		poll.Pause(ctx, openPoll)
		closed, err = s.closeAll(ctx)
	}
	if err != nil {
		return err
	}
	s.say("%d hot copies are closed.", len(closed))
	if err := s.awaitQueue(ctx); err != nil {
		return err
	}
	for _, record := range closed {
		if err := s.rescue(ctx, record); err != nil {
			return fmt.Errorf("persist what was admitted of voucher %s: %w", record.VoucherID, err)
		}
	}
	s.say("Everything that was admitted is persisted.")
	return nil
}

// closeAll gives every hot copy another epoch, in which no user can buy.
func (s *ModeSwitch) closeAll(ctx context.Context) ([]model.EpochRecord, error) {
	records, err := s.Epochs.Kept(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the vouchers: %w", err)
	}
	closed := make([]model.EpochRecord, 0, len(records))
	for _, record := range records {
		next, err := s.Epochs.Close(ctx, record.VoucherID, record.Epoch)
		if err != nil {
			return nil, fmt.Errorf("close voucher %s: %w", record.VoucherID, err)
		}
		if err := s.Hot.Close(ctx, next.VoucherID, next.Epoch, next.OpenEpoch); err != nil {
			return nil, fmt.Errorf("close the hot copy of voucher %s: %w", next.VoucherID, err)
		}
		closed = append(closed, next)
	}
	return closed, nil
}

// awaitQueue waits until everything that is in the queue now was persisted.
func (s *ModeSwitch) awaitQueue(ctx context.Context) error {
	backlog, err := s.Queue.Backlog(ctx)
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for poll.Pause(watching, drainReport); watching.Err() == nil; poll.Pause(watching, drainReport) {
			if now, err := s.Queue.Backlog(watching); err == nil {
				s.say("Waiting for %d messages, the oldest of them %s old.", now.Messages, now.Age.Round(time.Second))
			}
		}
	}()
	err = awaitFloor(ctx, s.Queue.Backlog, backlog.LastSequence)
	stop()
	<-done
	return err
}

// rescue persists reservations that no message carries: their publisher died,
// or is publishing still and will hear that the copy is closed. They count as
// orders of the latest epoch, which no hot copy admits to.
func (s *ModeSwitch) rescue(ctx context.Context, record model.EpochRecord) error {
	if record.OpenEpoch == 0 {
		return nil
	}
	left, err := s.unpersisted(ctx, record)
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
	s.say("%d orders of voucher %s were persisted without a message.", len(left), record.VoucherID)
	again, err := s.unpersisted(ctx, record)
	if err != nil {
		return err
	}
	if len(again) > 0 {
		return model.Unavailable("Some orders could not be persisted.",
			fmt.Errorf("%d reservations are left, the first of them %s", len(again), again[0].ID))
	}
	return nil
}

func (s *ModeSwitch) unpersisted(ctx context.Context, record model.EpochRecord) ([]model.Reservation, error) {
	var reserved []model.Reservation
	known := map[string]bool{}
	err := s.Hot.Pendings(ctx, record.VoucherID, record.OpenEpoch, func(r model.Reservation) error {
		if !known[r.ID] {
			known[r.ID] = true
			r.Epoch, r.Sequence = record.Epoch, 0
			reserved = append(reserved, r)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the reservations: %w", err)
	}
	_, left, err := s.sort(ctx, reserved)
	return left, err
}

// open loads every voucher's hot copy. The instances do that too, by now: a
// copy that is being loaded by one of them is waited for.
func (s *ModeSwitch) open(ctx context.Context) error {
	records, err := s.Epochs.Watched(ctx)
	if err != nil {
		return fmt.Errorf("read the vouchers: %w", err)
	}
	for _, record := range records {
		err := s.Rebuilds.Load(ctx, record.VoucherID, openPoll)
		if err != nil {
			return fmt.Errorf("load the hot copy of voucher %s: %w", record.VoucherID, err)
		}
	}
	s.say("%d hot copies are open.", len(records))
	return nil
}
