package repository

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Epochs keeps what the database says about vouchers' hot copies: the latest epoch, whether it is open, and which
// messages count for the one before. Of several that rebuild at once one wins each step, others lose.
type Epochs struct{ DB *sqldb.Database }

type epochRow struct {
	model.EpochRecord `gorm:"embedded"`

	ReadAt clock
}

func (r epochRow) record() model.EpochRecord {
	r.Now = r.ReadAt.Time
	return r.EpochRecord
}

// Read reads the records of vouchers by id; absent ones are left out.
func (c *Epochs) Read(ctx context.Context, ids []string) (map[string]model.EpochRecord, error) {
	records := make(map[string]model.EpochRecord, len(ids))
	err := c.DB.Read(ctx, fmt.Sprintf("read the hot copies of %d vouchers", len(ids)), func(db *gorm.DB) error {
		return parted(validIDs(ids), func(some []string) error {
			list, err := c.list(db, "WHERE id IN ?", some)
			for _, record := range list {
				records[record.VoucherID] = record
			}
			return err
		})
	})
	return records, err
}

// Latest reads which epoch of each voucher is the latest, without absent ones. Each group of accepted orders asks it.
func (c *Epochs) Latest(ctx context.Context, ids []string) (map[string]int64, error) {
	latest := make(map[string]int64, len(ids))
	var args []any
	for _, id := range ids {
		if model.ValidID(id) {
			args = append(args, id)
		}
	}
	if len(args) == 0 {
		return latest, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.DB.Budget())
	defer cancel()
	type row struct {
		id    string
		epoch int64
	}
	rows, err := c.DB.SQL().QueryContext(ctx,
		"SELECT id, copy_epoch FROM vouchers WHERE id IN (?"+strings.Repeat(", ?", len(args)-1)+")", args...)
	found, err := scanned(rows, err, len(args), func(r *row) []any { return []any{&r.id, &r.epoch} })
	for _, row := range found {
		latest[row.id] = row.epoch
	}
	return latest, sqldb.Named(fmt.Sprintf("read the epochs of %d vouchers", len(ids)), err)
}

// Watched lists vouchers whose hot copy must be there, those on sale first: the sale is at most an hour away, whatever
// the state, or the stock is to shrink. A draw is listed only with a copy from before, which may have to be closed.
func (c *Epochs) Watched(ctx context.Context) ([]model.EpochRecord, error) {
	// A join, because MariaDB asks an IN with a UNION once for each voucher.
	where := "JOIN (SELECT id AS watched FROM vouchers WHERE end_at > " + c.DB.Dialect.HourAgo +
		" AND COALESCE(early_begin_at, begin_at) < " + c.DB.Dialect.InAnHour +
		" UNION SELECT voucher_id FROM stock_intents) AS list ON list.watched = vouchers.id WHERE allocation = '' OR copy_epoch > 0 ORDER BY on_sale DESC, vouchers.id"
	return got(ctx, c.DB.Read, "list the hot copies",
		func(db *gorm.DB) ([]model.EpochRecord, error) { return c.list(db, where) })
}

// Kept lists, by id and some thousand at once, every voucher whose hot copy may still be used: one held for open,
// whenever its sale was, as an extended sale goes on with it; what is or will be on sale; and what has returned units,
// a change of its stock, or a rebuild that may have died, under way.
func (c *Epochs) Kept(ctx context.Context) (records []model.EpochRecord, err error) {
	type row struct {
		Record epochRow `gorm:"embedded"`

		Kept bool
	}
	d := c.DB.Dialect
	// The subselects find one row each: MariaDB asks an IN for all rows, with each page again.
	statement := "SELECT record.*, (end_at > " + d.HourAgo +
		" OR (SELECT id FROM releases WHERE releases.voucher_id = vouchers.id LIMIT 1) IS NOT NULL" +
		" OR (SELECT stock FROM stock_intents WHERE stock_intents.voucher_id = vouchers.id) IS NOT NULL" +
		" OR (copy_epoch > 0 AND copy_open_epoch = copy_epoch) OR copy_barrier IS NOT NULL) AND (allocation = '' OR copy_epoch > 0) AS kept" +
		" FROM (" + sqlOf(d, "copy_read") + " WHERE id > ? ORDER BY id LIMIT ?) AS record JOIN vouchers ON vouchers.id = record.voucher_id ORDER BY voucher_id"
	err = pages(snapshotRows, func(last row) (page []row, err error) {
		err = c.DB.Read(ctx, "list the hot copies", func(db *gorm.DB) error {
			return db.Raw(statement, last.Record.VoucherID, snapshotRows).Scan(&page).Error
		})
		return page, err
	}, each(func(r row) error {
		if r.Kept {
			records = append(records, r.Record.record())
		}
		return nil
	}))
	return records, err
}

func (c *Epochs) list(db *gorm.DB, where string, args ...any) ([]model.EpochRecord, error) {
	var rows []epochRow
	if err := db.Raw(sqlOf(c.DB.Dialect, "copy_read")+" "+where, args...).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read hot copies: %w", err)
	}
	records := make([]model.EpochRecord, len(rows))
	for i, row := range rows {
		records[i] = row.record()
	}
	return records, nil
}

// Close begins the next epoch of a voucher's hot copy and returns its record; the log has it if adminID is not empty.
// From now on reservations of the open epoch count only up to the barrier, once there is one. ErrSuperseded: from is
// not the latest. After an unknown outcome the caller must begin another: two instances must never build one epoch.
func (c *Epochs) Close(
	ctx context.Context, voucherID string, from int64, adminID string,
) (record model.EpochRecord, err error) {
	if err := possible(voucherID); err != nil {
		return record, err
	}
	action := fmt.Sprintf("close the hot copy of voucher %s at epoch %d", voucherID, from)
	err = c.DB.Write(ctx, action, func(tx *gorm.DB) error {
		if err := c.exec(tx, "copy_close", voucherID, from); err != nil {
			return err
		}
		list, err := c.list(tx, "WHERE id = ?", voucherID) // which the statement has found
		if err != nil {
			return err
		}
		if record = list[0]; adminID == "" {
			return nil
		}
		return logChange(c.DB, tx, adminChange{
			at: stored(record.Now), actor: adminID, action: model.ActionRebuild, subject: voucherID,
		})
	})
	return record, err
}

// SetBarrier says which message is the open epoch's last. ErrSuperseded: the epoch is not the latest, or open.
func (c *Epochs) SetBarrier(ctx context.Context, voucherID string, epoch int64, barrier uint64) error {
	return c.change(ctx, "set the barrier of", voucherID, epoch, func(tx *gorm.DB) error {
		return c.exec(tx, "copy_barrier", barrier, voucherID, epoch)
	})
}

// Progress is a rebuild's sign of life. ErrSuperseded as in SetBarrier.
func (c *Epochs) Progress(ctx context.Context, voucherID string, epoch int64) error {
	return c.change(ctx, "note progress with", voucherID, epoch, func(tx *gorm.DB) error {
		return c.exec(tx, "copy_progress", voucherID, epoch)
	})
}

// Open declares the epoch open; again is fine. ErrSuperseded: not the latest. UNAVAILABLE: not in async mode.
func (c *Epochs) Open(ctx context.Context, voucherID string, epoch int64) error {
	return c.change(ctx, "open", voucherID, epoch, func(tx *gorm.DB) error {
		// Locked: the mode is changed before or after, and then this epoch is closed with all others.
		mode, _, err := lockMode(tx, c.DB.Dialect)
		if err != nil {
			return err
		}
		if mode != model.ModeAsync {
			return otherMode(mode)
		}
		err = c.exec(tx, "copy_open", voucherID, epoch)
		if !errors.Is(err, model.ErrSuperseded) {
			return err
		}
		open, readErr := exists(tx, "SELECT 1 FROM vouchers WHERE id = ? AND copy_epoch = ? AND copy_open_epoch = ?",
			voucherID, epoch, epoch)
		if open && epoch > 0 && readErr == nil {
			return sqldb.ErrNothingToWrite
		}
		return err
	})
}

func (c *Epochs) change(ctx context.Context, what, voucherID string, epoch int64, work func(*gorm.DB) error) error {
	if err := possible(voucherID); err != nil {
		return err
	}
	action := fmt.Sprintf("%s the hot copy of voucher %s at epoch %d", what, voucherID, epoch)
	return c.DB.WriteRepeatable(ctx, action, func(tx *gorm.DB, _ bool) error { return work(tx) })
}

func (c *Epochs) exec(tx *gorm.DB, name string, args ...any) error {
	done := tx.Exec(sqlOf(c.DB.Dialect, name), args...)
	if done.Error == nil && done.RowsAffected != 1 {
		return model.ErrSuperseded
	}
	return done.Error
}

// snapshotRows are read at once: some hundred kilobytes, and twenty questions for 100,000 orders.
const snapshotRows = 5000

// snapshot is a transaction in which everything that is read is of one instant.
type snapshot struct {
	db      *sqldb.Database
	tx      *gorm.DB
	voucher voucherRow
}

// Snapshot shows work a voucher of one instant, unlocked. ErrSuperseded: not the latest epoch. NOT_FOUND: no voucher.
func (c *Epochs) Snapshot(ctx context.Context, voucherID string, epoch int64, work func(model.Snapshot) error) error {
	action := "read a snapshot of voucher " + voucherID
	var worked bool
	err := c.DB.Snapshot(ctx, func(tx *gorm.DB) error {
		s := &snapshot{db: c.DB, tx: tx}
		err := s.read(ctx, "read its voucher", func(tx *gorm.DB) (err error) {
			s.voucher, err = readVoucher(tx, c.DB.Dialect, voucherID)
			return err
		})
		if err != nil {
			return err
		}
		if s.voucher.CopyEpoch != epoch {
			return model.ErrSuperseded
		}
		worked = true
		return work(model.Snapshot{Voucher: s.voucher.view(), Live: s.live, Cooling: s.cooling})
	})
	if worked && err != nil {
		return fmt.Errorf("%s: %w", action, err) // named already, by whom it happened to
	}
	return sqldb.Named(action, err)
}

// read bounds one question; how long the snapshot lives is up to its user.
func (s *snapshot) read(ctx context.Context, action string, query func(*gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.db.Budget())
	defer cancel()
	return sqldb.Named(action, query(s.tx.WithContext(ctx)))
}

// live yields all live orders by users, some thousand at once, as id, voucher and user: their index has no more.
func (s *snapshot) live(ctx context.Context, yield func([]model.Order) error) error {
	return pages(snapshotRows, func(last model.Order) (orders []model.Order, err error) {
		err = s.read(ctx, "list live orders of voucher "+s.voucher.ID, func(tx *gorm.DB) error {
			rows, err := tx.Raw(sqlOf(s.db.Dialect, "snapshot_live"), s.voucher.ID, last.UserID, snapshotRows).Rows()
			orders, err = scanned(rows, err, snapshotRows, func(o *model.Order) []any {
				o.VoucherID = s.voucher.ID
				return []any{&o.ID, &o.UserID}
			})
			return err
		})
		return orders, err
	}, yield)
}

// cooling calls yield for every user who waits before another order, in the order of users, some thousand at once.
func (s *snapshot) cooling(ctx context.Context, yield func([]model.Cooling) error) error {
	return pages(snapshotRows, func(last model.Cooling) (page []model.Cooling, err error) {
		var rows []cooled
		err = s.read(ctx, "list who waits for voucher "+s.voucher.ID, func(tx *gorm.DB) error {
			return tx.Raw(sqlOf(s.db.Dialect, "snapshot_cooling"), s.voucher.ID, last.UserID,
				snapshotRows).Scan(&rows).Error
		})
		for _, row := range rows {
			page = append(page, model.Cooling{UserID: row.UserID, Until: row.Until.Time})
		}
		return page, err
	}, yield)
}
