package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/model"
	"seckill/repository/sqldb"
)

const (
	rereads    = 5   // how often a transaction reads a changing voucher again, before it begins anew after a pause
	rowsAtOnce = 500 // in one INSERT: about 100 KiB, below max_allowed_packet and SQLite's limit of parameters
	// After a duplicate, readFirst transactions look for rows first: users who ask again would mostly meet another.
	readFirst   = 32
	takenAtOnce = 100 // vouchers that one statement takes units of: it compares each row with each of them
	// After a slow statement for many, slowly transactions take voucher by voucher: that tells whose row was held.
	slowly = 32
)

// errTogether marks a failure of one statement for many vouchers; each is then tried by itself.
var errTogether = errors.New("taken together")

// CreateOrders makes orders unpaid, or paid if free, in one transaction that takes as many units, and says of each, in
// their order, what became of it. Earlier orders of the slice are served first; of several with one id, or of one user
// for one voucher, the first counts.
//
// An order with a zero CreatedAt is admitted or refused here, by the database's clock and the voucher's state. One with
// a CreatedAt was admitted then, and is not asked again.
//
// Victims of other transactions run again within sqldb.Database.Budget. One that waits for a row too long does not,
// because it holds up the batch's other vouchers: the error wraps a *model.HeldError, with the voucher if known. A
// COMMIT without an answer is decided by inserting the same ids again until ctx ends, which must have an end; then the
// error wraps model.ErrUnknownOutcome. After any other error nothing has happened.
func (o *Orders) CreateOrders(ctx context.Context, orders []model.Order) ([]model.Outcome, error) {
	if len(orders) == 0 {
		return nil, nil
	}
	b := make([]model.Reservation, len(orders))
	for i, order := range orders {
		b[i].Order = order
	}
	return o.commit(ctx, "create", newBatch(b, identified))
}

func (o *Orders) commit(ctx context.Context, verb string, b *batch) ([]model.Outcome, error) {
	ctx, group := o.db.Trace.Reservations(ctx, "commit", b.orders)
	outcomes, err := o.decide(ctx, b)
	if err != nil {
		outcomes, err = nil, sqldb.Named(fmt.Sprintf("%s %d orders, the first %s", verb, len(b.orders), b.orders[0].ID),
			err)
	}
	group.End(err, func(i int) error { return outcomes[i].Err })
	return outcomes, err
}

func (o *Orders) decide(ctx context.Context, b *batch) ([]model.Outcome, error) {
	deadline := time.Now().Add(o.db.Budget())
	b.blind = o.readFirst.Add(-1) < 0
	b.singly = len(b.vouchers) == 1 || o.slowly.Add(-1) >= 0
	var lost error // once a COMMIT got no answer
	for n := 0; ; n++ {
		outcomes, rows, err := o.attempt(ctx, deadline, b)
		if err == nil {
			return outcomes, nil
		}
		if errors.Is(err, sqldb.ErrLost) {
			for _, row := range rows {
				b.doubtful[row.ID] = row.CreatedAt
			}
			lost = err
		}
		if lost == nil && !sqldb.Repeatable(err) {
			return nil, err
		}
		if errors.Is(err, errTogether) {
			b.singly = true
			continue
		}
		if lost == nil && sqldb.LockWait(err) {
			return nil, b.held(err)
		}
		if b.blind && sqldb.Duplicate(err) { // nobody else was in the way
			o.readFirst.Store(readFirst)
			b.blind = false
			continue
		}
		b.blind = false
		if lost != nil {
			// From here on only the caller's patience counts: giving up leaves the buyer in doubt about the order.
			deadline = time.Now().Add(o.db.Budget())
		}
		if sqldb.Pause(ctx, n) != nil || !time.Now().Before(deadline) {
			if lost != nil {
				return nil, fmt.Errorf("%w; last tried: %w", lost, err)
			}
			return nil, err
		}
	}
}

func (o *Orders) attempt(ctx context.Context, deadline time.Time, b *batch) ([]model.Outcome, []model.Order, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	w := writing{orders: o, batch: b}
	err := o.db.Transaction(ctx, w.run)
	if errors.Is(err, sqldb.ErrNothingToWrite) {
		return w.outcomes, nil, nil
	}
	if err == nil {
		failpoint.Reach(failpoint.AfterCommit)
	}
	return w.outcomes, w.rows, err
}

type writing struct {
	orders   *Orders
	batch    *batch
	tx       *gorm.DB
	outcomes []model.Outcome
	rows     []model.Order
	together []taking // of decided orders, which one statement is to do
}

func (w *writing) run(tx *gorm.DB) error {
	w.tx, w.outcomes, w.rows, w.together = tx, make([]model.Outcome, len(w.batch.orders)), nil, nil
	for i, refusal := range w.batch.refused {
		w.outcomes[i].Err = refusal
	}
	vouchers, err := w.orders.stock.read(tx, w.batch.vouchers)
	if err != nil {
		return err
	}
	for _, id := range w.batch.vouchers { // whose rows are locked in this order
		if err := w.serve(id, vouchers); err != nil {
			return err
		}
	}
	if err := w.take(); err != nil {
		return err
	}
	if len(w.rows) == 0 {
		return sqldb.ErrNothingToWrite
	}
	failpoint.Reach(failpoint.BeforeInsert)
	if err := insert(tx, w.orders.db, w.rows); err != nil {
		return err
	}
	failpoint.Reach(failpoint.AfterInsert)
	failpoint.Reach(failpoint.BeforeCommit) // nothing but the COMMIT follows
	return nil
}

// serve decides the orders of one voucher. Where every one gets a unit, a shared statement takes them later.
func (w *writing) serve(id string, vouchers map[string]voucherRow) error {
	orders := w.batch.of(id)
	row, there := vouchers[id]
	blind := w.batch.blind && !row.askedToCool(orders)
	if w.batch.blind && !w.batch.singly && there {
		if r := rule(orders, &row, nil, w.orders.terms); blind && r.units == int64(len(orders)) {
			w.together = append(w.together, taking{voucher: row, units: r.units})
			w.decided(id, r, row.waited)
			return nil
		}
		if err := w.take(); err != nil {
			return err
		}
	}
	began := time.Now().Add(-row.waited)
	r, err := w.orders.serve(w.tx, orders, id, vouchers, blind)
	if err != nil {
		return heldOf(id, err)
	}
	w.decided(id, r, time.Since(began))
	return nil
}

func (w *writing) decided(id string, r ruling, waited time.Duration) {
	for j, i := range w.batch.members[id] {
		outcome := r.outcomes[j]
		outcome.Waited = waited
		if _, ours := w.batch.doubtful[outcome.Order.ID]; ours && outcome.Err == nil {
			outcome.Created = true // by an earlier attempt, which was committed without hearing so
		}
		w.outcomes[i] = outcome
	}
	w.rows = append(w.rows, r.rows...)
}

func (w *writing) take() error {
	for takings := range slices.Chunk(w.together, takenAtOnce) {
		began := time.Now()
		changed, err := w.orders.stock.take(w.tx, takings...)
		if err == nil && changed != int64(len(takings)) {
			err = sqldb.ErrContended
		}
		if err != nil {
			return fmt.Errorf("%w, of %d vouchers: %w", errTogether, len(takings), err)
		}
		if !w.batch.queued && time.Since(began) > budget.Glance {
			w.orders.slowly.Store(slowly)
		}
	}
	w.together = nil
	return nil
}

// insert writes orders, their events, and for those that have failed that their units come back to the hot copy.
func insert(tx *gorm.DB, db *sqldb.Database, rows []model.Order) error {
	slices.SortFunc(rows, func(a, b model.Order) int { // so that two transactions never wait for each other crosswise
		return cmp.Or(cmp.Compare(a.VoucherID, b.VoucherID), cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.ID, b.ID))
	})
	if err := insertOrders(tx, rows); err != nil {
		return err
	}
	var back []model.Release
	for _, row := range rows {
		if row.Status == model.OrderFailed {
			back = append(back, row.Release())
		}
	}
	if err := insertReleases(tx, back); err != nil {
		return err
	}
	return announceOrders(db, tx, rows, born(rows))
}

// serve decides about the orders of one voucher and takes their units.
//
// Blindly, it does not look for existing rows while every order gets a unit: ids with a row, and users with a live
// order, are duplicates to the INSERT. The transaction then begins again, and looks.
func (o *Orders) serve(
	tx *gorm.DB, orders []model.Reservation, id string, vouchers map[string]voucherRow, blind bool,
) (ruling, error) {
	for range rereads {
		var voucher *voucherRow
		if row, ok := vouchers[id]; ok {
			voucher = &row
		}
		if voucher.askedToCool(orders) {
			if err := o.cool(tx, voucher, orders); err != nil {
				return ruling{}, err
			}
		}
		var r ruling
		if blind {
			r = rule(orders, voucher, nil, o.terms)
		}
		if r.units < int64(len(orders)) {
			existing, err := o.existing(tx, orders, id)
			if err != nil {
				return ruling{}, err
			}
			r = rule(orders, voucher, existing, o.terms)
		}
		if len(r.rows) == 0 {
			return r, nil
		}
		units := taking{*voucher, r.units, r.exhausted}
		taken, err := o.stock.take(tx, units)
		if err != nil {
			return ruling{}, fmt.Errorf("take %d of voucher %s: %w", r.units, id, err)
		}
		if taken == 1 {
			return r, nil
		}
		if err := o.stock.contended(units); err != nil {
			return ruling{}, err
		}
		if vouchers, err = o.stock.read(tx, []string{id}); err != nil {
			return ruling{}, err
		}
	}
	return ruling{}, fmt.Errorf("take of voucher %s: %w", id, sqldb.ErrContended)
}

// askedToCool reports whether some orders are refused to cooling users. One admitted by a hot copy is not.
func (r *voucherRow) askedToCool(orders []model.Reservation) bool {
	return r != nil && r.Cooldown > 0 && slices.ContainsFunc(orders,
		func(order model.Reservation) bool { return order.Epoch == 0 })
}

// cool locks the voucher's row to COMMIT, then reads until when users wait: a read before could miss a closed order.
func (o *Orders) cool(tx *gorm.DB, voucher *voucherRow, orders []model.Reservation) error {
	row, err := lockVoucher(tx, o.db.Dialect, voucher.ID)
	if err != nil {
		return err
	}
	row.OrderMode, row.waited = voucher.OrderMode, voucher.waited
	*voucher = row
	users := make([]string, len(orders))
	for i, order := range orders {
		users[i] = order.UserID
	}
	voucher.cooling, err = coolingOf(tx, o.db.Dialect, voucher.ID, users)
	return err
}

func (o *Orders) existing(tx *gorm.DB, orders []model.Reservation, voucherID string) ([]model.Order, error) {
	var rows []model.Order
	err := parted(orders, func(some []model.Reservation) error {
		ids := make([]string, len(some))
		users := make([]string, len(some))
		for i, order := range some {
			ids[i], users[i] = order.ID, order.UserID
		}
		var found []model.Order
		err := tx.Raw(sqlOf(o.db.Dialect, "order_existing"), ids, voucherID, users).Scan(&found).Error
		rows = append(rows, found...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read existing orders of voucher %s: %w", voucherID, err)
	}
	return rows, nil
}

// insertOrders is a plain INSERT: what the schema refuses is an error, never dropped, cut or merged.
func insertOrders(tx *gorm.DB, rows []model.Order) error {
	args := insertOrder.room(len(rows))
	var codes, instants []any // of orders that are paid or closed where they are made
	for i := range rows {
		r := &rows[i]
		var sealed any
		if r.CodeHash != "" {
			sealed, codes = []byte(r.SealedCode), append(codes, []byte(r.CodeHash), r.ID)
		}
		instants = gained(instants, model.Order{}, *r)
		args = append(args, r.ID, r.VoucherID, r.UserID, string(r.Status), r.Reason, r.Price, r.Currency,
			r.CreatedAt, r.ExpiresAt, r.PaidAt, r.ClosedAt, r.UnpaidAt, sealed)
	}
	if err := insertOrder.rows(tx, args); err != nil {
		return err
	}
	if err := insertCode.rows(tx, codes); err != nil {
		return err
	}
	return insertInstant.rows(tx, instants)
}

const insertOrder insertion = "INSERT INTO orders (id, voucher_id, user_id, status, reason, price, currency, " +
	"created_at, expires_at, paid_at, closed_at, unpaid_at, sealed_code) VALUES "

const insertCode insertion = "INSERT INTO order_codes (code_hash, order_id) VALUES "

// insertion is a statement up to its rows, written out: learning by reflection what a row has costs as much as sending.
type insertion string

func (i insertion) columns() int { return strings.Count(string(i), ",") + 1 }

func (i insertion) room(rows int) []any { return make([]any, 0, rows*i.columns()) }

func (i insertion) rows(tx *gorm.DB, values []any) error {
	columns := i.columns()
	row := "(?" + strings.Repeat(", ?", columns-1) + ")"
	var store func(some []any) error // divided as parted does it, and without another slice of the values
	store = func(some []any) error {
		statement := string(i) + strings.Repeat(row+", ", len(some)/columns-1) + row
		_, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, statement, some...)
		half := len(some) / columns / 2 * columns
		if half == 0 || !sqldb.TooLarge(err) {
			return err
		}
		if err := store(some[:half]); err != nil {
			return err
		}
		return store(some[half:])
	}
	for some := range slices.Chunk(values, rowsAtOnce*columns) {
		if err := store(some); err != nil {
			return fmt.Errorf("%s %d rows: %w", i, len(values)/columns, err)
		}
	}
	return nil
}

// Persist turns reservations into orders in one transaction, and says of each, in their order, what became of it. It is
// CreateOrders for what a hot copy has promised: the window is not asked again, the price is the admission's, and an
// order without a unit becomes a `failed` row with a reason (and a release), an Outcome without an error. An id that
// has a row answers with that row, whatever became of it.
//
// Outcome.Err says that nothing was written for this one: NOT_FOUND (no such voucher), VALIDATION and CONFLICT (no row
// can hold it), UNAVAILABLE (another order mode; or, with model.ErrCopyReplaced, the last opened copy must be asked).
// The error for all is CreateOrders', or wraps model.ErrDataRefused for some order's data: smaller batches find which.
func (o *Orders) Persist(ctx context.Context, reservations []model.Reservation) ([]model.Outcome, error) {
	if len(reservations) == 0 {
		return nil, nil
	}
	b := newBatch(reservations, admitted)
	b.queued = true
	return o.commit(ctx, "persist", b)
}

const currencyLength = 3

// batch is what one call of CreateOrders or Persist works on. Orders that no hot copy has admitted have the epoch 0.
type batch struct {
	orders   []model.Reservation
	blind    bool             // see serve
	singly   bool             // the units are taken of one voucher after the other
	queued   bool             // nobody waits for the answer
	refused  map[int]error    // by index: orders that cannot be stored at all
	vouchers []string         // sorted: the order in which they are locked
	members  map[string][]int // voucher → indexes into orders, in their order
	// doubtful orders went out with an unanswered COMMIT, by their admission: only inserting again tells if they exist.
	doubtful map[string]time.Time
}

func newBatch(orders []model.Reservation, check func(model.Reservation) error) *batch {
	b := &batch{
		orders:   orders,
		refused:  map[int]error{},
		members:  map[string][]int{},
		doubtful: map[string]time.Time{},
	}
	for i, order := range orders {
		// One order that the columns would refuse must not take the others down.
		if err := check(order); err != nil {
			b.refused[i] = err
			continue
		}
		b.members[order.VoucherID] = append(b.members[order.VoucherID], i)
	}
	for id := range b.members {
		b.vouchers = append(b.vouchers, id)
	}
	slices.Sort(b.vouchers)
	return b
}

// identified refuses an order that no row can be made for.
func identified(order model.Reservation) error {
	switch {
	case !model.ValidID(order.ID):
		return model.Invalid("order.id", "is not an id")
	case !model.ValidUserID(order.UserID):
		return model.Invalid("order.user_id", "is not a user's id")
	case !model.ValidID(order.VoucherID):
		return model.NotFound("voucher")
	}
	return nil
}

// admitted refuses what is no reservation, or one that no row can hold.
func admitted(order model.Reservation) error {
	switch {
	case order.Epoch <= 0:
		return model.Invalid("order.epoch", "must be positive")
	case !model.StorableTime(order.CreatedAt):
		return model.Invalid("order.created_at", "is no time that can be stored")
	case order.Currency != "" && len(order.Currency) != currencyLength:
		return model.Invalid("order.currency", "is no currency")
	case order.Price < 0 || order.Price > model.MaxAmount:
		return model.Invalid("order.price", "must be between 0 and %d", int64(model.MaxAmount))
	}
	return identified(order)
}

func (b *batch) of(voucherID string) []model.Reservation {
	if len(b.vouchers) == 1 && len(b.refused) == 0 && len(b.doubtful) == 0 {
		return b.orders
	}
	members := make([]model.Reservation, 0, len(b.members[voucherID]))
	for _, i := range b.members[voucherID] {
		order := b.orders[i]
		if at, ok := b.doubtful[order.ID]; ok {
			order.CreatedAt = at
		}
		members = append(members, order)
	}
	return members
}

// held says that the batch has waited for a row for too long: that of its voucher, if it has one alone.
func (b *batch) held(err error) error {
	if _, named := errors.AsType[*model.HeldError](err); named {
		return err
	}
	voucherID := ""
	if len(b.vouchers) == 1 {
		voucherID = b.vouchers[0]
	}
	return &model.HeldError{VoucherID: voucherID, Cause: err}
}
