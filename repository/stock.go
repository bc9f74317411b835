package repository

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
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
	// Places is the last place of the waitlist that was given, and PlacesServed the last one that became an order: the places behind it
	// wait, as many as Waiting says.
	Places, PlacesServed int64
	// OrderMode is how the database is sold from; only the transactions that take units read it.
	OrderMode model.OrderMode `gorm:"column:order_mode"`
	// waited is how long the lock on the row took, where it is locked.
	waited time.Duration
	// cooling are the users who wait, or have waited, before another order; only transactions that ask for it read it.
	cooling map[string]cooled
}

// view is the voucher as of the instant at which it was read.
func (r voucherRow) view() model.Voucher { return r.At(r.Now.Time) }

// stock reads vouchers and takes units of them, in the way of its strategy.
type stock struct {
	dialect  sqldb.Dialect
	strategy StockStrategy
}

func stockOf(d *sqldb.Database, strategy StockStrategy) (stock, error) {
	switch {
	case strategy == StockPessimistic && d.Dialect.Name == sqldb.SQLite:
		return stock{}, fmt.Errorf("the stock strategy %q locks rows, which SQLite cannot; use %q or %q", strategy, StockConditional, StockOptimistic)
	case strategy == StockConditional || strategy == StockOptimistic || strategy == StockPessimistic:
		return stock{d.Dialect, strategy}, nil
	default:
		return stock{}, fmt.Errorf("there is no stock strategy %q; there are %q, %q and %q", strategy, StockConditional, StockPessimistic, StockOptimistic)
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
func selectVouchers(tx *gorm.DB, d sqldb.Dialect) *gorm.DB {
	return tx.Table("vouchers").Select("vouchers.*, " + d.Now + " AS server_time")
}

// selectForSale begins a query of voucherRows with the order mode, which stays
// locked: a call that changes it waits for this transaction, and a transaction that
// comes later sees the change.
func selectForSale(tx *gorm.DB, d sqldb.Dialect) *gorm.DB {
	return tx.Table("vouchers").Select("vouchers.*, " + d.Now + " AS server_time, " + orderMode(d) + " AS order_mode")
}

// read gives the rows of vouchers by id, with the order mode, which is locked against changes;
// absent ones are left out. If it locks rows, it locks them in the order of ids.
func (s stock) read(tx *gorm.DB, ids []string) (map[string]voucherRow, error) {
	if s.strategy != StockPessimistic {
		return readVouchers(selectForSale(tx, s.dialect), ids)
	}
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

// taking is to take units of a voucher that was read, also when there are none to take.
type taking struct {
	voucher   voucherRow
	units     int64
	exhausted bool // an order was refused because nothing else remains
}

// most is how many units may remain.
func (t taking) most() any {
	if t.exhausted {
		return t.units
	}
	return int64(math.MaxInt64)
}

// contended is the error of a taking that has changed no row; nil: the voucher is to be read again.
func (s stock) contended(t taking) error {
	switch s.strategy {
	case StockPessimistic:
		return fmt.Errorf("take %d of voucher %s: the locked row has changed", t.units, t.voucher.ID)
	case StockOptimistic:
		return fmt.Errorf("take %d of voucher %s: %w", t.units, t.voucher.ID, sqldb.ErrContended)
	case StockConditional: // READ COMMITTED: the next reading sees what got in between
	}
	return nil
}

// take takes units of vouchers, in the order of their ids, and locks their rows from here to COMMIT. It reports how many rows
// were changed: one that is not as it was read, or has fewer units, is not. Then some may have been taken.
func (s stock) take(tx *gorm.DB, takings ...taking) (changed int64, err error) {
	var text strings.Builder
	var args []any
	is := func(column string, value func(taking) any) {
		if len(takings) == 1 {
			text.WriteString(column + " ?")
			args = append(args, value(takings[0]))
			return
		}
		text.WriteString(column + " CASE id" + strings.Repeat(" WHEN ? THEN ?", len(takings)) + " END")
		for _, t := range takings {
			args = append(args, t.voucher.ID, value(t))
		}
	}
	units := func(t taking) any { return t.units }
	text.WriteString("UPDATE vouchers" + s.dialect.ByPrimaryKey + " SET ")
	is("remaining = remaining -", units)
	text.WriteString(", version = version + 1 WHERE id IN (?" + strings.Repeat(", ?", len(takings)-1) + ")")
	for _, t := range takings {
		args = append(args, t.voucher.ID)
	}
	is(" AND remaining >=", units)
	switch s.strategy {
	case StockConditional: // the revision stands for all that administrators and rebuilds decide
		is(" AND revision =", func(t taking) any { return t.voucher.Revision })
		// An order is refused with SOLD_OUT, which must be true: nothing may remain, also
		// when an administrator adds units between our reading and our UPDATE.
		if slices.ContainsFunc(takings, func(t taking) bool { return t.exhausted }) {
			is(" AND remaining <=", taking.most)
		}
	case StockOptimistic:
		is(" AND version =", func(t taking) any { return t.voucher.Version })
	case StockPessimistic: // nothing can have changed; what stands before keeps a bug from selling what is not there
	}
	result, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, text.String(), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// heldOf names the voucher whose row a transaction waited for for too long.
func heldOf(voucherID string, err error) error {
	if !sqldb.LockWait(err) {
		return err
	}
	return &model.HeldError{VoucherID: voucherID, Cause: err}
}
