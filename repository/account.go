package repository

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Accounts keeps the accounts of the users that log in here.
type Accounts struct{ DB *sqldb.Database }

// accountRow is a row of accounts. Usernames are ASCII: lower case compares them without regard to case.
type accountRow struct {
	model.Account `gorm:"embedded"`
	UsernameKey   string
}

// TableName implements gorm's Tabler.
func (accountRow) TableName() string { return "accounts" }

func usernameKey(username string) string { return strings.ToLower(username) }

// Create makes an account of version 1; CONFLICT when the username is taken in any case. A zero CreatedAt becomes now.
func (a *Accounts) Create(ctx context.Context, account model.Account) error {
	return a.DB.Write(ctx, "create account "+account.ID, func(tx *gorm.DB) error {
		row := accountRow{Account: account, UsernameKey: usernameKey(account.Username)}
		row.Version = 1
		if row.CreatedAt = stored(row.CreatedAt); row.CreatedAt.IsZero() {
			now, err := readClock(tx, a.DB.Dialect)
			if err != nil {
				return err
			}
			row.CreatedAt = now
		}
		err := tx.Create(&row).Error
		if sqldb.Duplicate(err) {
			return model.Conflict("The username is taken.")
		}
		if err != nil || account.Role != model.RoleAdmin {
			return err
		}
		return logChange(a.DB, tx, adminChange{
			at: row.CreatedAt, action: model.ActionAdminCreate, subject: account.ID, after: loggedAccount(row.Account),
		})
	})
}

// ByUsername finds an account without regard to case; NOT_FOUND when there is none.
func (a *Accounts) ByUsername(ctx context.Context, username string) (model.Account, error) {
	var row accountRow
	err := a.DB.Read(ctx, "get the account of a username", func(db *gorm.DB) error {
		if !model.ValidID(username) { // whose letters are those of ids; see take
			return model.NotFound("account")
		}
		return notFound(db.Where("username_key = ?", usernameKey(username)).Take(&row).Error, "account")
	})
	return row.Account, err
}

// ByID finds an account; NOT_FOUND when there is none.
func (a *Accounts) ByID(ctx context.Context, id string) (model.Account, error) {
	row, err := byID[accountRow](ctx, a.DB, "account", id)
	return row.Account, err
}

// Change changes an account alone: its row is locked while the function decides. Password, version, level, groups,
// being disabled and the time are stored; changes of administrators and of groups are logged. After an error of the
// function nothing has changed. A victim of another transaction calls it again.
func (a *Accounts) Change(
	ctx context.Context, id, by string, change func(*model.Account) error,
) (model.Account, error) {
	var row accountRow
	err := a.DB.Write(ctx, "change account "+id, func(tx *gorm.DB) (err error) {
		if row, err = take[accountRow](locked(tx), "account", id); err != nil {
			return err
		}
		before := row.Account
		if err := change(&row.Account); err != nil {
			return err
		}
		now, err := readClock(tx, a.DB.Dialect)
		if err != nil {
			return err
		}
		row.ChangedAt = &now
		err = tx.Model(&accountRow{}).Where("id = ?", id).
			Select("PasswordHash", "Version", "Level", "Groups", "Disabled", "ChangedAt").Updates(&row).Error
		entry := adminChange{at: now, actor: by, action: model.ActionGroupsChange, subject: id}
		if err == nil && !slices.Equal(row.Groups, before.Groups) {
			entry.before, entry.after = loggedGroups{row.Username, before.Groups},
				loggedGroups{row.Username, row.Groups}
			err = logChange(a.DB, tx, entry)
		}
		was, became := loggedAccount(before), loggedAccount(row.Account)
		became.NewPassword = row.PasswordHash != before.PasswordHash
		if err != nil || before.Role != model.RoleAdmin || was == became {
			return err // a buyer's account, or the end of a session
		}
		entry.action, entry.before, entry.after = model.ActionAdminChange, was, became
		return logChange(a.DB, tx, entry)
	})
	return row.Account, err
}

type adminAccount struct {
	Username    string      `json:"username"`
	Level       model.Level `json:"level"`
	Disabled    bool        `json:"disabled"`
	NewPassword bool        `json:"new_password,omitempty"`
}

type loggedGroups struct {
	Username string       `json:"username"`
	Groups   model.Groups `json:"groups"`
}

func loggedAccount(a model.Account) adminAccount {
	return adminAccount{Username: a.Username, Level: a.Grade(), Disabled: a.Disabled}
}

// Changed reads accounts changed since an instant, the latest first, then by id, at most so many, no passwords.
func (a *Accounts) Changed(ctx context.Context, since time.Time, limit int) ([]model.Account, error) {
	return list[model.Account](ctx, a.DB.Read, "list changed accounts", func(db *gorm.DB) *gorm.DB {
		return db.Table("accounts").Omit("PasswordHash").Where("changed_at >= ?",
			stored(since)).Order("changed_at DESC, id DESC").Limit(limit)
	})
}

// Administrators reads every administrator by username, without passwords. Operators make them, so they are few.
func (a *Accounts) Administrators(ctx context.Context) ([]model.Account, error) {
	return list[model.Account](ctx, a.DB.Read, "list administrators", func(db *gorm.DB) *gorm.DB {
		return db.Table("accounts").Omit("PasswordHash").Where("role = ?", model.RoleAdmin).Order("username_key")
	})
}

// AdminLog keeps what administrators changed. Every change of the database writes its entry in its own transaction.
type AdminLog struct{ DB *sqldb.Database }

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
	at            time.Time // zero: now
	actor         string    // empty: the service itself, or a command
	action        string
	subject       string
	before, after any
}

// logChange writes an entry of the administrators' log and, of a voucher, the event. (An order's is its move's.)
func logChange(d *sqldb.Database, tx *gorm.DB, c adminChange) error {
	if c.at.IsZero() {
		var err error
		if c.at, err = readClock(tx, d.Dialect); err != nil {
			return err
		}
	}
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

// Record writes an entry by itself, at the database's time, for what no transaction of the database does. Its caller
// records first and acts then: nothing is done without an entry.
func (l *AdminLog) Record(ctx context.Context, change model.AdminChange) error {
	return l.DB.Write(ctx, "log "+change.Action+" of "+change.Subject, func(tx *gorm.DB) error {
		entry := adminChange{actor: change.Actor, action: change.Action, subject: change.Subject}
		if change.Before != nil {
			entry.before = change.Before
		}
		return logChange(l.DB, tx, entry)
	})
}

// List reads one page, newest first. A cursor that is none of ours is VALIDATION.
func (l *AdminLog) List(ctx context.Context, q model.AdminLogQuery) (model.AdminLogPage, error) {
	page := model.AdminLogPage{Items: []model.AdminChange{}}
	if q.Actor != "" && !model.ValidUserID(q.Actor) || q.Subject != "" && !model.ValidID(q.Subject) {
		_, err := model.ParseCursor(q.Cursor)
		return page, err // there is no such user or subject; see take
	}
	at := func(r logRow) model.Cursor { return model.Cursor{At: r.ChangedAt, ID: strconv.FormatInt(r.ID, 10)} }
	rows, next, err := paged(ctx, l.DB, "list the administrators' log", q.Cursor, q.Limit, at,
		func(db *gorm.DB, after model.Cursor, most int) (*gorm.DB, error) {
			index := "PRIMARY"
			switch {
			case q.Subject != "":
				index = "admin_log_subject"
			case q.Actor != "":
				index = "admin_log_actor"
			}
			query := db.Table(behind(l.DB.Dialect, "admin_log", index, after.ID != "" && index != "PRIMARY"))
			if after.ID != "" {
				id, err := strconv.ParseInt(after.ID, 10, 64)
				if err != nil {
					return nil, model.Invalid("query.cursor", "is not a cursor of this list")
				}
				query = query.Where("id < ?", id)
			}
			query = having(having(query, "actor = ?", q.Actor), "subject = ?", q.Subject)
			return query.Order("id DESC").Limit(most), nil
		})
	page.NextCursor = next
	for _, row := range rows {
		page.Items = append(page.Items, row.change())
	}
	return page, err
}

func (r logRow) change() model.AdminChange {
	raw := func(text *string) json.RawMessage {
		if text == nil {
			return nil
		}
		return json.RawMessage(*text)
	}
	return model.AdminChange{
		At: r.ChangedAt, Actor: r.Actor, Action: r.Action, Subject: r.Subject, Before: raw(r.Was), After: raw(r.Became),
	}
}
