package repository

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

type statusChange struct {
	order  model.Order
	move   model.Transition
	actor  string
	reason string
	set    map[string]any
	// cools says that the order ends unpaid by its user, who then waits if the voucher has a cool-down.
	cools bool
	// until is when that ends; moveOrders finds it.
	until *time.Time
	// heir is the order that got the unit; moveOrders finds it, for a hot copy. It is empty when nobody waited.
	heir model.Order
	// before are the rows of the outbox of which the hot copy has to hear before it hears of the unit: who got others.
	before []model.Release
}

// saleRules say what becomes of a unit that comes back. They do not change once there is an order.
type saleRules struct {
	Cooldown   model.Window
	Waitlist   bool
	Withdrawal model.Window
}

// moveOrders makes every change of an order's status but its creation. It moves orders from the status they were found
// in, returns units or takes them off the stock, writes the history and the outbox, and returns the orders as they are
// then, in the order of changes. sqldb.ErrContended: an order is not any more what it was.
//
// It locks the order mode, the vouchers by id, the orders, and what is only inserted. A change that returns no unit
// locks no voucher, so that payments do not wait for buyers.
//
// Of orders whose time has passed the vouchers come last, right before the COMMIT: buyers wait a hundred microseconds,
// not for hundreds of orders. Every move of an order still locks in one order, because expiry moves no others. Only the
// INSERT of a buyer whose order expires now waits for it, holding the voucher: the server ends one, which is repeated.
//
// The clock is read after the orders: the instants of an order's history never go back.
func moveOrders(tx *gorm.DB, db *sqldb.Database, changes []statusChange) ([]model.Order, error) {
	d := db.Dialect
	back := map[string]int{} // voucher → units; 0: one that is used leaves the stock
	for _, c := range changes {
		if id := c.order.VoucherID; c.move.ReturnsUnit() {
			back[id]++
		} else if c.move.WritesOff() {
			back[id] += 0
		}
	}
	mode, now, rules, err := beginMove(tx, d, back)
	if err != nil {
		return nil, err
	}
	if err := withdrawable(changes, rules, now); err != nil {
		return nil, err
	}
	early := func(c statusChange) bool { return c.order.ExpiresAt == nil || c.order.ExpiresAt.After(now) }
	if slices.ContainsFunc(changes, early) {
		for _, id := range slices.Sorted(maps.Keys(back)) {
			if _, err := lockVoucher(tx, d, id); err != nil {
				return nil, err
			}
		}
	}
	for i, c := range changes {
		if c.move.Ends() && c.order.PaidAt != nil { // a use may have come and gone since the order and the clock were read
			if changes[i].order, err = take[model.Order](locked(tx), "order", c.order.ID); err == nil {
				now, err = readClock(tx, d)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if err := coolDown(tx, d, changes, rules, now); err != nil {
		return nil, err
	}
	if err := updateStatus(tx, d, changes, now); err != nil {
		return nil, err
	}
	orders, err := recordMoves(tx, db, mode, changes, rules, now)
	if err != nil {
		return nil, err
	}
	return orders, returnUnits(tx, db, mode, back, changes, rules)
}

// withdrawable refuses a buyer whose time to give an order back has passed, before anything is locked.
func withdrawable(changes []statusChange, rules map[string]saleRules, now time.Time) error {
	for _, c := range changes {
		if c.reason != model.RefundWithdrawn {
			continue
		}
		over := &model.Error{Code: model.CodeWithdrawalOver, Detail: "This voucher cannot be given back."}
		if lasts := rules[c.order.VoucherID].Withdrawal; lasts > 0 {
			over.Detail, over.Until = "The time to give it back has passed.", c.order.PaidAt.Add(time.Duration(lasts))
		}
		if !now.Before(over.Until) {
			return over
		}
	}
	return nil
}

func beginMove(
	tx *gorm.DB, d sqldb.Dialect, back map[string]int,
) (model.OrderMode, time.Time, map[string]saleRules, error) {
	if len(back) == 0 {
		now, err := readClock(tx, d)
		return "", now, nil, err
	}
	var rows []struct {
		ID        string
		Rules     saleRules       `gorm:"embedded"`
		Now       clock           `gorm:"column:server_time"`
		OrderMode model.OrderMode `gorm:"column:order_mode"`
	}
	ids := slices.Sorted(maps.Keys(back))
	err := tx.Raw("SELECT id, cooldown, waitlist, withdrawal, "+d.Now+" AS server_time, "+orderMode(d)+
		" AS order_mode FROM vouchers WHERE id IN ?", ids).Scan(&rows).Error
	if err == nil && len(rows) != len(ids) {
		err = gorm.ErrRecordNotFound
	}
	if err != nil {
		return "", time.Time{}, nil, fmt.Errorf("read the order mode and %d vouchers, the first %s: %w", len(ids),
			ids[0], err)
	}
	rules := make(map[string]saleRules, len(rows))
	for _, row := range rows {
		rules[row.ID] = row.Rules
	}
	return rows[0].OrderMode, stored(rows[0].Now.Time), rules, nil
}

// returnUnits gives units to those who wait, or puts them on sale; what was used leaves the stock. The UPDATE locks
// vouchers not locked yet.
func returnUnits(tx *gorm.DB, db *sqldb.Database, mode model.OrderMode, back map[string]int, changes []statusChange, rules map[string]saleRules) error {
	for _, id := range slices.Sorted(maps.Keys(back)) {
		returned, err := changesOf(changes, id, model.Transition.ReturnsUnit), error(nil)
		if off := len(changesOf(changes, id, model.Transition.WritesOff)); off > 0 {
			err = matched(tx.Exec("UPDATE vouchers SET stock = stock - ?, written_off = written_off + ?, version = version + 1"+
				" WHERE id = ?", off, off, id), 1)
		}
		if err == nil && back[id] > 0 {
			done := tx.Exec(sqlOf(db.Dialect, "stock_return"), back[id], id)
			if err = done.Error; err == nil && done.RowsAffected != 1 {
				err = handOver(tx, db, mode, id, back[id], returned)
			}
		}
		if err == nil && mode == model.ModeAsync && rules[id].Waitlist {
			err = tellHeirs(tx, db.Dialect, id, changesOf(changes, id, model.Transition.Ends))
		}
		if err != nil {
			return fmt.Errorf("return %d units of voucher %s: %w", back[id], id, err)
		}
	}
	return nil
}

func changesOf(changes []statusChange, voucherID string, is func(model.Transition) bool) (of []*statusChange) {
	for i := range changes {
		if c := &changes[i]; c.order.VoucherID == voucherID && is(c.move) {
			of = append(of, c)
		}
	}
	return of
}

// updateStatus moves like orders in one statement, which locks by primary key: the optimizer's index by status would
// lock others. Orders come before units: the slower of two transactions finds nothing to move.
func updateStatus(tx *gorm.DB, d sqldb.Dialect, changes []statusChange, now time.Time) error {
	ids, like := map[string][]string{}, map[string]statusChange{}
	for _, c := range changes {
		key := fmt.Sprintf("%s %s", c.move.From, c.move.To)
		if c.until != nil {
			key += c.until.UTC().Format(time.RFC3339Nano)
		}
		if c.set != nil {
			key += c.order.ID // alone
		}
		ids[key], like[key] = append(ids[key], c.order.ID), c
	}
	for _, key := range slices.Sorted(maps.Keys(ids)) {
		move, columns := like[key].move, map[string]any{}
		maps.Copy(columns, like[key].set)
		columns["status"] = move.To
		if move.Stamp != "" {
			columns[string(move.Stamp)] = now
		}
		if until := like[key].until; until != nil {
			columns["cooldown_until"] = until.UTC()
		}
		err := parted(ids[key], func(some []string) error {
			of := tx.Table("orders"+d.ByPrimaryKey).Where("id IN ? AND status = ?", some, move.From)
			return matched(of.Updates(columns), len(some))
		})
		if err != nil {
			return fmt.Errorf("move %d orders from %s to %s: %w", len(ids[key]), move.From, move.To, err)
		}
	}
	return nil
}

// recordMoves writes what follows from changes. sync has no hot copy; for a waitlist's see tellHeirs.
func recordMoves(tx *gorm.DB, db *sqldb.Database, mode model.OrderMode, changes []statusChange, rules map[string]saleRules, now time.Time) ([]model.Order, error) {
	orders := make([]model.Order, len(changes))
	history := insertHistory.room(len(changes))
	var instants []any
	var releases []model.Release
	for i, c := range changes {
		orders[i] = c.move.Apply(c.order, now)
		orders[i].CooldownUntil = cmp.Or(c.until, c.order.CooldownUntil)
		history = append(history, c.order.ID, now, string(c.move.From), string(c.move.To), c.actor, c.reason)
		instants = gained(instants, c.order, orders[i])
		if was := c.order.RedeemedAt; was != nil && orders[i].RedeemedAt == nil {
			if err := tx.Exec("DELETE FROM order_instants WHERE instant = ? AND at = ? AND order_id = ?",
				model.InstantRedeemed, *was, c.order.ID).Error; err != nil {
				return nil, fmt.Errorf("forget when order %s was used: %w", c.order.ID, err)
			}
		}
		if c.move.Ends() && mode == model.ModeAsync && !rules[c.order.VoucherID].Waitlist {
			releases = append(releases, orders[i].Release())
		}
	}
	if err := insertHistory.rows(tx, history); err != nil {
		return nil, err
	}
	if err := insertInstant.rows(tx, instants); err != nil {
		return nil, err
	}
	if err := insertReleases(tx, releases); err != nil {
		return nil, err
	}
	return orders, announceOrders(db, tx, orders, func(i int) (string, time.Time) { return changes[i].move.Event(), now })
}

const insertHistory insertion = "INSERT INTO order_history (order_id, moved_at, from_status, to_status, actor, reason) VALUES "

const insertInstant insertion = "INSERT INTO order_instants (instant, at, order_id) VALUES "

// gained appends the rows of order_instants that an order has after a change, and had not before.
func gained(rows []any, before, after model.Order) []any {
	for _, of := range []struct {
		instant model.OrderInstant
		was, is *time.Time
	}{
		{model.InstantPaid, before.PaidAt, after.PaidAt},
		{model.InstantRedeemed, before.RedeemedAt, after.RedeemedAt},
		{model.InstantClosed, before.ClosedAt, after.ClosedAt},
	} {
		if of.was == nil && of.is != nil {
			rows = append(rows, string(of.instant), *of.is, after.ID)
		}
	}
	return rows
}

// matched sends the transaction back to its beginning when an UPDATE did not find what had been read.
func matched(done *gorm.DB, rows int) error {
	if done.Error == nil && done.RowsAffected != int64(rows) {
		return sqldb.ErrContended
	}
	return done.Error
}

// history tells what happened to an order. Its creation has no row, because a new order must cost one row, not two: the
// order itself has the times when it was admitted and became unpaid or failed.
func history(order model.Order, moves []model.OrderMove) []model.OrderMove {
	for i, move := range moves {
		if *move.From == model.OrderUnpaid && move.To == model.OrderPaid {
			moves[i].Reason = order.PaidReference
		}
	}
	return append(creation(order), moves...)
}

func creation(order model.Order) []model.OrderMove {
	admitted := model.OrderMove{At: order.CreatedAt, To: model.OrderProcessing, By: order.UserID}
	processing, born := model.OrderProcessing, model.OrderUnpaid
	if order.ExpiresAt == nil && order.PaidAt != nil { // it was free
		born = model.OrderPaid
	}
	switch {
	case order.UnpaidAt == nil && order.Reason != "" && order.Reason != model.ReasonRefundFailed &&
		order.ClosedAt != nil:
		return []model.OrderMove{admitted, {
			At: *order.ClosedAt, From: &processing, To: model.OrderFailed, By: model.BySystem, Reason: order.Reason,
		}}
	case order.UnpaidAt != nil && !order.UnpaidAt.Equal(order.CreatedAt):
		return []model.OrderMove{admitted, {At: *order.UnpaidAt, From: &processing, To: born, By: model.BySystem}}
	default:
		admitted.To = born
		return []model.OrderMove{admitted}
	}
}
