package repository

import (
	"errors"
	"fmt"
	"math"
	"time"

	"gorm.io/gorm"

	"seckill/model"
)

// StockStrategy is how concurrent transactions are kept from taking the same
// unit twice. Under each of them `CHECK (remaining >= 0)` is the last guard.
type StockStrategy string

// The strategies.
const (
	// StockConditional reads without a lock and lets the UPDATE state what it
	// relies on. The row is locked from the UPDATE to COMMIT, the shortest of
	// the three.
	StockConditional StockStrategy = "conditional"
	// StockPessimistic locks the row with SELECT … FOR UPDATE before it reads.
	StockPessimistic StockStrategy = "pessimistic"
	// StockOptimistic reads without a lock and begins anew when the row's
	// version is another one by the time of the UPDATE.
	StockOptimistic StockStrategy = "optimistic"
)

// voucherRow is a voucher, its hot copy's epochs, and the database's clock when
// it was read.
type voucherRow struct {
	model.Voucher `gorm:"embedded"`
	CopyEpoch     int64
	CopyOpenEpoch int64
	CopyBarrier   *int64
	Now           clock `gorm:"column:server_time"`
	// OrderMode is how the database is sold from; only the transactions that take units read it.
	OrderMode model.OrderMode `gorm:"column:order_mode"`
	// waited is how long the lock on the row took, where it is locked.
	waited time.Duration
}

// view is the voucher as of the instant at which it was read.
func (r voucherRow) view() model.Voucher { return r.At(r.Now.Time) }

// stockStrategy is one way to take units.
type stockStrategy interface {
	// read gives the rows of vouchers by id, with the order mode, which is
	// locked against changes; absent ones are left out. If it locks rows, it
	// locks them in the order of ids.
	read(tx *gorm.DB, ids []string) (map[string]voucherRow, error)
	// take takes units of a voucher that read has shown, and locks its row, also
	// when there are none to take; exhausting says that an order was refused
	// because nothing else remains. It reports false when
	// the voucher has to be read again, and errContended when the transaction
	// has to begin anew.
	take(tx *gorm.DB, voucher voucherRow, units int64, exhausting bool) (bool, error)
}

func (d *Database) stockStrategy(name StockStrategy) (stockStrategy, error) {
	switch name {
	case StockConditional:
		return conditionalStock{d.dialect, d.dialect.sql("stock_conditional")}, nil
	case StockOptimistic:
		return optimisticStock{d.dialect, d.dialect.sql("stock_optimistic")}, nil
	case StockPessimistic:
		if d.dialect.name == dialectSQLite {
			return nil, fmt.Errorf("the stock strategy %q locks rows, which SQLite cannot; use %q or %q", name, StockConditional, StockOptimistic)
		}
		return pessimisticStock{d.dialect, d.dialect.sql("stock_pessimistic")}, nil
	default:
		return nil, fmt.Errorf("there is no stock strategy %q; there are %q, %q and %q", name, StockConditional, StockPessimistic, StockOptimistic)
	}
}

// readVouchers reads rows without a lock.
func readVouchers(query *gorm.DB, ids []string) (map[string]voucherRow, error) {
	var rows []voucherRow
	if err := query.Where("id IN ?", ids).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("read vouchers: %w", err)
	}
	found := make(map[string]voucherRow, len(rows))
	for _, row := range rows {
		found[row.ID] = row
	}
	return found, nil
}

// selectVouchers begins a query of voucherRows.
func selectVouchers(tx *gorm.DB, d dialect) *gorm.DB {
	return tx.Table("vouchers").Select("vouchers.*, " + d.now + " AS server_time")
}

// selectForSale begins a query of voucherRows with the order mode, which stays
// locked: a call that changes it waits for this transaction, and a transaction that
// comes later sees the change.
func selectForSale(tx *gorm.DB, d dialect) *gorm.DB {
	return tx.Table("vouchers").Select("vouchers.*, " + d.now + " AS server_time, " + d.mode() + " AS order_mode")
}

// conditionalStock is StockConditional.
type conditionalStock struct {
	dialect dialect
	update  string
}

func (s conditionalStock) read(tx *gorm.DB, ids []string) (map[string]voucherRow, error) {
	return readVouchers(selectForSale(tx, s.dialect), ids)
}

func (s conditionalStock) take(tx *gorm.DB, v voucherRow, units int64, exhausting bool) (bool, error) {
	most := int64(math.MaxInt64)
	if exhausting {
		// An order is refused with SOLD_OUT, which must be true: nothing may remain, also
		// when an administrator adds units between our reading and our UPDATE.
		most = units
	}
	done := tx.Exec(s.update, units, v.ID, units, most, v.Revision)
	return done.RowsAffected == 1, done.Error
}

// pessimisticStock is StockPessimistic.
type pessimisticStock struct {
	dialect dialect
	update  string
}

func (s pessimisticStock) read(tx *gorm.DB, ids []string) (map[string]voucherRow, error) {
	mode, _, err := lockMode(tx, s.dialect) // before the vouchers, as in every transaction
	if err != nil {
		return nil, err
	}
	found := make(map[string]voucherRow, len(ids))
	for _, id := range ids { // one by one, so that the order of the locks is not the optimizer's
		began := time.Now()
		row, err := lockVoucher(tx, s.dialect, id)
		if errors.Is(err, gorm.ErrRecordNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock voucher %s: %w", id, heldOf(id, err))
		}
		row.OrderMode, row.waited = mode, time.Since(began)
		found[id] = row
	}
	return found, nil
}

func (s pessimisticStock) take(tx *gorm.DB, v voucherRow, units int64, _ bool) (bool, error) {
	done := tx.Exec(s.update, units, v.ID, units)
	if done.Error == nil && done.RowsAffected != 1 {
		return false, fmt.Errorf("take %d of voucher %s: the locked row has changed", units, v.ID)
	}
	return true, done.Error
}

// optimisticStock is StockOptimistic.
type optimisticStock struct {
	dialect dialect
	update  string
}

func (s optimisticStock) read(tx *gorm.DB, ids []string) (map[string]voucherRow, error) {
	return readVouchers(selectForSale(tx, s.dialect), ids)
}

func (s optimisticStock) take(tx *gorm.DB, v voucherRow, units int64, _ bool) (bool, error) {
	done := tx.Exec(s.update, units, v.ID, v.Version, units)
	if done.Error == nil && done.RowsAffected != 1 {
		return false, fmt.Errorf("take %d of voucher %s: %w", units, v.ID, errContended)
	}
	return true, done.Error
}
