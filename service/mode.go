package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"seckill/model"
)

const (
	// modeEvery is between two readings of the order mode: instances notice a
	// switch well within a second. Units are safe before that: whoever takes one
	// checks the mode in the same transaction.
	modeEvery = 300 * time.Millisecond
	// modeTimeout bounds one reading.
	modeTimeout = 2 * time.Second
)

// ModeWatcher knows how the database is sold from, as it was last told. A
// database that is away changes nothing: async must sell on without it.
type ModeWatcher struct {
	modes ModeReader
	mine  model.OrderMode
	log   *slog.Logger
	last  atomic.Pointer[model.ModeRecord]
}

// NewModeWatcher watches for an instance of a mode; Run does the watching.
func NewModeWatcher(modes ModeReader, mine model.OrderMode, log *slog.Logger) *ModeWatcher {
	return &ModeWatcher{modes: modes, mine: mine, log: log}
}

// Run reads the mode again and again until ctx ends.
func (w *ModeWatcher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.Refresh(ctx) // the next one tells
		pause(ctx, modeEvery)
	}
}

// Refresh reads the mode now.
func (w *ModeWatcher) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, modeTimeout)
	defer cancel()
	record, err := w.modes.Read(ctx)
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
