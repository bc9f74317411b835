package repository

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"seckill/model"
)

// destination is where a transaction returns units of a voucher: part 0, or one of a divided
// voucher. All its units go to one, that of the user of the first of its orders.
type destination struct {
	voucherID string
	shard     int
	units     int
}

// destinationsOf finds where the units of changes come back to, in the order in which they are
// locked. It reads the clock and, where units come back, the order mode, which does not
// change then until the transaction ends.
func destinationsOf(tx *gorm.DB, d dialect, changes []statusChange) ([]destination, model.OrderMode, time.Time, error) {
	units, users := map[string]int{}, map[string]string{}
	var ids []string
	for _, c := range changes {
		if id := c.order.VoucherID; c.move.Unit == model.UnitReturned {
			if units[id]++; units[id] == 1 {
				ids, users[id] = append(ids, id), c.order.UserID
			}
		}
	}
	if len(ids) == 0 {
		now, err := readClock(tx, d)
		return nil, "", now, err
	}
	var rows []struct {
		ID           string
		Shards, Lost int
		Mode         model.OrderMode
		Now          clock `gorm:"column:server_time"`
	}
	if err := tx.Raw(d.sql("stock_destinations"), ids).Scan(&rows).Error; err != nil {
		return nil, "", time.Time{}, fmt.Errorf("read the order mode and the parts of vouchers: %w", err)
	}
	if len(rows) < len(ids) {
		return nil, "", time.Time{}, fmt.Errorf("find vouchers %v: %w", ids, gorm.ErrRecordNotFound)
	}
	list := make([]destination, len(rows))
	for i, row := range rows {
		list[i] = destination{voucherID: row.ID, units: units[row.ID]}
		if row.Lost == 0 { // otherwise part 0 is there in any case
			list[i].shard = model.PartOf(users[row.ID], row.Shards)
		}
	}
	slices.SortFunc(list, func(a, b destination) int { return cmp.Compare(a.voucherID, b.voucherID) })
	return list, rows[0].Mode, stored(rows[0].Now.Time), nil
}

// lock keeps its row locked until the transaction ends.
func (p destination) lock(tx *gorm.DB, d dialect) error {
	if p.shard == 0 {
		if _, err := lockRow(tx, d, p.voucherID); err != nil {
			return fmt.Errorf("lock voucher %s: %w", p.voucherID, err)
		}
		return nil
	}
	var found []part
	err := tx.Table(partTable).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).
		Where("voucher_id = ? AND shard = ?", p.voucherID, p.shard).Find(&found).Error
	if err == nil && len(found) == 0 {
		err = errContended
	}
	if err != nil {
		return fmt.Errorf("lock part %d of voucher %s: %w", p.shard, p.voucherID, err)
	}
	return nil
}

// put puts the units on sale again. The UPDATE locks a row that is not yet. A part that is
// gone sends the transaction back to its beginning.
func (p destination) put(tx *gorm.DB, d dialect) error {
	var done *gorm.DB
	gone := gorm.ErrRecordNotFound
	if p.shard == 0 {
		done = tx.Exec(d.sql("stock_return"), p.units, p.voucherID)
	} else {
		done = tx.Exec(d.sql("stock_part_return"), p.units, p.voucherID, p.shard)
		gone = errContended
	}
	err := done.Error
	if err == nil && done.RowsAffected != 1 {
		err = gone
	}
	if err != nil {
		return fmt.Errorf("return %d units to part %d of voucher %s: %w", p.units, p.shard, p.voucherID, err)
	}
	return nil
}
