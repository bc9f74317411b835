package service

import (
	"context"
	"fmt"
	"time"

	"seckill/model"
)

const (
	// drainReport is how often somebody who waits for the queue is told.
	drainReport = time.Second
	// openPoll is how often a copy is looked at that another process loads.
	openPoll = 200 * time.Millisecond
	// modePatience is how long the mode is asked for again while its row cannot be
	// had: who takes units holds it shared, and the database takes it from a process
	// that was stopped meanwhile after 10 s.
	modePatience = 15 * time.Second
)

// ModeStore keeps how the database is sold from. All of it may be repeated.
type ModeStore interface {
	Read(ctx context.Context) (model.ModeRecord, error)
	BeginSwitch(ctx context.Context, to model.OrderMode) error
	FinishSwitch(ctx context.Context, to model.OrderMode) error
}

// SwitchedRecords is what a switch asks of the copies' records.
type SwitchedRecords interface {
	Watched(ctx context.Context) ([]model.EpochRecord, error)
	// Kept are those and every other one that is held for open.
	Kept(ctx context.Context) ([]model.EpochRecord, error)
	Close(ctx context.Context, voucherID string, from int64) (model.EpochRecord, error)
}

// SwitchedCopies is what a switch asks of hot copies.
type SwitchedCopies interface {
	Close(ctx context.Context, voucherID string, epoch, opened int64) error
	Pendings(ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error) error
}

// ModeSwitch changes how a database is sold from: it closes the sales, lets
// what is under way become orders, and opens again. It can be repeated wherever
// it was interrupted.
type ModeSwitch struct {
	deps ModeSwitchDeps
}

// ModeSwitchDeps is what a ModeSwitch works with.
type ModeSwitchDeps struct {
	Modes    ModeStore
	Records  SwitchedRecords
	Rows     RowFinder
	Copies   SwitchedCopies
	Queue    BacklogReader // somebody must consume it meanwhile
	Persist  func(ctx context.Context, reservations []model.Reservation) []error
	Rebuilds *Rebuilder
	// Progress is told what happens.
	Progress func(line string)
}

// NewModeSwitch makes a ModeSwitch.
func NewModeSwitch(deps ModeSwitchDeps) *ModeSwitch { return &ModeSwitch{deps: deps} }

// Switch changes the mode. CONFLICT while a switch to another one is under way.
func (s *ModeSwitch) Switch(ctx context.Context, to model.OrderMode) error {
	record, err := s.deps.Modes.Read(ctx)
	if err != nil {
		return fmt.Errorf("read the order mode: %w", err)
	}
	if err := insist(ctx, to, s.deps.Modes.BeginSwitch); err != nil {
		return fmt.Errorf("begin the switch to %s: %w", to, err)
	}
	if record.Mode == model.ModeAsync && to == model.ModeSync {
		s.say("The sales are closed.")
		if err := s.drain(ctx); err != nil {
			return err
		}
	}
	if err := insist(ctx, to, s.deps.Modes.FinishSwitch); err != nil {
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
	for began := time.Now(); ; pause(ctx, openPoll) {
		err := step(ctx, to)
		if model.CodeOf(err) != model.CodeUnavailable || ctx.Err() != nil || time.Since(began) > modePatience {
			return err
		}
	}
}

func (s *ModeSwitch) say(format string, args ...any) { s.deps.Progress(fmt.Sprintf(format, args...)) }

// drain closes every hot copy and makes orders of everything that was admitted.
// One whose sale is long over is closed too: in the other mode it would not hear
// of what is sold when that sale is extended, and still be taken for good when
// this mode comes back.
func (s *ModeSwitch) drain(ctx context.Context) error {
	closed, err := s.closeAll(ctx)
	for elsewhere(err) && ctx.Err() == nil {
		// A rebuild that had begun before the switch was quicker. It opens nothing any
		// more, and none begins.
		pause(ctx, openPoll)
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

// closeAll gives every copy another epoch, in which nobody can buy.
func (s *ModeSwitch) closeAll(ctx context.Context) ([]model.EpochRecord, error) {
	records, err := s.deps.Records.Kept(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the vouchers: %w", err)
	}
	closed := make([]model.EpochRecord, 0, len(records))
	for _, record := range records {
		next, err := s.deps.Records.Close(ctx, record.VoucherID, record.Epoch)
		if err != nil {
			return nil, fmt.Errorf("close voucher %s: %w", record.VoucherID, err)
		}
		if err := s.deps.Copies.Close(ctx, next.VoucherID, next.Epoch, next.OpenEpoch); err != nil {
			return nil, fmt.Errorf("close the hot copy of voucher %s: %w", next.VoucherID, err)
		}
		closed = append(closed, next)
	}
	return closed, nil
}

// awaitQueue waits until everything that is in the queue now was persisted.
func (s *ModeSwitch) awaitQueue(ctx context.Context) error {
	backlog, err := s.deps.Queue.Backlog(ctx)
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(watching, drainReport); watching.Err() == nil; pause(watching, drainReport) {
			if now, err := s.deps.Queue.Backlog(watching); err == nil {
				s.say("Waiting for %d messages, the oldest of them %s old.", now.Messages, now.Age.Round(time.Second))
			}
		}
	}()
	err = awaitFloor(ctx, s.deps.Queue.Backlog, backlog.LastSequence)
	stop()
	<-done
	return err
}

// rescue persists reservations that no message carries: their publisher died,
// or is publishing still and will hear that the copy is closed. They count as
// orders of the latest epoch, which nobody else admits to.
func (s *ModeSwitch) rescue(ctx context.Context, record model.EpochRecord) error {
	if record.OpenEpoch == 0 {
		return nil
	}
	left, err := s.unpersisted(ctx, record)
	if err != nil || len(left) == 0 {
		return err
	}
	for part := range chunks(left, findChunk) {
		for i, err := range s.deps.Persist(ctx, part) {
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
	err := s.deps.Copies.Pendings(ctx, record.VoucherID, record.OpenEpoch, func(r model.Reservation) error {
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
	var left []model.Reservation
	for part := range chunks(reserved, findChunk) {
		ids := make([]string, len(part))
		for i, r := range part {
			ids[i] = r.ID
		}
		rows, err := s.deps.Rows.Find(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("look for the rows of %d reservations: %w", len(ids), err)
		}
		_, missing := split(rows, part)
		left = append(left, missing...)
	}
	return left, nil
}

// open loads every voucher's hot copy. The instances do that too, by now: a
// copy that is being loaded by one of them is waited for.
func (s *ModeSwitch) open(ctx context.Context) error {
	records, err := s.deps.Records.Watched(ctx)
	if err != nil {
		return fmt.Errorf("read the vouchers: %w", err)
	}
	for _, record := range records {
		err := s.deps.Rebuilds.ensure(ctx, record.VoucherID)
		for elsewhere(err) && ctx.Err() == nil {
			pause(ctx, openPoll)
			err = s.deps.Rebuilds.ensure(ctx, record.VoucherID)
		}
		if err != nil {
			return fmt.Errorf("load the hot copy of voucher %s: %w", record.VoucherID, err)
		}
	}
	s.say("%d hot copies are open.", len(records))
	return nil
}
