package guard

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

// Mode knows in which order mode the database was sold from at the latest reading. While the database is away that
// stays as it was, because async sells on. Until another mode is read, budget.Glance later, nothing is sold twice: each
// transaction that takes a unit checks the mode too.
type Mode struct {
	read func(context.Context) (model.ModeRecord, error)
	mine model.OrderMode
	log  *slog.Logger
	last atomic.Pointer[model.ModeRecord]
}

// NewMode makes the watcher of an instance whose order mode is mine; Run does the watching.
func NewMode(read func(context.Context) (model.ModeRecord, error), mine model.OrderMode, log *slog.Logger) *Mode {
	return &Mode{read: read, mine: mine, log: log}
}

// Adopt has a database without vouchers adopt this instance's mode, and returns the name of the database's deployment.
// Lacks says what the schema lacks that another process may have yet to make; nil: nobody else makes it. An instance in
// sync waits for that and is not ready: there is no error, and the name is not known yet. One in async needs the name,
// which its queue has.
func (m *Mode) Adopt(
	ctx context.Context, adopt func(context.Context, model.OrderMode) (model.ModeRecord, error), lacks func(context.Context) error,
) (deployment string, err error) {
	record, err := adopt(ctx, m.mine)
	switch {
	case err == nil:
		return record.Deployment, m.Refresh(ctx)
	case lacks == nil:
	case m.mine == model.ModeSync:
		return "", nil
	default:
		if missing := lacks(ctx); missing != nil {
			return "", missing
		}
	}
	return "", fmt.Errorf("look at the order mode of the database: %w", err)
}

// Run reads the mode again and again until ctx ends.
func (m *Mode) Run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = m.Refresh(ctx) // after an error the latest reading counts
		poll.Pause(ctx, budget.Glance)
	}
}

// Refresh reads the mode now.
func (m *Mode) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Call)
	defer cancel()
	record, err := m.read(ctx)
	if err != nil {
		return fmt.Errorf("read the order mode: %w", err)
	}
	before := m.last.Swap(&record)
	if before == nil || *before != record {
		m.log.InfoContext(ctx, "the database's order mode", slog.String("mode", string(record.Mode)), slog.String("instance", string(m.mine)))
	}
	return nil
}

// Selling is nil while this instance may sell. UNAVAILABLE says that the database's
// mode is another one, or could not be read yet.
func (m *Mode) Selling() error {
	record := m.last.Load()
	switch {
	case record == nil:
		return model.Unavailable("It is not known yet how this database is sold from.", nil)
	case record.Mode != m.mine:
		return model.Unavailable("This instance has another order mode than its database.", nil)
	default:
		return nil
	}
}

// Probe is the readiness check: it names the two modes.
func (m *Mode) Probe(context.Context) error {
	record := m.last.Load()
	switch {
	case record == nil:
		return model.Unavailable("the database's order mode could not be read yet", nil)
	case record.Mode != m.mine:
		return model.Unavailable(fmt.Sprintf("the database is sold from in order mode %s and this instance is %s; `seckill mode %s` "+
			"changes it while no instance sells", record.Mode, m.mine, m.mine), nil)
	default:
		return nil
	}
}
