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
	dialect sqldb.Dialect
	// locks has the rows locked before they are read.
	locks bool
	// relies adds to the UPDATE what must still be as it was read.
	relies func(is condition, takings []taking)
	// contended is the error of a taking that has changed no row; nil: the voucher is to be read again.
	contended func(t taking) error
}

// condition adds a column that must be, or becomes, what each taking has for it.
type condition func(column string, value func(taking) any)

// stockOf fails when there is no such strategy, or the database cannot do what it asks for.
func stockOf(d *sqldb.Database, strategy model.StockStrategy) (stock, error) {
	const conditional, pessimistic, optimistic = model.StockConditional, model.StockPessimistic, model.StockOptimistic
	switch {
	case strategy == conditional:
		return stock{dialect: d.Dialect, relies: onRevision, contended: readAgain}, nil
	case strategy == optimistic:
		return stock{dialect: d.Dialect, relies: onVersion, contended: beginAgain}, nil
	case strategy == pessimistic && d.Dialect.Name == sqldb.SQLite:
		return stock{}, fmt.Errorf("the stock strategy %q locks rows, which SQLite cannot; use %q or %q", strategy, conditional, optimistic)
	case strategy == pessimistic:
		// Nothing can have changed. That enough remains is asked all the same: it keeps a bug from selling what is not there.
		return stock{dialect: d.Dialect, locks: true, relies: func(condition, []taking) {}, contended: lockedChanged}, nil
	default:
		return stock{}, fmt.Errorf("there is no stock strategy %q; there are %q, %q and %q", strategy, conditional, pessimistic, optimistic)
	}
}

// onRevision stands for all that administrators and rebuilds decide. An order is refused with SOLD_OUT, which must be true:
// nothing may remain, also when an administrator adds units between our reading and our UPDATE.
func onRevision(is condition, takings []taking) {
	is(" AND revision =", func(t taking) any { return t.voucher.Revision })
	if slices.ContainsFunc(takings, func(t taking) bool { return t.exhausted }) {
		is(" AND remaining <=", taking.most)
	}
}

func onVersion(is condition, _ []taking) {
	is(" AND version =", func(t taking) any { return t.voucher.Version })
}

// readAgain is right under READ COMMITTED: the next reading sees what got in between.
func readAgain(taking) error { return nil }

func beginAgain(t taking) error {
	return fmt.Errorf("take %d of voucher %s: %w", t.units, t.voucher.ID, sqldb.ErrContended)
}

func lockedChanged(t taking) error {
	return fmt.Errorf("take %d of voucher %s: the locked row has changed", t.units, t.voucher.ID)
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
	if !s.locks {
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
	s.relies(is, takings)
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
