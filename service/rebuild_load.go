package service

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"seckill/model"
)

const (
	// carryChunk is how many reservations are looked for in the database at once:
	// so many that round trips do not count, and a statement stays small.
	carryChunk = 1000
	// loadAhead is how many chunks wait to be loaded while the next one is read.
	loadAhead = 2
)

// load fills the new epoch's keys: with the reservations of the closed epoch that
// have no row, and then with the live orders of one consistent snapshot. In this
// order none can be missed: a reservation leaves the closed epoch when its row is
// committed, and what was committed before the snapshot is in it. Where a user has
// both, the live order has the mark: one mark, one unit. (A reservation that is
// carried and gets a closed row meanwhile is released as any other, once the new
// copy is open.)
func (j *rebuildJob) load(ctx context.Context) error {
	err := overlap(ctx, j.survivors, func(ctx context.Context, carried []model.Reservation) error {
		j.carried += len(carried)
		return j.chunk(ctx, nil, carried)
	})
	if err != nil {
		return fmt.Errorf("carry the reservations of epoch %d over: %w", j.record.OpenEpoch, err)
	}
	err = j.deps.Store.Snapshot(ctx, j.record.VoucherID, j.record.Epoch, func(snapshot CopySnapshot) error {
		j.voucher = snapshot.Voucher()
		return overlap(ctx, snapshot.Live, func(ctx context.Context, orders []model.Order) error {
			j.live += len(orders)
			return j.chunk(ctx, orders, nil)
		})
	})
	if err != nil {
		return fmt.Errorf("load the snapshot: %w", err)
	}
	return nil
}

// survivors yields the reservations of the epoch that was open and have no row, up
// to a thousand at once. It can take in no more of them.
func (j *rebuildJob) survivors(ctx context.Context, yield func([]model.Reservation) error) error {
	if j.record.OpenEpoch == 0 {
		return nil
	}
	part := make([]model.Reservation, 0, carryChunk)
	pass := func() error {
		carried, err := j.rowless(ctx, part)
		if part = part[:0]; err != nil || len(carried) == 0 {
			return err // a Load of nothing would begin anew
		}
		return yield(carried)
	}
	err := j.deps.Copies.Pendings(ctx, j.record.VoucherID, j.record.OpenEpoch, func(r model.Reservation) error {
		if part = append(part, r); len(part) < carryChunk {
			return nil
		}
		return pass()
	})
	if err != nil || len(part) == 0 {
		return err
	}
	return pass()
}

// rowless returns those reservations that have no row, for the new epoch.
func (j *rebuildJob) rowless(ctx context.Context, reservations []model.Reservation) ([]model.Reservation, error) {
	ids := make([]string, len(reservations))
	for i, r := range reservations {
		ids[i] = r.ID
	}
	known, err := j.deps.Store.Known(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look for the rows of %d reservations: %w", len(ids), err)
	}
	var carried []model.Reservation
	for _, r := range reservations {
		if !known[r.ID] {
			r.Epoch = j.record.Epoch
			carried = append(carried, r)
		}
	}
	return carried, nil
}

func (j *rebuildJob) chunk(ctx context.Context, live []model.Order, carried []model.Reservation) error {
	if err := j.deps.Copies.Load(ctx, j.record.VoucherID, j.record.Epoch, live, carried); err != nil {
		return fmt.Errorf("load %d orders and %d reservations: %w", len(live), len(carried), err)
	}
	j.loaded.Add(int64(len(live) + len(carried)))
	return nil
}

// overlap reads and writes at the same time, chunk by chunk, with a few chunks in
// between. The first error ends both.
func overlap[T any](
	ctx context.Context, read func(context.Context, func(T) error) error, write func(context.Context, T) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	chunks := make(chan T, loadAhead)
	group.Go(func() error {
		defer close(chunks)
		return read(ctx, func(chunk T) error {
			select {
			case chunks <- chunk:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	group.Go(func() error {
		for chunk := range chunks {
			if err := write(ctx, chunk); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}
