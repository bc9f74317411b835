package repository

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Events is the outbox of events for other systems: what was written in the transaction of
// a change, until the stream has it. It stays empty unless Options.Events is set.
type Events struct{ db *sqldb.Database }

// NewEvents reads the outbox of a database.
func NewEvents(db *sqldb.Database) *Events { return &Events{db: db} }

// Oldest reads the oldest events, at most so many. Those of one order come in the order in
// which they happened.
func (e *Events) Oldest(ctx context.Context, limit int) ([]model.Event, error) {
	var list []model.Event
	err := e.db.Read(ctx, "read the outbox of events", func(db *gorm.DB) error {
		return db.Order("id").Limit(limit).Find(&list).Error
	})
	return list, err
}

// Forget removes events that the stream has. Absent ones are fine.
func (e *Events) Forget(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	return e.db.WriteRepeatable(ctx, fmt.Sprintf("remove %d events", len(ids)), func(tx *gorm.DB, _ bool) error {
		return tx.Where("id IN ?", ids).Delete(&model.Event{}).Error
	})
}

// announce writes events into the outbox, if there is somebody to hear of them.
func announce(d *sqldb.Database, tx *gorm.DB, events []model.Event) error {
	if !d.Events || len(events) == 0 {
		return nil
	}
	args := make([]any, 0, len(events)*eventColumns)
	for _, e := range events {
		args = append(args, e.Type, e.Subject, e.HappenedAt, e.Data)
	}
	if err := insertRows(tx, insertEvent, eventColumns, args); err != nil {
		return fmt.Errorf("write %d events: %w", len(events), err)
	}
	return nil
}

const (
	insertEvent  = "INSERT INTO events (type, subject, happened_at, data) VALUES "
	eventColumns = 4
)

// announceOrders writes an event for each order, which has its status since an instant.
func announceOrders(d *sqldb.Database, tx *gorm.DB, orders []model.Order, at func(model.Order) time.Time) error {
	if !d.Events {
		return nil
	}
	events := make([]model.Event, len(orders))
	for i, order := range orders {
		data, err := json.Marshal(order)
		if err != nil {
			return fmt.Errorf("write down order %s: %w", order.ID, err)
		}
		events[i] = model.Event{Type: "order." + string(order.Status), Subject: order.ID, HappenedAt: at(order), Data: string(data)}
	}
	return announce(d, tx, events)
}

// bornAt is when a new row got its status.
func bornAt(order model.Order) time.Time {
	switch {
	case order.UnpaidAt != nil:
		return *order.UnpaidAt
	case order.ClosedAt != nil:
		return *order.ClosedAt
	default:
		return order.CreatedAt
	}
}
