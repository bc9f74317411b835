package service

import (
	"context"
	"fmt"

	"seckill/model"
)

// load fills the new epoch's keys from one consistent snapshot: a mark for each
// live order, and the reservations of the closed epoch that have no row at all.
func (j *rebuildJob) load(ctx context.Context) error {
	carried, err := j.survivors(ctx)
	if err != nil {
		return err
	}
	if err := j.chunk(ctx, nil, nil); err != nil { // the sentinels, also when there is nothing to load
		return err
	}
	buyers := map[string]bool{} // the survivors' users: whether they have a mark
	for _, r := range carried {
		buyers[r.UserID] = false
	}
	err = j.deps.Store.Snapshot(ctx, j.record.VoucherID, j.record.Epoch, func(snapshot CopySnapshot) error {
		j.voucher = snapshot.Voucher()
		err := snapshot.Live(ctx, func(orders []model.Order) error { return j.loadLive(ctx, orders, buyers) })
		if err != nil {
			return err
		}
		return j.loadSurvivors(ctx, carried, buyers, snapshot)
	})
	if err != nil {
		return fmt.Errorf("load the snapshot: %w", err)
	}
	return nil
}

// survivors reads the reservations of the epoch that was open, by order. It can
// take in no more of them; that some get a row meanwhile shows in the snapshot.
func (j *rebuildJob) survivors(ctx context.Context) (map[string]model.Reservation, error) {
	carried := map[string]model.Reservation{}
	if j.record.OpenEpoch == 0 {
		return carried, nil
	}
	err := j.deps.Copies.Pendings(ctx, j.record.VoucherID, j.record.OpenEpoch, func(r model.Reservation) error {
		carried[r.ID] = r
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the reservations of epoch %d: %w", j.record.OpenEpoch, err)
	}
	return carried, nil
}

func (j *rebuildJob) loadLive(ctx context.Context, orders []model.Order, buyers map[string]bool) error {
	for len(orders) > 0 {
		part := orders[:min(len(orders), loadChunk)]
		orders = orders[len(part):]
		marks := make([]model.Release, len(part))
		for i, order := range part {
			marks[i] = model.Release{OrderID: order.ID, VoucherID: order.VoucherID, UserID: order.UserID}
			if _, ok := buyers[order.UserID]; ok {
				buyers[order.UserID] = true
			}
		}
		if err := j.chunk(ctx, marks, nil); err != nil {
			return err
		}
	}
	return nil
}

// loadSurvivors carries over what has no row. Such a reservation has its unit
// still, unless its user has a live order: one mark, one unit.
func (j *rebuildJob) loadSurvivors(
	ctx context.Context, carried map[string]model.Reservation, buyers map[string]bool,
	snapshot CopySnapshot,
) error {
	rest := make([]model.Reservation, 0, len(carried))
	for _, r := range carried {
		rest = append(rest, r)
	}
	for len(rest) > 0 {
		part := rest[:min(len(rest), loadChunk)]
		rest = rest[len(part):]
		ids := make([]string, len(part))
		for i, r := range part {
			ids[i] = r.ID
		}
		rows, err := snapshot.Find(ctx, ids)
		if err != nil {
			return fmt.Errorf("look for the rows of %d reservations: %w", len(ids), err)
		}
		var marks []model.Release
		var pending []model.Reservation
		for _, r := range part {
			if _, ok := rows[r.ID]; ok {
				continue
			}
			r.Epoch = j.record.Epoch
			pending = append(pending, r)
			if !buyers[r.UserID] {
				buyers[r.UserID] = true
				marks = append(marks, model.Release{OrderID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID})
			}
		}
		if err := j.chunk(ctx, marks, pending); err != nil {
			return err
		}
	}
	return nil
}

func (j *rebuildJob) chunk(ctx context.Context, marks []model.Release, pending []model.Reservation) error {
	if err := j.deps.Copies.Load(ctx, j.record.VoucherID, j.record.Epoch, marks, pending); err != nil {
		return fmt.Errorf("load %d buyers and %d reservations: %w", len(marks), len(pending), err)
	}
	j.marks += len(marks)
	j.pending += len(pending)
	j.loaded.Add(int64(len(marks) + len(pending)))
	return nil
}
