package repository

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"seckill/model"
)

// snapshotRows are read at once: some hundred kilobytes, and twenty questions
// for 100,000 orders.
const snapshotRows = 5000

// Snapshot is a voucher and its orders as of one instant, which is the same for
// everything that is read from it.
type Snapshot struct {
	db      *Database
	tx      *gorm.DB
	voucher voucherRow
}

// Snapshot shows a voucher as of one instant, for the copy of an epoch, until
// work returns. It holds no lock. ErrSuperseded when that epoch is not the latest;
// NOT_FOUND when there is no such voucher.
func (c *Epochs) Snapshot(ctx context.Context, voucherID string, epoch int64, work func(*Snapshot) error) error {
	action := fmt.Sprintf("read a snapshot of voucher %s", voucherID)
	if err := possible(voucherID); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	// Under REPEATABLE READ the first reading makes the snapshot, and read-only
	// transactions of SQLite begin without the writer's turn.
	options := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	var worked bool
	err := c.db.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		s := &Snapshot{db: c.db, tx: tx}
		if err := s.begin(ctx, voucherID); err != nil {
			return err
		}
		if s.voucher.CopyEpoch != epoch {
			return model.ErrSuperseded
		}
		worked = true
		return work(s)
	}, options)
	if worked && err != nil {
		return fmt.Errorf("%s: %w", action, err) // named already, by whom it happened to
	}
	return c.db.fail(action, err)
}

func (s *Snapshot) begin(ctx context.Context, voucherID string) error {
	return s.read(ctx, "read its voucher", func(tx *gorm.DB) error {
		return notFound(selectVouchers(tx, s.db.dialect).Where("id = ?", voucherID).Take(&s.voucher).Error, "voucher")
	})
}

// read bounds one question; how long the snapshot lives is up to its user.
func (s *Snapshot) read(ctx context.Context, action string, query func(*gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, operationBudget)
	defer cancel()
	return s.db.fail(action, query(s.tx.WithContext(ctx)))
}

// Voucher is the voucher.
func (s *Snapshot) Voucher() model.Voucher { return s.voucher.view() }

// Live calls yield for every live order, in the order of users, some thousand at
// once; of each only the id, voucher and user are given. An error of yield ends
// it and is returned.
func (s *Snapshot) Live(ctx context.Context, yield func([]model.Order) error) error {
	for last := ""; ; {
		orders, err := s.liveAfter(ctx, last)
		if err != nil {
			return err
		}
		if len(orders) == 0 {
			return nil
		}
		if err := yield(orders); err != nil {
			return err
		}
		if len(orders) < snapshotRows {
			return nil
		}
		last = orders[len(orders)-1].UserID
	}
}

// liveAfter reads a page from an index that has all its columns.
func (s *Snapshot) liveAfter(ctx context.Context, user string) ([]model.Order, error) {
	orders := make([]model.Order, 0, snapshotRows)
	err := s.read(ctx, "list live orders of voucher "+s.voucher.ID, func(tx *gorm.DB) error {
		rows, err := tx.Raw(s.db.dialect.sql(snapshotLive), s.voucher.ID, user, snapshotRows).Rows()
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			order := model.Order{VoucherID: s.voucher.ID}
			if err := rows.Scan(&order.ID, &order.UserID); err != nil {
				return fmt.Errorf("read a row: %w", err)
			}
			orders = append(orders, order)
		}
		return rows.Err()
	})
	return orders, err
}

// Known tells which orders have a row, whatever became of them: those that are
// committed by now.
func (c *Epochs) Known(ctx context.Context, ids []string) (map[string]bool, error) {
	known := make(map[string]bool, len(ids))
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !model.ValidID(id) }) // see possible
	err := c.db.read(ctx, fmt.Sprintf("look for %d orders", len(ids)), func(db *gorm.DB) error {
		var found []string
		if err := db.Model(&model.Order{}).Where("id IN ?", ids).Pluck("id", &found).Error; err != nil {
			return fmt.Errorf("find orders: %w", err)
		}
		for _, id := range found {
			known[id] = true
		}
		return nil
	})
	return known, err
}
