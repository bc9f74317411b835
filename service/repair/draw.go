package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"seckill/internal/budget"
	"seckill/internal/draw"
	"seckill/internal/failpoint"
	"seckill/internal/telemetry"
	"seckill/model"
)

// drawBatch of the drawn order are served in a transaction, which holds the voucher's row, as expiry's.
const drawBatch = 1000

// DrawStore is what drawing asks of the database: repository.Draws.
type DrawStore interface {
	Due(ctx context.Context) ([]model.DrawState, error)
	Close(ctx context.Context, voucherID string) (model.DrawState, error)
	Entries(ctx context.Context, voucherID string, yield func(userID string, nonce []byte) error) error
	SetRoot(ctx context.Context, voucherID string, root []byte) error
	Serve(ctx context.Context, voucherID string, from int64, next []model.Drawn) (served int64, err error)
}

// Draws draws vouchers after their sale, in both order modes. Each step is a transaction on the draw's row, so that all
// who continue after a crash, or work at the same time, get the same order.
type Draws struct {
	Store DrawStore
	// Drain returns when every order is decided that was promised before the voucher became a draw.
	Drain    func(ctx context.Context, voucherID string) error
	Announce func(ctx context.Context, voucherID string) error // tells instances of taken units
	May      func() error                                      // an error while others are to draw
	Metrics  telemetry.Gauge
	Log      *slog.Logger
}

// Run draws while this instance is elected, or nobody can be, until ctx ends.
func (d *Draws) Run(ctx context.Context, by Elector) {
	draws := &look{do: d.look, pause: budget.Brief, rest: budget.Answer, what: "draws", done: "done"}
	term := func(bool) { d.Metrics.Set(0) } // whoever is elected next knows
	e := election{Elector: by, job: "draw", alone: true, may: d.May, term: term, looks: []*look{draws}}
	e.run(ctx)
}

func (d *Draws) look(ctx context.Context) error {
	due, err := d.Store.Due(ctx)
	if err != nil {
		return fmt.Errorf("look for draws: %w", err)
	}
	var failed []error
	overdue := time.Duration(0)
	for _, state := range due {
		d.Metrics.Set(max(overdue, state.Overdue).Seconds())
		err := d.draw(ctx, state)
		if errors.Is(err, model.ErrSuperseded) {
			continue // by a change of the voucher, or another instance: the next look tells
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("draw voucher %s: %w", state.VoucherID, err))
			overdue = max(overdue, state.Overdue)
		}
	}
	d.Metrics.Set(overdue.Seconds())
	return errors.Join(failed...)
}

func (d *Draws) draw(ctx context.Context, state model.DrawState) (err error) {
	began := time.Now()
	if !state.Closed {
		if err := d.Drain(ctx, state.VoucherID); err != nil {
			return fmt.Errorf("wait for the orders of before the draw: %w", err)
		}
		if state, err = d.Store.Close(ctx, state.VoucherID); err != nil {
			return err
		}
		failpoint.Reach(failpoint.AfterDrawClosed)
	}
	order, err := d.order(ctx, state)
	if err != nil {
		return err
	}
	if state.Beacon != "" && state.Value == "" {
		d.Log.InfoContext(ctx, "a draw waits for the value of its beacon", slog.String("voucher_id", state.VoucherID))
		return nil
	}
	if err := d.serve(ctx, state, order); err != nil {
		return err
	}
	d.Log.InfoContext(ctx, "a draw is done", slog.String("voucher_id", state.VoucherID),
		slog.Int("entries", len(order)), slog.Duration("took", time.Since(began)))
	return nil
}

// Drain closes the earlier hot copy of a draw, and waits up to budget.Call for the orders promised until then.
func (r *Rebuilder) Drain(ctx context.Context, voucherID string) error {
	epochs, err := r.deps.Epochs.Read(ctx, []string{voucherID})
	if err != nil || epochs[voucherID].Epoch == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Call)
	defer cancel()
	if err := r.Do(ctx, voucherID, model.AnyEpoch); err != nil {
		return err
	}
	found, known := r.draining.LoadAndDelete(voucherID)
	last, _ := found.(uint64)
	if !known {
		queued, err := r.deps.Queue.Backlog(ctx)
		if err != nil {
			return fmt.Errorf("look at the queue: %w", err)
		}
		last = queued.LastSequence
	}
	err = r.deps.Backlog.Await(ctx, voucherID, last)
	if ctx.Err() != nil { // otherwise they are decided, or it is another queue
		r.draining.Store(voucherID, last)
	}
	return err
}

func (d *Draws) order(ctx context.Context, state model.DrawState) ([]model.Drawn, error) {
	users := make([]string, 0, state.Entries)
	leaves := make([]draw.Hash, 0, state.Entries)
	err := d.Store.Entries(ctx, state.VoucherID, func(userID string, nonce []byte) error {
		users, leaves = append(users, userID), append(leaves, draw.Leaf(state.VoucherID, nonce, userID))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the entries: %w", err)
	}
	if int64(len(leaves)) != state.Entries {
		return nil, fmt.Errorf("%d entries were counted, and %d are there", state.Entries, len(leaves))
	}
	root := draw.Root(state.VoucherID, leaves)
	if state.Root != nil && !bytes.Equal(state.Root, root[:]) {
		return nil, errors.New("the entries are not those of the published root: somebody has changed them")
	}
	if state.Root == nil {
		if err := d.Store.SetRoot(ctx, state.VoucherID, root[:]); err != nil {
			return nil, err
		}
		failpoint.Reach(failpoint.AfterDrawRoot)
	}
	order := make([]model.Drawn, len(leaves))
	seed, _ := draw.Seed(state.Secret, state.Beacon, state.Value)
	for place, leaf := range draw.Order(seed, root, leaves) {
		order[place] = model.Drawn{UserID: users[leaf], Leaf: leaves[leaf]}
	}
	return order, nil
}

func (d *Draws) serve(ctx context.Context, state model.DrawState, order []model.Drawn) error {
	served, entries := state.Position, int64(len(order))
	for ctx.Err() == nil {
		next := order[served:min(served+drawBatch, entries)]
		now, err := d.Store.Serve(ctx, state.VoucherID, served, next)
		if err != nil {
			return err
		}
		failpoint.Reach(failpoint.AfterDrawBatch)
		if now < served || now > entries {
			return fmt.Errorf("%d of %d are said to be served after %d", now, entries, served)
		}
		if served = now; served == entries {
			break
		}
	}
	if err := d.Announce(ctx, state.VoucherID); err != nil {
		d.Log.WarnContext(ctx, "the instances learn of a draw by the age of their copies only",
			slog.String("voucher_id", state.VoucherID), slog.Any("error", err))
	}
	return ctx.Err()
}
