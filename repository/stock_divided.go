package repository

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gorm.io/gorm"

	"seckill/model"
)

// partedStock takes units of undivided vouchers by its strategy, and of divided ones from
// one of their parts, or from several.
type partedStock struct {
	stockStrategy

	dialect              dialect
	parts                string // stock_parts.sql
	takeFirst, takeOther string // the UPDATE of part 0, and of the others
}

func newPartedStock(strategy stockStrategy, d dialect) partedStock {
	return partedStock{strategy, d, d.sql("stock_parts"), d.sql("stock_conditional"), d.sql("stock_part_take")}
}

// read is that of the strategy. Of divided vouchers it then reads all parts at one instant
// without a lock, so that nothing remains of one whose sum is 0. UNAVAILABLE when some of
// them are lost.
func (s partedStock) read(tx *gorm.DB, ids []string) (map[string]voucherRow, error) {
	found, err := s.stockStrategy.read(tx, ids)
	if err != nil {
		return nil, err
	}
	var divided []string
	for id, row := range found {
		if row.Shards > 1 {
			divided = append(divided, id)
		}
	}
	if len(divided) == 0 {
		return found, nil
	}
	var all []part
	if err := tx.Raw(s.parts, divided, divided).Scan(&all).Error; err != nil {
		return nil, fmt.Errorf("read the parts of vouchers: %w", err)
	}
	of := map[string][]part{}
	for _, p := range all {
		of[p.VoucherID] = append(of[p.VoucherID], p)
	}
	for _, id := range divided {
		row := found[id].withParts(of[id])
		row.locked = false
		if err := row.whole(); err != nil {
			return nil, err
		}
		found[id] = row
	}
	return found, nil
}

// readAgain reads one voucher that take could not take from, and locks all parts of a divided
// one where take needs that.
func (s partedStock) readAgain(tx *gorm.DB, id string, r ruling) (map[string]voucherRow, error) {
	found, err := s.read(tx, []string{id})
	if err != nil || len(found[id].parts) == 0 || !found[id].needsAll(r) {
		return found, err
	}
	row, err := lockVoucher(tx, s.dialect, id)
	if err != nil {
		return nil, fmt.Errorf("lock voucher %s: %w", id, err)
	}
	row.OrderMode = found[id].OrderMode
	found[id] = row
	return found, nil
}

// take takes what was ruled. Of a divided voucher it locks the part that it takes from, also
// when there is nothing to take, and wants all of them locked before where one will not do.
// Reports are those of stockStrategy.
func (s partedStock) take(tx *gorm.DB, v voucherRow, r ruling) (bool, error) {
	if len(v.parts) == 0 {
		return s.stockStrategy.take(tx, v, r.units, r.exhausted)
	}
	if !v.locked && v.needsAll(r) {
		return false, nil
	}
	for _, from := range choose(v.parts, r.units, model.PartOf(r.rows[0].UserID, len(v.parts))) {
		taken, err := s.takePart(tx, v, from)
		if err != nil || !taken && from.shard == 0 {
			return false, err
		}
		if !taken {
			// The part stays locked, although its row did not match, when the UPDATE had to
			// wait for it. What is to be taken next may be before it.
			return false, fmt.Errorf("part %d: %w", from.shard, errContended)
		}
	}
	return true, nil
}

// needsAll reports whether all parts have to be locked before they are ruled on. An order is
// refused because nothing else remains, or the units come from several parts: each may change
// while another is looked at, and large groups would begin anew again and again.
func (r voucherRow) needsAll(ruled ruling) bool {
	return ruled.exhausted || !slices.ContainsFunc(r.parts, func(p part) bool { return p.Remaining >= ruled.units })
}

func (s partedStock) takePart(tx *gorm.DB, v voucherRow, from share) (bool, error) {
	var done *gorm.DB
	if from.shard == 0 {
		done = tx.Exec(s.takeFirst, from.units, v.ID, from.units, int64(math.MaxInt64), v.Revision)
	} else {
		done = tx.Exec(s.takeOther, from.units, v.ID, from.shard, from.units, v.Revision)
	}
	if done.Error != nil {
		return false, fmt.Errorf("part %d: %w", from.shard, done.Error)
	}
	return done.RowsAffected == 1, nil
}

// share is how many units come from a part.
type share struct {
	shard int
	units int64
}

// choose finds the parts to take units from, in ascending order: the one at home if it has
// enough, else the richest, as few as have them together. Of those that have the same, the
// first behind that at home is chosen, so that buyers who find theirs empty do not all meet in one.
func choose(parts []part, units int64, at int) []share {
	if parts[at].Remaining >= units {
		return []share{{parts[at].Shard, units}}
	}
	order := slices.Concat(parts[at:], parts[:at])
	slices.SortStableFunc(order, func(a, b part) int { return cmp.Compare(b.Remaining, a.Remaining) })
	var chosen []share
	for _, p := range order {
		if units == 0 {
			break
		}
		some := min(p.Remaining, units)
		chosen = append(chosen, share{p.Shard, some})
		units -= some
	}
	slices.SortFunc(chosen, func(a, b share) int { return cmp.Compare(a.shard, b.shard) })
	return chosen
}
