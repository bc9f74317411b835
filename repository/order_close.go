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
	"seckill/model"
	"seckill/repository/sqldb"
)

// Cancel closes users' unpaid orders and returns their units, in async mode with releases for the hot copies, in one
// transaction. It says of each, in their order, what became of it; the first of several for one order changes it.
//
// The error is for all. With model.ErrUnknownOutcome they may be canceled; otherwise nothing has happened.
func (o *Orders) Cancel(ctx context.Context, asked []model.Cancellation) ([]model.Canceled, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	c := cancels{orders: o, asked: asked, doubtful: map[string]bool{}}
	action := fmt.Sprintf("cancel %d orders, the first %s", len(asked), asked[0].OrderID)
	err := o.db.WriteRepeatable(ctx, action, c.attempt)
	return c.answers, err
}

type cancels struct {
	orders  *Orders
	asked   []model.Cancellation
	answers []model.Canceled
	// doubtful orders went out with a COMMIT that may not have been answered: found canceled, it was this call.
	doubtful map[string]bool
}

func (c *cancels) attempt(tx *gorm.DB, doubtful bool) error {
	ids := make([]string, len(c.asked))
	for i, asked := range c.asked {
		ids[i] = asked.OrderID
	}
	found, err := findOrders(tx, ids)
	if err != nil {
		return err
	}
	if !doubtful {
		clear(c.doubtful)
	}
	var due []statusChange
	by := map[string]string{} // the administrators who asked in a buyer's place, by order
	c.answers = make([]model.Canceled, len(c.asked))
	changed := map[string]bool{}
	for i, asked := range c.asked {
		order, ok := found[asked.OrderID]
		answer := &c.answers[i]
		if !ok || order.UserID != asked.UserID {
			answer.Err = model.NotFound("order")
			continue
		}
		move, err := model.Move(order.Status, model.OrderCanceled, model.MoverBuyer)
		switch {
		case err == nil && !changed[order.ID]:
			due = append(due, statusChange{
				order: order, move: move, actor: cmp.Or(asked.By, order.UserID), cools: asked.By == "",
			})
			by[order.ID] = asked.By
			answer.Changed = true
		case order.Status == model.OrderCanceled:
			answer.Changed = c.doubtful[order.ID] && !changed[order.ID]
		case err != nil:
			answer.Err = err
			continue
		}
		answer.Order = order
		changed[order.ID] = changed[order.ID] || answer.Changed
	}
	if len(due) == 0 {
		return sqldb.ErrNothingToWrite
	}
	return c.write(tx, due, by)
}

// write cancels orders that were unpaid when read. The administrators' log has those that one of them canceled.
func (c *cancels) write(tx *gorm.DB, due []statusChange, by map[string]string) error {
	orders, err := moveOrders(tx, c.orders.db, due)
	if err != nil {
		return err
	}
	moved := make(map[string]model.Canceled, len(orders))
	for i, order := range orders {
		if admin := by[order.ID]; admin != "" {
			err := logChange(c.orders.db, tx, adminChange{
				at: *order.ClosedAt, actor: admin, action: model.ActionOrderCancel, subject: order.ID,
				before: due[i].order, after: order,
			})
			if err != nil {
				return err
			}
		}
		own := order.Release()
		own.HeirID, own.HeirUserID, own.Direct = due[i].heir.ID, due[i].heir.UserID, true
		canceled := model.Canceled{Order: order}
		if len(due[i].before) <= mostHeirs {
			canceled.Releases = append(slices.Clip(due[i].before), own)
		}
		moved[order.ID] = canceled
		c.doubtful[order.ID] = true
	}
	for i := range c.answers {
		answer := &c.answers[i]
		if now, ok := moved[answer.Order.ID]; ok {
			answer.Order, answer.Releases = now.Order, now.Releases
		}
	}
	return nil
}

// Lapse announces the paid orders whose code's time has ended unused within a week, each once for each end.
func (o *Orders) Lapse(ctx context.Context) error {
	if !o.db.Events {
		return nil
	}
	var due []model.Order
	ends := map[string]time.Time{} // by order
	err := o.db.Browse(ctx, "look for codes whose time has ended", func(db *gorm.DB) error {
		now, err := readClock(db, o.db.Dialect)
		due = nil
		var vouchers []voucherRow
		since := now.Add(-budget.Week)
		timed := db.Table("vouchers").Where("valid_for > 0 OR valid_until BETWEEN ? AND ?", since, now)
		if err = cmp.Or(err, timed.Find(&vouchers).Error); err != nil {
			return err
		}
		for _, v := range vouchers {
			paid := db
			if v.ValidUntil == nil || v.ValidUntil.After(now) { // it tells who paid so long ago
				age := -time.Duration(v.ValidFor)
				paid = byInstant(db, o.db.Dialect, model.InstantPaid).Select("orders.*").
					Where("at BETWEEN ? AND ?", since.Add(age), now.Add(age))
			} else { // by and by all are told
				paid = paid.Where("lapsed_at IS NULL OR lapsed_at < ?", *v.ValidUntil)
			}
			var orders []lapsingRow
			if err := paid.Where("voucher_id = ? AND status = ?", v.ID, model.OrderPaid).Find(&orders).Error; err != nil {
				return err
			}
			for _, order := range orders {
				end := v.ValidityOf(*order.PaidAt).ValidUntil
				if !now.Before(*end) && end.After(since) && (order.LapsedAt == nil || order.LapsedAt.Before(*end)) {
					due, ends[order.ID] = append(due, order.Order), *end
				}
			}
		}
		return nil
	})
	for some := range slices.Chunk(due, eventBatch) {
		err = cmp.Or(err, o.announceLapses(ctx, some, ends))
	}
	return err
}

type lapsingRow struct {
	model.Order `gorm:"embedded"`

	LapsedAt *time.Time
}

// TableName implements gorm's Tabler.
func (lapsingRow) TableName() string { return "orders" }

func (o *Orders) announceLapses(ctx context.Context, orders []model.Order, ends map[string]time.Time) error {
	return o.db.WriteRepeatable(ctx, "announce codes whose time has ended", func(tx *gorm.DB, _ bool) error {
		var lapsed []model.Order
		for _, order := range orders {
			end := ends[order.ID]
			noted := tx.Model(&lapsingRow{}).Where("id = ? AND status = ?", order.ID, model.OrderPaid).
				Where("lapsed_at IS NULL OR lapsed_at < ?", end).Update("lapsed_at", end)
			if noted.Error != nil {
				return noted.Error
			}
			if noted.RowsAffected == 1 { // otherwise it is used, or given back, meanwhile
				lapsed = append(lapsed, order)
			}
		}
		return announceOrders(o.db, tx, lapsed, func(i int) (string, time.Time) { return "order.lapsed", ends[lapsed[i].ID] })
	})
}

type overdueRow struct {
	model.OverdueOrder `gorm:"embedded"`

	Now    clock `gorm:"column:read_at"`
	Unpaid clock `gorm:"column:unpaid_since"`
}

// Clock reads the database's clock.
func (o *Orders) Clock(ctx context.Context) (time.Time, error) {
	return got(ctx, o.db.Read, "read the database's clock",
		func(db *gorm.DB) (time.Time, error) { return readClock(db, o.db.Dialect) })
}

// Overdue reads unpaid orders whose time has passed by the database's clock, those that passed first before others:
// with a started payment whose end is unknown, or without. It begins behind last, and reads at most limit.
func (o *Orders) Overdue(
	ctx context.Context, paying bool, last model.OverdueOrder, limit int,
) ([]model.OverdueOrder, error) {
	from, statement := stored(last.ExpiresAt), "order_overdue" // the zero time is before every order
	if paying {
		statement = "order_overdue_paying"
	}
	rows, err := list[overdueRow](ctx, o.db.Read, "read overdue orders", func(db *gorm.DB) *gorm.DB {
		return db.Raw(sqlOf(o.db.Dialect, statement), from, from, last.ID, limit)
	})
	overdue := make([]model.OverdueOrder, len(rows))
	for i, row := range rows {
		overdue[i] = row.OverdueOrder
		overdue[i].Overdue, overdue[i].Window = row.Now.Sub(row.ExpiresAt), row.ExpiresAt.Sub(row.Unpaid.Time)
	}
	return overdue, err
}

// Expire closes those of the orders that are unpaid and overdue, and returns their units, in one transaction that takes
// their vouchers' rows last. It returns those expired: ids, status and times. Others were paid or closed meanwhile.
//
// An error with model.ErrUnknownOutcome says that they may have expired; otherwise nothing has happened.
func (o *Orders) Expire(ctx context.Context, ids []string) (expired []model.Order, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, end := o.db.Trace.Work(ctx, "expire", len(ids))
	defer func() { end(err) }()
	sent := map[string]time.Time{} // what went out with a COMMIT that may not have been answered
	action := fmt.Sprintf("expire %d orders, the first %s", len(ids), ids[0])
	err = o.db.WriteRepeatable(ctx, action, func(tx *gorm.DB, doubtful bool) (err error) {
		if !doubtful {
			clear(sent)
		}
		var due []statusChange
		if due, expired, err = o.overdue(tx, ids, sent); err != nil {
			return err
		}
		if len(due) == 0 {
			return sqldb.ErrNothingToWrite
		}
		moved, err := moveOrders(tx, o.db, due)
		for _, order := range moved {
			sent[order.ID] = *order.ClosedAt
		}
		expired = append(expired, moved...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return expired, nil
}

// expiryColumns are all that expiry needs of an order: the others would cost the service a third of its part.
const expiryColumns = "id, voucher_id, user_id, status, expires_at, closed_at"

// overdue finds what is to expire, and what an earlier attempt has expired.
func (o *Orders) overdue(
	tx *gorm.DB, ids []string, sent map[string]time.Time,
) (due []statusChange, ours []model.Order, err error) {
	columns := expiryColumns
	if o.db.Events { // which tell the whole order
		columns = "*"
	}
	found, err := findOrders(tx.Select(columns).Session(&gorm.Session{}), ids)
	if err != nil {
		return nil, nil, err
	}
	now, err := readClock(tx, o.db.Dialect)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		order, exists := found[id]
		if !exists {
			continue
		}
		delete(found, id) // an id that is asked for twice is one order
		move, err := model.Move(order.Status, model.OrderExpired, model.MoverService)
		switch {
		case err != nil:
			if order.ClosedAt != nil && order.ClosedAt.Equal(sent[order.ID]) && order.Status == model.OrderExpired {
				ours = append(ours, order)
			}
		case order.ExpiresAt != nil && !order.ExpiresAt.After(now):
			due = append(due, statusChange{order: order, move: move, actor: model.BySystem, cools: true})
		}
	}
	return due, ours, nil
}

// Fail makes a reservation that cannot be persisted a failed order, which holds only what identifies it and the reason,
// and releases its unit. A row that is there already wins and is returned. VALIDATION when not even that can be stored.
func (o *Orders) Fail(ctx context.Context, r model.Reservation, reason string) (model.Order, error) {
	action := "fail order " + r.ID
	if err := identified(r); err != nil {
		return model.Order{}, fmt.Errorf("%s: %w", action, err)
	}
	var order model.Order
	err := o.db.WriteRepeatable(ctx, action, func(tx *gorm.DB, _ bool) error {
		_, now, err := lockMode(tx, o.db.Dialect)
		if err != nil {
			return err
		}
		voucher, err := lockVoucher(tx, o.db.Dialect, r.VoucherID)
		if err != nil && model.CodeOf(err) != model.CodeNotFound {
			return err
		}
		found, err := findOrders(tx, []string{r.ID})
		if err != nil {
			return err
		}
		if row, there := found[r.ID]; there {
			if order = row; order.VoucherID != r.VoucherID || !order.IsOf(r.UserID) {
				return model.Conflict("The order's id belongs to another order.")
			}
			return sqldb.ErrNothingToWrite
		}
		order = model.Order{
			ID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID, CreatedAt: stored(now.Time),
			Currency: cmp.Or(voucher.Currency, strings.Repeat("X", 3)), // without a voucher, ISO 4217's word for none
		}
		if model.StorableTime(r.CreatedAt) {
			order.CreatedAt = stored(r.CreatedAt)
		}
		fail(&order, reason, now.Time)
		return insert(tx, o.db, []model.Order{order})
	})
	return order, err
}

// cooled is a row of order_cooling.sql: until when a user waits before another order, and how often that began.
type cooled struct {
	UserID string
	Until  clock `gorm:"column:ends_at"`
	Times  int64
}

func coolingOf(tx *gorm.DB, d sqldb.Dialect, voucherID string, users []string) (map[string]cooled, error) {
	return keyed("read who waits", users, func(row cooled) string { return row.UserID }, func(some []string) *gorm.DB {
		return tx.Raw(sqlOf(d, "order_cooling"), voucherID, some)
	})
}

// coolDown finds until when users wait whose orders end unpaid; nothing is read without a cool-down. A user's order
// that ends earlier ended before this one was made: what is counted does not change meanwhile.
func coolDown(tx *gorm.DB, d sqldb.Dialect, changes []statusChange, rules map[string]saleRules, now time.Time) error {
	users := map[string][]string{} // by voucher
	for _, c := range changes {
		if id := c.order.VoucherID; c.cools && rules[id].Cooldown > 0 {
			users[id] = append(users[id], c.order.UserID)
		}
	}
	for id, some := range users {
		before, err := coolingOf(tx, d, id, some)
		if err != nil {
			return err
		}
		for i := range changes {
			if c := &changes[i]; c.cools && c.order.VoucherID == id {
				c.until = model.CooldownUntil(rules[id].Cooldown, now, before[c.order.UserID].Times)
			}
		}
	}
	return nil
}

type orderCode struct {
	CodeHash []byte
	OrderID  string
}

// Redeem redeems the paid order whose code has that keyed hash, once, and logs it. NOT_FOUND: no order has the code.
// NOT_ELIGIBLE: the till may not, and hears nothing of the order. CODE_NOT_YET_VALID, CODE_EXPIRED.
// ILLEGAL_STATE with the order's status: it is not paid any more, or its payment is disputed.
func (o *Orders) Redeem(ctx context.Context, hash []byte, till model.Till) (model.Order, error) {
	var order model.Order
	var sent time.Time // goes out with a COMMIT that may not be answered
	err := o.db.WriteRepeatable(ctx, "redeem a code", func(tx *gorm.DB, doubtful bool) error {
		code, err := first[orderCode](tx.Where("code_hash = ?", hash), "the code")
		if err != nil {
			return err
		}
		if code == nil {
			return model.NotFound("code")
		}
		// The lock keeps a dispute of its payment from coming in between.
		before, err := take[model.Order](locked(tx), "order", code.OrderID)
		if err != nil {
			return fmt.Errorf("read order %s: %w", code.OrderID, err)
		}
		voucher, err := readVoucher(tx, o.db.Dialect, before.VoucherID)
		if err != nil {
			return err
		}
		place, err := voucher.PlaceOf(till)
		if err != nil {
			return err
		}
		if doubtful {
			ours, err := exists(tx, "SELECT 1 FROM uses WHERE order_id = ? AND used_at = ?", before.ID, sent)
			if order = before; err != nil || ours { // it was this call, though it may be undone by now
				return cmp.Or(err, sqldb.ErrNothingToWrite)
			}
		}
		move, err := model.Move(before.Status, model.OrderRedeemed, model.MoverAdmin)
		if err != nil {
			return usedBefore(tx, before, err)
		}
		if before.PaidAt != nil {
			if err := voucher.ValidityOf(*before.PaidAt).Refusal(voucher.Now.Time); err != nil {
				return err
			}
		}
		disputed, err := exists(tx, "SELECT 1 FROM payments WHERE order_id = ? AND disputed = ?", before.ID, true)
		if err != nil {
			return err
		}
		if disputed {
			return &model.Error{
				Code: model.CodeIllegalState, OrderStatus: before.Status,
				Detail: "The buyer disputes the payment of this order: its code rests until that is decided.",
			}
		}
		moved, err := moveOrders(tx, o.db, []statusChange{{order: before, move: move, actor: till.By}})
		if err != nil {
			return err
		}
		order, sent = moved[0], *moved[0].RedeemedAt
		if err := tx.Create(&model.OrderUse{OrderID: order.ID, At: sent, By: till.By, Place: place}).Error; err != nil {
			return fmt.Errorf("insert the use: %w", err)
		}
		return logChange(o.db, tx, adminChange{
			at: sent, actor: till.By, action: model.ActionOrderRedeem, subject: order.ID, before: before, after: order,
		})
	})
	return order, err
}

// Unredeem undoes the use of an order, and logs it: the code is good again, unless the money is back. ILLEGAL_STATE with the order's status: it is
// not redeemed. FORBIDDEN: the use is another's or older than budget.Undo, and it may not be undone at any time.
func (o *Orders) Unredeem(ctx context.Context, undo model.Undo) (order model.Order, err error) {
	if err := undo.Check(); err != nil {
		return order, err
	}
	var sent time.Time // goes out with a COMMIT that may not be answered
	err = o.db.WriteRepeatable(ctx, "undo the use of order "+undo.OrderID, func(tx *gorm.DB, doubtful bool) error {
		before, err := take[model.Order](locked(tx), "order", undo.OrderID)
		if err != nil {
			return err
		}
		if doubtful {
			ours, err := exists(tx, "SELECT 1 FROM uses WHERE order_id = ? AND undone_at = ?", before.ID, sent)
			if order = before; err != nil || ours { // it was this call, though it may be used again by now
				return cmp.Or(err, sqldb.ErrNothingToWrite)
			}
		}
		move, err := model.Move(before.Status, model.OrderPaid, model.MoverAdmin)
		if before.Status != model.OrderRedeemed { // an administrator may have taken money of an unpaid one
			err = model.IllegalMove(before.Status, model.OrderPaid)
		}
		if err != nil {
			return err
		}
		use, err := first[model.OrderUse](tx.Where("order_id = ? AND live = 1", before.ID), "the use")
		if err != nil {
			return err
		}
		now, err := readClock(tx, o.db.Dialect)
		if err != nil {
			return err
		}
		if !undo.Anytime && (use == nil || use.By != undo.By || now.Sub(use.At) > budget.Undo) {
			return &model.Error{
				Code: model.CodeForbidden, Detail: "Only who used the code may undo that, for 15 minutes. An operator may at any time.",
			}
		}
		moved, err := moveOrders(tx, o.db, []statusChange{{
			order: before, move: move, actor: undo.By, reason: undo.Reason, set: map[string]any{"redeemed_at": nil},
		}})
		if err != nil {
			return err
		}
		order, sent = moved[0], now
		done := tx.Table("uses").Where("order_id = ? AND live = 1", order.ID).
			Updates(map[string]any{"undone_at": now, "undone_by": undo.By, "reason": undo.Reason})
		if done.Error != nil {
			return fmt.Errorf("undo the use: %w", done.Error)
		}
		if order, err = o.endUnpaid(tx, order); err != nil {
			return err
		}
		return logChange(o.db, tx, adminChange{
			at: now, actor: undo.By, action: model.ActionOrderUnredeem, subject: order.ID, before: before, after: order,
		})
	})
	return order, err
}

// endUnpaid ends an order whose use is undone after all its money has gone back at the provider, as if it had gone now.
func (o *Orders) endUnpaid(tx *gorm.DB, order model.Order) (model.Order, error) {
	if order.Price == 0 {
		return order, nil
	}
	if _, err := payingOf(tx, order.ID); model.CodeOf(err) != model.CodeConflict {
		return order, err
	}
	change, err := givenBack(order)
	if err != nil {
		return order, err
	}
	moved, err := moveOrders(tx, o.db, []statusChange{change})
	if err != nil {
		return order, err
	}
	moved[0].Reason = ""
	return moved[0], nil
}

// usedBefore adds to the refusal of a code when it was used, and by whom.
func usedBefore(tx *gorm.DB, order model.Order, err error) error {
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok || order.RedeemedAt == nil {
		return err
	}
	err = tx.Raw("SELECT COALESCE(accounts.username, used_by) FROM uses LEFT JOIN accounts ON accounts.id = used_by"+
		" WHERE order_id = ? AND live = 1", order.ID).Scan(&refusal.RedeemedBy).Error
	if err != nil {
		return fmt.Errorf("find who redeemed order %s: %w", order.ID, err)
	}
	refusal.RedeemedAt, refusal.Detail = *order.RedeemedAt, "This code was used already."
	return refusal
}

// errCodeTaken says that two orders were given codes with one hash, which chance does not do: the codes are not random.
var errCodeTaken = errors.New("a new code has the hash of another one")

func keepCode(tx *gorm.DB, orderID string, code model.SealedCode) error {
	err := tx.Create(&orderCode{CodeHash: code.Hash, OrderID: orderID}).Error
	if sqldb.Duplicate(err) {
		return fmt.Errorf("order %s: %w", orderID, errCodeTaken)
	}
	return err
}
