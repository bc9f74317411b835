package repository

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// AdminLog keeps what administrators changed. Every change of the database writes its entry
// in its own transaction.
type AdminLog struct{ db *sqldb.Database }

// NewAdminLog reads the log of a database.
func NewAdminLog(db *sqldb.Database) *AdminLog { return &AdminLog{db: db} }

// logRow is a row of admin_log.
type logRow struct {
	ID        int64
	ChangedAt time.Time
	Actor     string
	Action    string
	Subject   string
	Was       *string
	Became    *string
}

// TableName implements gorm's Tabler.
func (logRow) TableName() string { return "admin_log" }

// adminChange is an entry to be written; before and after become JSON, nil is none.
type adminChange struct {
	at            time.Time
	actor         string // empty: the service itself, or a command
	action        string
	subject       string
	before, after any
}

// logChange writes an entry of the administrators' log and, of a voucher, the event. (The
// event of an order is that of its move.)
func logChange(d *sqldb.Database, tx *gorm.DB, c adminChange) error {
	row := logRow{ChangedAt: c.at, Actor: cmp.Or(c.actor, model.BySystem), Action: c.action, Subject: c.subject}
	for _, side := range []struct {
		value any
		into  **string
	}{{c.before, &row.Was}, {c.after, &row.Became}} {
		if side.value == nil {
			continue
		}
		document, err := json.Marshal(side.value)
		if err != nil {
			return fmt.Errorf("write down %s of %s: %w", c.action, c.subject, err)
		}
		*side.into = new(string(document))
	}
	if err := tx.Create(&row).Error; err != nil {
		return fmt.Errorf("log %s of %s: %w", c.action, c.subject, err)
	}
	if !strings.HasPrefix(c.action, "voucher.") || row.Became == nil {
		return nil
	}
	return announce(d, tx, []model.Event{{Type: c.action, Subject: c.subject, HappenedAt: c.at, Data: *row.Became}})
}

// Record writes an entry by itself, of what an administrator asks for and no transaction of
// the database does. It is to be written before that is done, so that nothing is done without
// an entry. The time is the database's, whatever the entry says.
func (l *AdminLog) Record(ctx context.Context, change model.AdminChange) error {
	return l.db.Write(ctx, "log "+change.Action+" of "+change.Subject, func(tx *gorm.DB) error {
		now, err := readClock(tx, l.db.Dialect)
		if err != nil {
			return err
		}
		entry := adminChange{at: now, actor: change.Actor, action: change.Action, subject: change.Subject}
		if change.Before != nil {
			entry.before = change.Before
		}
		return logChange(l.db, tx, entry)
	})
}

// List reads one page, newest first. A cursor that is none of ours is VALIDATION.
func (l *AdminLog) List(ctx context.Context, q model.AdminLogQuery) (model.AdminLogPage, error) {
	page := model.AdminLogPage{Items: []model.AdminChange{}}
	after, err := model.ParseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	if q.Actor != "" && !model.ValidUserID(q.Actor) {
		return page, nil // there is no such user; see possible
	}
	if q.Subject != "" && !model.ValidID(q.Subject) {
		return page, nil // nor such a subject
	}
	limit := model.PageSize(q.Limit)
	var rows []logRow
	err = l.db.Browse(ctx, "list the administrators' log", func(db *gorm.DB) error {
		index := "PRIMARY"
		switch {
		case q.Subject != "":
			index = "admin_log_subject"
		case q.Actor != "":
			index = "admin_log_actor"
		}
		table := behind(l.db.Dialect, "admin_log", index, after.ID != "" && index != "PRIMARY")
		query := db.Table(table).Order("id DESC").Limit(limit + 1)
		if after.ID != "" {
			id, err := strconv.ParseInt(after.ID, 10, 64)
			if err != nil {
				return model.Invalid("query.cursor", "is not a cursor of this list")
			}
			query = query.Where("id < ?", id)
		}
		if q.Actor != "" {
			query = query.Where("actor = ?", q.Actor)
		}
		if q.Subject != "" {
			query = query.Where("subject = ?", q.Subject)
		}
		return query.Find(&rows).Error
	})
	if err != nil {
		return page, err
	}
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		page.NextCursor = model.Cursor{At: last.ChangedAt, ID: strconv.FormatInt(last.ID, 10)}.String()
	}
	for _, row := range rows {
		page.Items = append(page.Items, row.change())
	}
	return page, nil
}

func (r logRow) change() model.AdminChange {
	change := model.AdminChange{At: r.ChangedAt, Actor: r.Actor, Action: r.Action, Subject: r.Subject}
	if r.Was != nil {
		change.Before = json.RawMessage(*r.Was)
	}
	if r.Became != nil {
		change.After = json.RawMessage(*r.Became)
	}
	return change
}
