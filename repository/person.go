package repository

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// People knows what is held of a user id beside its orders, and erases it.
type People struct{ DB *sqldb.Database }

// erasure is a user id that is being erased. Its row is gone once nothing is left of the id: nobody can link the two.
type erasure struct {
	UserID    string
	Pseudonym string
}

// TableName implements gorm's Tabler.
func (erasure) TableName() string { return "erasures" }

const erasedAtOnce = 200 // orders, or entries of the log, in one transaction: some ten milliseconds

// Places are a user's places on waitlists, and entries of draws.
func (p *People) Places(ctx context.Context, userID string) (waits []model.WaitlistPlace, entries []model.Entry, err error) {
	if !model.ValidUserID(userID) {
		return nil, nil, nil // see take
	}
	var rows []entryRow
	err = p.DB.Browse(ctx, "list the places of a user", func(db *gorm.DB) error {
		return cmp.Or(db.Raw(sqlOf(p.DB.Dialect, "person_places"), userID).Scan(&waits).Error,
			db.Raw(sqlOf(p.DB.Dialect, "person_entries"), userID).Scan(&rows).Error)
	})
	for _, row := range rows {
		entries = append(entries, row.entry())
	}
	return waits, entries, err
}

// Find reads the users whom words or the code of a hash find, at most twenty; of other issuers' they have no name.
func (p *People) Find(ctx context.Context, words string, codeHash []byte) (found []model.Account, err error) {
	part, end, like := "", "", ""
	if model.ValidUserID(words) { // otherwise they are no part of an id; see take
		part, end, like = words, words+"\x7f", "%"+likeness.Replace(words)+"%"
	}
	err = p.DB.Browse(ctx, "find users", func(db *gorm.DB) error {
		return db.Raw(sqlOf(p.DB.Dialect, "person_find"), map[string]any{
			"part": part, "end": end, "like": like, "lower": strings.ToLower(like), "words": words, "code": codeHash,
		}).Scan(&found).Error
	})
	return found, err
}

// Events are those of orders that no receiver has yet.
func (p *People) Events(ctx context.Context, orderIDs []string) ([]model.Event, error) {
	return list[model.Event](ctx, p.DB.Browse, "list the events of a user", func(db *gorm.DB) *gorm.DB {
		return db.Where("subject IN ?", append(orderIDs, "")).Order("id")
	})
}

// Erase replaces a user's id by one random pseudonym wherever it is held, and ends the account and its tokens. It works
// in short transactions; a call that ended on the way is repeated, and goes on with the same pseudonym. CONFLICT, with
// the orders: some are unpaid or paid; or an entry is not drawn yet. The account, if there is one, is returned disabled.
func (p *People) Erase(ctx context.Context, userID, by string) (ended *model.Account, err error) {
	if !model.ValidUserID(userID) {
		return nil, nil //nolint:nilnil // nothing is held of it; see take
	}
	e := erasing{People: p, erasure: erasure{UserID: userID}}
	for _, step := range []func(context.Context) error{e.begin, e.orders, e.acts, e.places} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	err = p.write(ctx, "end an erasure", func(tx *gorm.DB) error {
		gone := tx.Exec("DELETE FROM erasures WHERE user_id = ?", userID)
		if gone.Error != nil || gone.RowsAffected == 0 {
			return cmp.Or(gone.Error, sqldb.ErrNothingToWrite)
		}
		return logChange(p.DB, tx, adminChange{actor: by, action: model.ActionUserErase, subject: e.Pseudonym})
	})
	return e.account, err
}

func (p *People) write(ctx context.Context, action string, work func(tx *gorm.DB) error) error {
	return p.DB.WriteRepeatable(ctx, action, func(tx *gorm.DB, _ bool) error { return work(tx) })
}

type erasing struct {
	*People
	erasure

	account *model.Account
}

// begin refuses, or keeps the pseudonym and ends the account. Its row stays under its id, without a name, as long as
// instances have to know that its tokens have ended; see Purges.PurgeAccounts.
func (e *erasing) begin(ctx context.Context) error {
	return e.write(ctx, "begin an erasure", func(tx *gorm.DB) error {
		var live []string
		err := tx.Table("orders").Where("user_id = ? AND status IN ?", e.UserID, unused()).Limit(erasedAtOnce).Pluck("id", &live).Error
		if err != nil {
			return err
		}
		if len(live) > 0 {
			return model.StillLive(live)
		}
		undrawn, err := exists(tx, "SELECT 1 FROM draws JOIN draw_entries ON draw_entries.voucher_id = draws.voucher_id AND user_id = ? WHERE drawn_at IS NULL", e.UserID)
		if err != nil {
			return err
		}
		if undrawn {
			return model.Conflict("The user has an entry of a draw that is not drawn yet.")
		}
		known, err := first[erasure](locked(tx).Where("user_id = ?", e.UserID), "the erasure")
		if err != nil {
			return err
		}
		if known != nil {
			e.Pseudonym = known.Pseudonym
			return e.endAccount(tx)
		}
		e.Pseudonym = model.ErasedPrefix + rand.Text()
		return cmp.Or(tx.Create(&e.erasure).Error, e.endAccount(tx))
	})
}

func (e *erasing) endAccount(tx *gorm.DB) error {
	row, err := first[accountRow](locked(tx).Where("id = ?", e.UserID), "the account")
	if err != nil || row == nil {
		return err
	}
	now, err := readClock(tx, e.DB.Dialect)
	if err != nil {
		return err
	}
	name := strings.ToLower(rand.Text())
	row.Account = model.Account{
		ID: row.ID, Username: name, Role: model.RoleUser, CreatedAt: row.CreatedAt, Version: row.Version + 1,
		Disabled: true, ChangedAt: &now,
	}
	row.UsernameKey, e.account = name, &row.Account
	return tx.Save(row).Error
}

// unused are the statuses of orders that a user still has something of.
func unused() []model.OrderStatus { return []model.OrderStatus{model.OrderUnpaid, model.OrderPaid} }

// orders erases the id in the user's orders and in what is kept of them, some at once.
func (e *erasing) orders(ctx context.Context) error {
	return e.each(ctx, "erase a user in orders", func(tx *gorm.DB) (int, error) {
		var rows []model.Order
		err := locked(tx).Where("user_id = ? AND status NOT IN ?", e.UserID, unused()).Limit(erasedAtOnce).Find(&rows).Error
		if err != nil || len(rows) == 0 {
			return 0, err
		}
		ids := make([]string, len(rows))
		var marks []model.Release
		for i, row := range rows {
			ids[i] = row.ID
			if row.Live() { // a hot copy has a mark of the user, which becomes one of the pseudonym
				mark := row.Release()
				mark.HeirID, mark.HeirUserID = row.ID, e.Pseudonym
				marks = append(marks, mark)
			}
		}
		if err := tx.Exec("UPDATE orders SET user_id = ? WHERE id IN ?", e.Pseudonym, ids).Error; err != nil {
			return 0, err
		}
		if err := e.replace(tx, ids); err != nil {
			return 0, err
		}
		mode, _, err := lockMode(tx, e.DB.Dialect)
		if err == nil && mode == model.ModeAsync {
			err = insertReleases(tx, marks)
		}
		return len(rows), err
	})
}

// acts erases the id where an administrator has done something, and where the log is about the account.
func (e *erasing) acts(ctx context.Context) error {
	return e.each(ctx, "erase a user in the log", func(tx *gorm.DB) (int, error) {
		var rows []logRow
		err := tx.Raw("SELECT * FROM (SELECT * FROM admin_log WHERE actor = ? LIMIT ?) AS acted UNION "+
			"SELECT * FROM (SELECT * FROM admin_log WHERE subject = ? LIMIT ?) AS changed",
			e.UserID, erasedAtOnce, e.UserID, erasedAtOnce).Scan(&rows).Error
		if err != nil || len(rows) == 0 {
			return 0, err
		}
		subjects := make([]string, len(rows))
		for i, row := range rows {
			subjects[i] = row.Subject
			columns := map[string]any{}
			if row.Actor == e.UserID {
				columns["actor"] = e.Pseudonym
			}
			if row.Subject == e.UserID { // before and after name the account
				columns["subject"], columns["was"], columns["became"] = e.Pseudonym, nil, nil
			}
			if err := tx.Table("admin_log").Where("id = ?", row.ID).Updates(columns).Error; err != nil {
				return 0, err
			}
		}
		return len(rows), e.replace(tx, subjects)
	})
}

// replace erases the id in what is kept of orders.
func (e *erasing) replace(tx *gorm.DB, orderIDs []string) error {
	for _, held := range []struct{ table, column string }{
		{"order_history", "actor"}, {"refunds", "actor"}, {"uses", "used_by"}, {"uses", "undone_by"},
	} {
		table, column := held.table, held.column
		err := tx.Exec("UPDATE "+table+" SET "+column+" = ? WHERE order_id IN ? AND "+column+" = ?", e.Pseudonym, orderIDs, e.UserID).Error
		if err != nil {
			return fmt.Errorf("erase a user in %s: %w", table, err)
		}
	}
	was, is := `"user_id":"`+e.UserID+`"`, `"user_id":"`+e.Pseudonym+`"`
	err := tx.Exec("UPDATE admin_log SET was = REPLACE(was, ?, ?), became = REPLACE(became, ?, ?) WHERE subject IN ?",
		was, is, was, is, orderIDs).Error
	if err != nil {
		return fmt.Errorf("erase a user in what changed: %w", err)
	}
	var waiting []int64
	if err := tx.Table("events").Where("subject IN ?", orderIDs).Pluck("id", &waiting).Error; err != nil || len(waiting) == 0 {
		return err
	}
	return tx.Exec("UPDATE events SET data = REPLACE(data, ?, ?) WHERE id IN ?", was, is, waiting).Error
}

// places erases the id on waitlists and in draws, whose proofs are hashes and stay.
func (e *erasing) places(ctx context.Context) error {
	waits, entries, err := e.Places(ctx, e.UserID)
	if err != nil {
		return err
	}
	vouchers := []string{""}
	for _, place := range waits {
		vouchers = append(vouchers, place.VoucherID)
	}
	for _, entry := range entries {
		vouchers = append(vouchers, entry.VoucherID)
	}
	return e.write(ctx, "erase a user's places", func(tx *gorm.DB) error {
		for _, table := range []string{"waitlist", "draw_entries", "draw_places"} {
			err := tx.Exec("UPDATE "+table+" SET user_id = ? WHERE voucher_id IN ? AND user_id = ?", e.Pseudonym, vouchers, e.UserID).Error
			if err != nil {
				return fmt.Errorf("erase a user in %s: %w", table, err)
			}
		}
		return nil
	})
}

// each repeats short transactions until one finds nothing more.
func (e *erasing) each(ctx context.Context, action string, some func(tx *gorm.DB) (found int, err error)) error {
	for found := 1; found > 0; {
		err := e.write(ctx, action, func(tx *gorm.DB) (err error) {
			found, err = some(tx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
