package repository

import (
	"errors"
	"fmt"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"seckill/model"
)

// A divided voucher has its units in several rows, so that as many transactions can sell of
// it at once. Part 0 is its row in vouchers, the others are in voucher_stock. What remains
// of it, and its version, are the sums. Every part has the voucher's revision, so that a sale
// from any of them meets what administrators and rebuilds have changed.
//
// The parts of a voucher are locked behind the vouchers before it and before those behind
// it, in ascending order. A change by an administrator locks all of them.

// partTable holds the parts behind the first.
const partTable = "voucher_stock"

// part is one part of a divided voucher.
type part struct {
	VoucherID string
	Shard     int
	Shards    int // of the voucher; only part 0 knows
	Remaining int64
	Version   int64
	Revision  int64
}

// Values within a SELECT FROM vouchers. The rows of undivided vouchers do not ask
// voucher_stock. What remains of a voucher, and its version, are those of its row and these.
const (
	partsRemaining = sumOverParts + "voucher_stock.remaining" + endOfSum
	partsVersion   = sumOverParts + "voucher_stock.version" + endOfSum
	// partsLost is how many of the parts 1 to shards - 1 are missing or of another revision,
	// and how many rows there are that are no part of the voucher.
	partsLost = "(vouchers.shards - 1 + " + sumOverParts + "CASE WHEN voucher_stock.shard < 1 OR voucher_stock.shard >= vouchers.shards THEN 1" +
		" WHEN voucher_stock.revision = vouchers.revision THEN -1 ELSE 0 END" + endOfSum + ")"

	sumOverParts = "(CASE WHEN vouchers.shards > 1 THEN (SELECT COALESCE(SUM("
	endOfSum     = "), 0) FROM voucher_stock WHERE voucher_stock.voucher_id = vouchers.id) ELSE 0 END)"
)

// errPartsLost says that a hand on the database, or a program that does not know of parts,
// has removed, changed or added some. What remains of the voucher is not known then.
var errPartsLost = errors.New("rows of voucher_stock are missing, out of date or too many")

// whole is UNAVAILABLE unless a divided voucher has exactly the parts that it must have.
func (r voucherRow) whole() error {
	if len(r.parts) == 0 {
		return nil
	}
	fit, want := 0, r.parts[0].Shards
	for i, p := range r.parts {
		if p.Shard == i && p.Revision == r.parts[0].Revision {
			fit++
		}
	}
	if fit == want && len(r.parts) == want {
		return nil
	}
	return model.Unavailable("The voucher's stock has to be repaired.", fmt.Errorf(
		"voucher %s has %d parts, %d of them as they must be, and not %d: %w; seckill audit --voucher %s --repair --stock restores them",
		r.ID, len(r.parts), fit, want, errPartsLost, r.ID))
}

// withParts adds up the parts of a divided voucher's row.
func (r voucherRow) withParts(parts []part) voucherRow {
	r.parts = parts
	r.Remaining, r.Version = 0, 0
	for _, p := range parts {
		r.Remaining += p.Remaining
		r.Version += p.Version
	}
	return r
}

// self is the row as part 0.
func (r voucherRow) self() part {
	return part{VoucherID: r.ID, Shards: int(r.Shards), Remaining: r.Remaining, Version: r.Version, Revision: r.Revision}
}

// lockVoucher reads a voucher and keeps its row and its parts locked until the transaction
// ends. Its Remaining and Version are the totals; UNAVAILABLE when parts are lost.
func lockVoucher(tx *gorm.DB, d dialect, id string) (voucherRow, error) {
	row, err := lockAsFound(tx, d, id)
	if err != nil {
		return row, err
	}
	return row, row.whole()
}

// lockAsFound is lockVoucher for the repair, which puts lost parts right.
func lockAsFound(tx *gorm.DB, d dialect, id string) (voucherRow, error) {
	row, err := lockRow(tx, d, id)
	if err != nil || row.Shards <= 1 {
		return row, err
	}
	var others []part
	// By the primary key: in a small table the optimizer would rather look at, and lock, all.
	err = tx.Table(partTable+d.byPrimaryKey).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).
		Where("voucher_id = ?", id).Order("shard").Find(&others).Error
	if err != nil {
		return row, fmt.Errorf("lock the parts of voucher %s: %w", id, err)
	}
	row.locked = true
	return row.withParts(append([]part{row.self()}, others...)), nil
}

// lockRow reads a voucher's row and keeps it locked until the transaction ends: part 0 of a
// divided voucher. In SQLite the whole transaction has been alone from its BEGIN IMMEDIATE
// on, and GORM leaves FOR UPDATE out.
func lockRow(tx *gorm.DB, d dialect, id string) (voucherRow, error) {
	var row voucherRow
	err := selectRows(tx, d).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).
		Where("id = ?", id).Take(&row).Error
	return row, err
}

// update writes a locked voucher back, with the next version and revision. Its Remaining is
// the total. Where that or the number of parts has changed it is spread evenly over them.
func update(tx *gorm.DB, d dialect, r *voucherRow) error {
	r.Version++
	r.Revision++
	row := r.Voucher
	if r.Shards <= 1 && len(r.parts) == 0 {
		return updateRow(tx, row)
	}
	if r.Remaining != r.withParts(r.parts).Remaining || r.whole() != nil || int(r.Shards) != len(r.parts) {
		// The row's version takes over those of the parts: the sum never goes back.
		shares := model.Spread(r.Remaining, int(r.Shards))
		row.Remaining = shares[0]
		if err := updateRow(tx, row); err != nil {
			return err
		}
		return replaceParts(tx, d, row, shares[1:])
	}
	row.Remaining = r.parts[0].Remaining
	for _, p := range r.parts[1:] {
		row.Version -= p.Version
	}
	if err := updateRow(tx, row); err != nil {
		return err
	}
	return revise(tx, d, r.ID)
}

func updateRow(tx *gorm.DB, row model.Voucher) error {
	done := tx.Model(&model.Voucher{}).Where("id = ?", row.ID).
		Select("Title", "Description", "Price", "FaceValue", "Stock", "Remaining", "BeginAt", "EndAt", "State", "Shards", "Version", "Revision").
		Updates(row)
	if done.Error == nil && done.RowsAffected != 1 {
		return fmt.Errorf("the locked row matched %d times", done.RowsAffected)
	}
	return done.Error
}

// revise is for whatever makes the revision of a voucher's row grow.
func revise(tx *gorm.DB, d dialect, id string) error {
	if err := tx.Exec(d.sql("stock_part_revise"), id, id).Error; err != nil {
		return fmt.Errorf("revise the parts of voucher %s: %w", id, err)
	}
	return nil
}

// replaceParts writes anew what voucher_stock has of a voucher. A sale that waits for one of
// its rows finds it changed or gone, and reads again.
func replaceParts(tx *gorm.DB, d dialect, row model.Voucher, shares []int64) error {
	if err := tx.Exec(d.deleteParts, row.ID).Error; err != nil {
		return fmt.Errorf("remove the parts of voucher %s: %w", row.ID, err)
	}
	return insertParts(tx, row, shares)
}

// insertParts inserts parts 1 and following.
func insertParts(tx *gorm.DB, row model.Voucher, shares []int64) error {
	const (
		insert  = "INSERT INTO voucher_stock (voucher_id, shard, remaining, version, revision) VALUES "
		columns = 5
	)
	var values []any
	for i, share := range shares {
		values = append(values, row.ID, i+1, share, 0, row.Revision)
	}
	if err := insertRows(tx, insert, columns, values); err != nil {
		return fmt.Errorf("insert the parts of voucher %s: %w", row.ID, err)
	}
	return nil
}
