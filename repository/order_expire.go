package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// overdueRow is a row of order_overdue.sql.
type overdueRow struct {
	model.OverdueOrder `gorm:"embedded"`

	Now    clock `gorm:"column:read_at"`
	Unpaid clock `gorm:"column:unpaid_since"`
}

// Clock reads the database's clock.
func (o *Orders) Clock(ctx context.Context) (now time.Time, err error) {
	err = o.db.Read(ctx, "read the database's clock", func(db *gorm.DB) (err error) {
		now, err = readClock(db, o.db.Dialect)
		return err
	})
	return now, err
}

// Overdue reads unpaid orders whose time has passed by the database's clock, those that
// passed first before the others: orders with a payment that was started and whose end is
// not known, or orders without. It begins behind the one given, and reads at most so many.
func (o *Orders) Overdue(ctx context.Context, paying bool, last model.OverdueOrder, limit int) ([]model.OverdueOrder, error) {
	var rows []overdueRow
	from := stored(last.ExpiresAt)
	if last.ID == "" {
		from = time.Unix(0, 0).UTC() // before every order
	}
	statement := "order_overdue"
	if paying {
		statement = "order_overdue_paying"
	}
	err := o.db.Read(ctx, "read overdue orders", func(db *gorm.DB) error {
		return db.Raw(sqlOf(o.db.Dialect, statement), from, from, last.ID, limit).Scan(&rows).Error
	})
	list := make([]model.OverdueOrder, len(rows))
	for i, row := range rows {
		list[i] = row.OverdueOrder
		list[i].Overdue, list[i].Window = row.Now.Sub(row.ExpiresAt), row.ExpiresAt.Sub(row.Unpaid.Time)
	}
	return list, err
}

// Expire closes those of the orders that are unpaid and overdue, and returns their
// units, all in one transaction that takes the rows of their vouchers last. It returns the
// orders that it has expired, of each the ids, the status and its times. The others were
// paid or closed meanwhile, and stay.
//
// An error that wraps model.ErrUnknownOutcome says that they may have expired;
// otherwise nothing has happened.
func (o *Orders) Expire(ctx context.Context, ids []string) (expired []model.Order, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, end := o.db.Trace.Work(ctx, "expire", len(ids))
	defer func() { end(err) }()
	sent := map[string]time.Time{} // what went out with a COMMIT that may not have been answered
	action := fmt.Sprintf("expire %d orders, the first %s", len(ids), ids[0])
	err = o.db.WriteRepeatable(ctx, action, func(tx *gorm.DB, doubtful bool) error {
		if !doubtful {
			clear(sent)
		}
		due, ours, err := o.overdue(tx, ids, sent)
		if expired = ours; err != nil {
			return err
		}
		if len(due) == 0 {
			return sqldb.ErrNothingToWrite
		}
		moved, err := moveOrders(tx, o.db, due)
		if err != nil {
			return err
		}
		for _, order := range moved {
			sent[order.ID] = *order.ClosedAt
		}
		expired = append(expired, moved...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return expired, nil
}

// expiryColumns are all that expiry wants to know of an order: to read the others costs the
// service a third of its part.
const expiryColumns = "id, voucher_id, user_id, status, expires_at, closed_at"

// overdue finds what is to expire, and what an earlier attempt has expired.
func (o *Orders) overdue(tx *gorm.DB, ids []string, sent map[string]time.Time) (due []statusChange, ours []model.Order, err error) {
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
