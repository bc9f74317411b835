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

	"seckill/internal/budget"
	"seckill/model"
	"seckill/repository/sqldb"
)

const (
	eventBatch = 500 // events get their positions, or are deleted, in one transaction
	// maxWaiting bounds what is counted for somebody who looks: so many are as good as more.
	maxWaiting = 10_000
)

// Events is the outbox of events for other systems, written with the change. It needs Options.Events.
type Events struct {
	DB     *sqldb.Database
	Stream string   // the name of the stream that gets them; empty: there is none
	URLs   []string // of the receivers that get them; with any, events are kept for a week
}

// Line gives events that have no position the next ones, and receivers that are not known their place at the end. More
// reports that others may be left. Only what is committed gets one, and later than that of everything before it.
func (e *Events) Line(ctx context.Context) (more bool, err error) {
	var ids []int64
	var known int64
	names := e.URLs
	if e.Stream != "" {
		names = append(slices.Clone(names), e.Stream)
	}
	read := func(db *gorm.DB) error {
		ids = nil
		return cmp.Or(db.Table("event_receivers").Where("url IN ?", names).Count(&known).Error,
			db.Table("events").Where("position = 0").Order("id").Limit(eventBatch).Pluck("id", &ids).Error)
	}
	if err := e.DB.Read(ctx, "look for new events", read); err != nil || len(ids) == 0 && int(known) == len(names) {
		return false, err
	}
	err = e.DB.WriteRepeatable(ctx, "line up events", func(tx *gorm.DB, _ bool) error {
		var last int64
		if err := locked(tx).Table("event_receivers").Where("url = ''").Pluck("position", &last).Error; err != nil {
			return err
		}
		for _, name := range names {
			const join = "INSERT INTO event_receivers (url, position) SELECT ?, position FROM event_receivers AS last" +
				" WHERE url = '' AND NOT EXISTS (SELECT 1 FROM event_receivers AS known WHERE known.url = ?)"
			if err := tx.Exec(join, name, name).Error; err != nil {
				return err
			}
		}
		if err := read(tx); err != nil || len(ids) == 0 {
			return err
		}
		shift := last + 1 - ids[0]
		return cmp.Or(
			matched(tx.Exec("UPDATE events SET position = id + ? WHERE id IN ?", shift, ids), len(ids)),
			tx.Exec("UPDATE event_receivers SET position = ? WHERE url = ''", ids[len(ids)-1]+shift).Error)
	})
	return len(ids) == eventBatch, err
}

// After reads how far a receiver has come, and the next events for it, at most so many. NOT_FOUND: Line has not run.
func (e *Events) After(
	ctx context.Context, receiver string, limit int,
) (at model.EventReceiver, events []model.Event, err error) {
	err = e.DB.Read(ctx, "read the events for a receiver", func(db *gorm.DB) error {
		if err := db.Where("url = ?", receiver).Take(&at).Error; err != nil {
			return notFound(err, "receiver of events")
		}
		return db.Where("position > ?", at.Position).Order("position").Limit(limit).Find(&events).Error
	})
	return at, events, err
}

// Advance keeps how far a receiver has come, unless it was noted, or a replay was asked for, since it was read.
func (e *Events) Advance(ctx context.Context, was, is model.EventReceiver) error {
	return e.DB.WriteRepeatable(ctx, "note the events of a receiver", func(tx *gorm.DB, _ bool) error {
		return tx.Table("event_receivers").
			Where("url = ? AND position = ? AND replays = ?", was.URL, was.Position, was.Replays).
			Updates(map[string]any{
				"position": is.Position, "delivered": is.Delivered, "failures": is.Failures, "stopped": is.Stopped,
				"last_answer": is.LastAnswer, "answered_at": is.AnsweredAt, "next_at": is.NextAt,
			}).Error
	})
}

// Forget deletes events that are kept long enough, and more reports whether others may be left. What the stream does not
// have is kept.
func (e *Events) Forget(ctx context.Context) (more bool, err error) {
	newest := time.Now()
	if len(e.URLs) > 0 {
		newest = newest.Add(-budget.Week)
	}
	query := func(db *gorm.DB) *gorm.DB {
		if e.Stream != "" {
			db = db.Where("position <= (SELECT position FROM event_receivers WHERE url = ?)", e.Stream)
		}
		return db.Select("id, happened_at").Where("position > 0").Order("position").Limit(eventBatch)
	}
	old, err := list[model.Event](ctx, e.DB.Read, "look for old events", query)
	if end := slices.IndexFunc(old, func(e model.Event) bool { return e.HappenedAt.After(newest) }); end >= 0 {
		old = old[:end]
	}
	if err != nil || len(old) == 0 {
		return false, err
	}
	return len(old) == eventBatch, e.DB.WriteRepeatable(ctx, "delete old events", func(tx *gorm.DB, _ bool) error {
		return tx.Delete(&old).Error // by their ids
	})
}

// Receivers tells what each receiver of the settings has, and what waits for it: maxWaiting stands for more.
func (e *Events) Receivers(ctx context.Context) (found model.EventReceivers, err error) {
	err = e.DB.Browse(ctx, "read the receivers of events", func(db *gorm.DB) error {
		for _, url := range e.URLs {
			var one model.EventReceiver // that is not known yet begins at the end
			if err := db.Where("url IN ('', ?)", url).Order("url DESC").Limit(1).Find(&one).Error; err != nil {
				return err
			}
			one.URL = url
			var waiting []struct{ At clock }
			err := db.Raw("SELECT happened_at AS at FROM events WHERE position = 0 OR position > ? LIMIT ?", one.Position,
				maxWaiting).Scan(&waiting).Error
			if err != nil {
				return err
			}
			one.Waiting = int64(len(waiting))
			for _, event := range waiting {
				if one.OldestAt == nil || event.At.Before(*one.OldestAt) {
					one.OldestAt = new(event.At.Time)
				}
			}
			found.Items = append(found.Items, one)
		}
		return nil
	})
	return found, err
}

// Replay has the receivers, or the one of a URL, get what happened since an instant again, and restarts those that had
// stopped. What they do not have yet comes as it would have. VALIDATION: there is no such receiver.
func (e *Events) Replay(ctx context.Context, adminID string, since time.Time, url string) error {
	urls := e.URLs
	if url != "" {
		urls = []string{url}
	}
	if len(urls) == 0 || !slices.Contains(e.URLs, urls[0]) {
		return model.Invalid("body.url", "is none of the receivers of SECKILL_EVENTS_URLS")
	}
	var before []int64 // the last event that is not repeated; what happened late may have its position early
	err := e.DB.Browse(ctx, "look for events to repeat", func(db *gorm.DB) error {
		return db.Table("events").Where("position > 0 AND happened_at < ?", stored(since.Add(-budget.Survey))).
			Order("position DESC").Limit(1).Pluck("position", &before).Error
	})
	if err != nil {
		return err
	}
	from := append(before, 0)[0]
	return e.DB.Write(ctx, "replay events", func(tx *gorm.DB) error {
		const back = "UPDATE event_receivers SET position = CASE WHEN position > ? THEN ? ELSE position END," +
			" replays = replays + 1, failures = 0, stopped = FALSE, next_at = NULL WHERE url IN ?"
		if err := tx.Exec(back, from, from, urls).Error; err != nil {
			return err
		}
		return logChange(e.DB, tx, adminChange{
			actor: adminID, action: model.ActionEventsReplay, subject: model.SubjectEvents,
			after: map[string]any{"since": since.UTC(), "url": url},
		})
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
	vouchers := map[string]voucherRow{} // of paid orders, which have codes
	events := make([]model.Event, len(orders))
	for i, order := range orders {
		if order.PaidAt != nil {
			v, read := vouchers[order.VoucherID]
			if !read {
				var err error
				if v, err = readVoucher(tx, d.Dialect, order.VoucherID); err != nil {
					return err
				}
				vouchers[order.VoucherID] = v
			}
			order.Validity = v.ValidityOf(*order.PaidAt)
		}
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
