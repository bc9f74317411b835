package repository

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Events is the outbox of events for other systems, written with the change. It needs Options.Events.
type Events struct{ DB *sqldb.Database }

// Oldest reads the oldest events, at most so many. Those of one order come in the order in which they happened.
func (e *Events) Oldest(ctx context.Context, limit int) ([]model.Event, error) {
	return list[model.Event](ctx, e.DB.Read, "read the outbox of events",
		func(db *gorm.DB) *gorm.DB { return db.Order("id").Limit(limit) })
}

// Forget removes events that the stream has. Absent ones are fine.
func (e *Events) Forget(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	return e.DB.WriteRepeatable(ctx, fmt.Sprintf("remove %d events", len(ids)), func(tx *gorm.DB, _ bool) error {
		return tx.Where("id IN ?", ids).Delete(&model.Event{}).Error
	})
}

// announce writes events into the outbox, if there is somebody to hear of them.
func announce(d *sqldb.Database, tx *gorm.DB, events []model.Event) error {
	if !d.Events || len(events) == 0 {
		return nil
	}
	args := insertEvent.room(len(events))
	for _, e := range events {
		args = append(args, e.Type, e.Subject, e.HappenedAt, e.Data)
	}
	return insertEvent.rows(tx, args)
}

const insertEvent insertion = "INSERT INTO events (type, subject, happened_at, data) VALUES "

func announceOrders(d *sqldb.Database, tx *gorm.DB, orders []model.Order, as func(i int) (kind string, at time.Time)) error {
	if !d.Events {
		return nil
	}
	events := make([]model.Event, len(orders))
	for i, order := range orders {
		data, err := json.Marshal(order)
		if err != nil {
			return fmt.Errorf("write down order %s: %w", order.ID, err)
		}
		events[i] = model.Event{Subject: order.ID, Data: string(data)}
		events[i].Type, events[i].HappenedAt = as(i)
	}
	return announce(d, tx, events)
}

// born is as what new orders are announced.
func born(orders []model.Order) func(i int) (string, time.Time) {
	return func(i int) (string, time.Time) {
		o := orders[i]
		return "order." + string(o.Status), *cmp.Or(o.UnpaidAt, o.ClosedAt, &o.CreatedAt)
	}
}

// Releases is the outbox of units that came back, written with their cause, until the hot copy knows.
type Releases struct{ DB *sqldb.Database }

// After reads releases voucher by voucher, those of one oldest first, from behind the one given, at most so many.
func (r *Releases) After(ctx context.Context, last model.Release, limit int) ([]model.Release, error) {
	return list[model.Release](ctx, r.DB.Read, "read the outbox of releases", func(db *gorm.DB) *gorm.DB {
		return db.Where("voucher_id > ? OR (voucher_id = ? AND id > ?)", last.VoucherID, last.VoucherID,
			last.ID).Order("voucher_id, id").Limit(limit)
	})
}

// Done removes releases that were applied. Absent ones are fine.
func (r *Releases) Done(ctx context.Context, ids []int64) error {
	return r.remove(ctx, len(ids), func(*gorm.DB) ([]int64, error) { return ids, nil })
}

// DoneOrders removes the releases of orders.
func (r *Releases) DoneOrders(ctx context.Context, orderIDs []string) error {
	orderIDs = validIDs(orderIDs)
	return r.remove(ctx, len(orderIDs), func(tx *gorm.DB) (ids []int64, err error) {
		for some := range slices.Chunk(orderIDs, streamRows) {
			var part []int64
			if err := tx.Model(&model.Release{}).Where("order_id IN ?", some).Pluck("id", &part).Error; err != nil {
				return nil, fmt.Errorf("find releases: %w", err)
			}
			ids = append(ids, part...)
		}
		return ids, nil
	})
}

// remove deletes releases by primary key and in its order: by different indexes transactions wait crosswise.
func (r *Releases) remove(ctx context.Context, count int, find func(*gorm.DB) ([]int64, error)) error {
	if count == 0 {
		return nil
	}
	return r.DB.WriteRepeatable(ctx, fmt.Sprintf("remove %d releases", count), func(tx *gorm.DB, _ bool) error {
		ids, err := find(tx)
		if err != nil || len(ids) == 0 {
			return cmp.Or(err, sqldb.ErrNothingToWrite)
		}
		for some := range slices.Chunk(slices.Sorted(slices.Values(ids)), streamRows) {
			if err := tx.Where("id IN ?", some).Delete(&model.Release{}).Error; err != nil {
				return fmt.Errorf("delete releases: %w", err)
			}
		}
		return nil
	})
}

func insertReleases(tx *gorm.DB, list []model.Release) error {
	args := insertRelease.room(len(list))
	for _, r := range list {
		args = append(args, r.OrderID, r.VoucherID, r.UserID, r.CooldownUntil, nullable(r.HeirID),
			nullable(r.HeirUserID), r.WrittenOff)
	}
	return insertRelease.rows(tx, args)
}

func nullable(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }

const insertRelease insertion = "INSERT INTO releases (order_id, voucher_id, user_id, cooldown_until, heir_id, heir_user_id, written_off) VALUES "
