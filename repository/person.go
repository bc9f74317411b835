package repository

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
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

// heldByOrders are the columns with ids of users that are found by an order, heldByVouchers those by a voucher.
func heldByOrders() [][2]string {
	return [][2]string{{"order_history", "actor"}, {"refunds", "actor"}, {"uses", "used_by"}, {"uses", "undone_by"}}
}

func heldByVouchers() []string { return []string{"waitlist", "draw_entries", "draw_places"} }

const (
	erasedAtOnce = 200    // orders, or entries of the log, in one transaction: some ten milliseconds
	eventsLooked = 20_000 // events are looked through in one question
)

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

// Events are those that are kept of a user's orders, and of which some receiver may not have heard.
func (p *People) Events(ctx context.Context, userID string) (events []model.Event, err error) {
	err = p.eachEvents(ctx, userID, func(some []model.Event) error { events = append(events, some...); return nil })
	return events, err
}

// eachEvents reads the events of a user's orders, and looks through all that are kept: an index would cost each order.
func (p *People) eachEvents(ctx context.Context, userID string, found func([]model.Event) error) error {
	for last := int64(0); ; {
		var until *int64
		var some []model.Event
		err := p.DB.Browse(ctx, "look for the events of a user", func(db *gorm.DB) error {
			const next = "SELECT MAX(id) FROM (SELECT id FROM events WHERE id > ? ORDER BY id LIMIT ?) AS next"
			if err := db.Raw(next, last, eventsLooked).Scan(&until).Error; err != nil || until == nil {
				return err
			}
			return db.Where("id > ? AND id <= ? AND INSTR(data, ?) > 0", last, *until, named(userID)).Order("id").
				Find(&some).Error
		})
		if err != nil || until == nil {
			return err
		}
		if err := found(some); err != nil {
			return err
		}
		last = *until
	}
}

// named is how JSON of an order names its user. A user's id has no character that JSON escapes.
func named(userID string) string { return `"user_id":"` + userID + `"` }

// Erase replaces a user's id by one random pseudonym wherever it is held, and ends the account and its tokens. It works
// in short transactions; a call that ended on the way is repeated, and goes on with the same pseudonym. CONFLICT, with
// the orders: some are unpaid or paid; or an entry is not drawn yet. The account, if there is one, is returned disabled.
func (p *People) Erase(ctx context.Context, userID, by string) (ended *model.Account, err error) {
	if !model.ValidUserID(userID) {
		return nil, nil //nolint:nilnil // nothing is held of it; see take
	}
	e := erasing{People: p, erasure: erasure{UserID: userID}}
	for _, step := range []func(context.Context) error{e.begin, e.orders, e.acts, e.places, e.events} {
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
	for _, held := range heldByOrders() {
		table, column := held[0], held[1]
		err := tx.Exec("UPDATE "+table+" SET "+column+" = ? WHERE order_id IN ? AND "+column+" = ?", e.Pseudonym, orderIDs, e.UserID).Error
		if err != nil {
			return fmt.Errorf("erase a user in %s: %w", table, err)
		}
	}
	was, is := named(e.UserID), named(e.Pseudonym)
	err := tx.Exec("UPDATE admin_log SET was = REPLACE(was, ?, ?), became = REPLACE(became, ?, ?) WHERE subject IN ?",
		was, is, was, is, orderIDs).Error
	if err != nil {
		return fmt.Errorf("erase a user in what changed: %w", err)
	}
	return nil
}

// events erases the id in events that are kept. It is the last step: what moves orders after them tells the pseudonym.
func (e *erasing) events(ctx context.Context) error {
	return e.eachEvents(ctx, e.UserID, func(some []model.Event) error {
		for part := range slices.Chunk(some, erasedAtOnce) {
			err := e.write(ctx, "erase a user in events", func(tx *gorm.DB) error {
				return tx.Model(&part).Update("data", gorm.Expr("REPLACE(data, ?, ?)", named(e.UserID), named(e.Pseudonym))).Error
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
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
		for _, table := range heldByVouchers() {
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
