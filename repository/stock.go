package repository

import (
	"cmp"
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

// voucherRow is a voucher, its hot copy's epochs, and the database's clock when it was read.
type voucherRow struct {
	model.Voucher `gorm:"embedded"`
	CopyEpoch     int64
	CopyOpenEpoch int64
	CopyBarrier   *int64
	Now           clock `gorm:"column:server_time"`
	// Places is the last given place of the waitlist, PlacesServed the last that became an order.
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
	locks   bool
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
	s := stock{dialect: d.Dialect}
	failed := func(t taking, err error) error {
		return fmt.Errorf("take %d of voucher %s: %w", t.units, t.voucher.ID, err)
	}
	switch {
	case strategy == conditional:
		s.relies = onRevision
		// Under READ COMMITTED the next reading sees what got in between.
		s.contended = func(taking) error { return nil }
	case strategy == optimistic:
		s.relies = func(is condition, _ []taking) { is(" AND version =", func(t taking) any { return t.voucher.Version }) }
		s.contended = func(t taking) error { return failed(t, sqldb.ErrContended) }
	case strategy == pessimistic && d.Dialect.Name == sqldb.SQLite:
		return s, fmt.Errorf("the stock strategy %q locks rows, which SQLite cannot; use %q or %q", strategy,
			conditional, optimistic)
	case strategy == pessimistic:
		// Nothing can have changed. That enough remains is asked all the same: it keeps a bug from selling what is not there.
		s.locks, s.relies = true, func(condition, []taking) {}
		s.contended = func(t taking) error { return failed(t, errors.New("the locked row has changed")) }
	default:
		return s, fmt.Errorf("there is no stock strategy %q; there are %q, %q and %q", strategy, conditional,
			pessimistic, optimistic)
	}
	return s, nil
}

// onRevision stands for what administrators and rebuilds decide: SOLD_OUT must be true while units are added.
func onRevision(is condition, takings []taking) {
	is(" AND revision =", func(t taking) any { return t.voucher.Revision })
	if slices.ContainsFunc(takings, func(t taking) bool { return t.exhausted }) {
		is(" AND remaining <=", taking.most)
	}
}

func selectVouchers(tx *gorm.DB, d sqldb.Dialect) *gorm.DB {
	return tx.Table("vouchers").Select("vouchers.*, " + d.Now + " AS server_time")
}

// read gives vouchers' rows by id without absent ones, and the locked order mode. Rows are locked by id.
func (s stock) read(tx *gorm.DB, ids []string) (map[string]voucherRow, error) {
	found := make(map[string]voucherRow, len(ids))
	if !s.locks {
		var rows []voucherRow
		mode := orderMode(s.dialect) // locked: a change of it comes before or after this
		if err := tx.Table("vouchers").Select("vouchers.*, "+s.dialect.Now+" AS server_time, "+mode+" AS order_mode").
			Where("id IN ?", ids).Find(&rows).Error; err != nil {
			return nil, fmt.Errorf("read vouchers: %w", err)
		}
		for _, row := range rows {
			found[row.ID] = row
		}
		return found, nil
	}
	mode, _, err := lockMode(tx, s.dialect) // before the vouchers, as in every transaction
	if err != nil {
		return nil, err
	}
	for _, id := range ids { // one by one, so that the order of the locks is not the optimizer's
		began := time.Now()
		row, err := lockVoucher(tx, s.dialect, id)
		if model.CodeOf(err) == model.CodeNotFound {
			continue
		}
		if err != nil {
			return nil, heldOf(id, err)
		}
		row.OrderMode, row.waited = mode, time.Since(began)
		found[id] = row
	}
	return found, nil
}

type taking struct {
	voucher   voucherRow
	units     int64
	exhausted bool // an order was refused because nothing else remains
}

func (t taking) most() any {
	if t.exhausted {
		return t.units
	}
	return int64(math.MaxInt64)
}

// take takes units, by voucher id, and locks rows to COMMIT. Rows that changed or lack units stay; others may be taken.
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

type terms struct {
	window time.Duration   // for payment, unless the voucher says another
	mode   model.OrderMode // in which units may be taken
	db     *sqldb.Database // whose Codes free orders get
}

// windowOf is how long an order of a voucher made now stays unpaid.
func (t terms) windowOf(v voucherRow) time.Duration {
	return cmp.Or(time.Duration(v.PaymentWindow), t.window)
}

type ruling struct {
	outcomes  []model.Outcome // one for each order, in their order
	rows      []model.Order   // to be inserted
	units     int64           // to be taken, one for each live row
	exhausted bool            // an order was refused because nothing else remains
}

type judge struct {
	terms   terms
	voucher *voucherRow // nil: there is none
	byID    map[string]*model.Order
	byUser  map[string]*model.Order // live ones
	ruling  ruling
}

// rule decides one voucher's orders. Existing orders are read after it: the taker of the last unit is there.
func rule(orders []model.Reservation, voucher *voucherRow, existing []model.Order, terms terms) ruling {
	most := len(existing) + len(orders)
	j := judge{
		terms: terms, voucher: voucher,
		byID: make(map[string]*model.Order, most), byUser: make(map[string]*model.Order, most),
		// With room for all, so that no row moves while the maps point to it.
		ruling: ruling{outcomes: make([]model.Outcome, 0, len(orders)), rows: make([]model.Order, 0, len(orders))},
	}
	for i := range existing {
		row := &existing[i]
		j.byID[row.ID] = row
		if row.Live() && len(orders) > 0 && row.VoucherID == orders[0].VoucherID {
			j.byUser[row.UserID] = row
		}
	}
	for _, order := range orders {
		j.ruling.outcomes = append(j.ruling.outcomes, j.decide(order))
	}
	return j.ruling
}

// decide has the refusals and their precedence: existing id, NOT_FOUND, ENDED, PAUSED, NOT_STARTED, superseded,
// ALREADY_ORDERED, UNAVAILABLE, COOLING_DOWN, SOLD_OUT. A reservation was promised an order: its refusal is a row.
func (j *judge) decide(order model.Reservation) model.Outcome {
	if row, ok := j.byID[order.ID]; ok {
		return j.existing(order, *row)
	}
	if j.voucher == nil {
		return model.Outcome{Err: model.NotFound("voucher")}
	}
	if order.CreatedAt.IsZero() {
		voucher := &j.voucher.Voucher
		if order.Early {
			voucher = new(voucher.ForEarly())
		}
		if refusal := voucher.Refusal(j.voucher.Now.Time); refusal != nil {
			return model.Outcome{Err: refusal}
		}
	}
	reserved := order.Epoch > 0
	if reserved && j.voucher.superseded(order) {
		if !j.voucher.dropped(order) {
			return model.Outcome{Err: model.Unavailable("The order's hot copy was replaced.", model.ErrCopyReplaced)}
		}
		return j.insert(order, model.ReasonSuperseded)
	}
	if other, ok := j.byUser[order.UserID]; ok {
		if reserved {
			return j.insert(order, model.ReasonAlreadyOrdered)
		}
		return model.Outcome{Err: model.AlreadyOrdered(*other)}
	}
	if j.voucher.OrderMode != j.terms.mode {
		return model.Outcome{Err: otherMode(j.voucher.OrderMode)}
	}
	if wait := j.voucher.cooling[order.UserID]; !reserved && wait.Until.After(j.voucher.Now.Time) {
		return model.Outcome{Err: model.CoolingDown(wait.Until.Time, j.voucher.Now.Time)}
	}
	if j.ruling.units >= j.voucher.Remaining {
		j.ruling.exhausted = true
		if reserved {
			return j.insert(order, model.ReasonSoldOut)
		}
		return model.Outcome{Err: model.SoldOut()}
	}
	return j.insert(order, "")
}

// existing answers with the row that has the order's id, whatever became of it.
func (j *judge) existing(order model.Reservation, row model.Order) model.Outcome {
	if row.VoucherID != order.VoucherID || !row.IsOf(order.UserID) {
		return model.Outcome{Err: model.Conflict("The order's id belongs to another order.")}
	}
	return model.Outcome{Order: row}
}

// insert makes the order's row; with a reason it has failed.
func (j *judge) insert(order model.Reservation, reason string) model.Outcome {
	made := newRow(order, j.voucher, j.terms.windowOf(*j.voucher))
	if reason != "" {
		fail(&made, reason, j.voucher.Now.Time)
	} else if err := payFree(j.terms.db, &made); err != nil {
		return model.Outcome{Err: err}
	}
	j.ruling.rows = append(j.ruling.rows, made)
	row := &j.ruling.rows[len(j.ruling.rows)-1]
	if reason == "" {
		j.byUser[row.UserID] = row
		j.ruling.units++
	}
	j.byID[row.ID] = row
	return model.Outcome{Order: *row, Created: true}
}

// superseded: the admitting hot copy was replaced before. An epoch unknown here is a backup's: its stock decides.
func (r *voucherRow) superseded(order model.Reservation) bool {
	switch {
	case order.Epoch >= r.CopyEpoch:
		return false
	case order.Epoch == r.CopyOpenEpoch:
		return r.CopyBarrier != nil && order.Sequence > uint64(*r.CopyBarrier) //nolint:gosec // stored by SetBarrier, never negative
	default:
		return true
	}
}

// dropped says that no later hot copy will hold a superseded order: a rebuild takes over reservations of the copy
// opened last, and that one has it not. Until something answers for that copy, the order may still be among them.
func (r *voucherRow) dropped(order model.Reservation) bool {
	return order.Absent != nil && *order.Absent == r.CopyOpenEpoch
}

// newRow is an order with a unit, unpaid from now by the database's clock, at the price of its hot copy or voucher.
func newRow(order model.Reservation, voucher *voucherRow, window time.Duration) model.Order {
	now := stored(voucher.Now.Time)
	expires := now.Add(window)
	row := model.Order{
		ID: order.ID, VoucherID: order.VoucherID, UserID: order.UserID,
		Status: model.OrderUnpaid, Price: voucher.Price, Currency: voucher.Currency,
		CreatedAt: now, UnpaidAt: &now, ExpiresAt: &expires,
	}
	if !order.CreatedAt.IsZero() {
		row.CreatedAt = stored(order.CreatedAt)
	}
	if order.Epoch > 0 && order.Currency != "" {
		row.Price, row.Currency = order.Price, order.Currency
	}
	return row
}

// payFree makes a new order that costs nothing paid, with its code. UNAVAILABLE: this server makes no codes.
func payFree(db *sqldb.Database, row *model.Order) error {
	switch {
	case row.Price > 0:
		return nil
	case db.Codes == nil:
		return model.Unavailable("What costs nothing gets its code where it is made: set SECKILL_CODE_KEY.", nil)
	}
	code := db.Codes(row.ID)
	row.Status, row.PaidAt, row.ExpiresAt = model.OrderPaid, row.UnpaidAt, nil
	row.SealedCode, row.CodeHash = string(code.Sealed), string(code.Hash)
	return nil
}

func fail(row *model.Order, reason string, now time.Time) {
	closed := stored(now)
	row.Status, row.Reason, row.ClosedAt = model.OrderFailed, reason, &closed
	row.UnpaidAt, row.ExpiresAt = nil, nil
}
