package repository

import (
	"context"
	"strings"

	"gorm.io/gorm"

	"seckill/model"
)

// Accounts keeps the accounts of the users that log in here.
type Accounts struct{ db *Database }

// NewAccounts keeps accounts in a database.
func NewAccounts(db *Database) *Accounts { return &Accounts{db: db} }

// accountRow is a row of accounts. Usernames are ASCII, so that lower case is
// all it takes to compare them without regard to case.
type accountRow struct {
	model.Account `gorm:"embedded"`
	UsernameKey   string
}

// TableName implements gorm's Tabler.
func (accountRow) TableName() string { return "accounts" }

func usernameKey(username string) string { return strings.ToLower(username) }

// Create makes an account; CONFLICT when the username is taken, whatever its
// case. A zero CreatedAt becomes the database's now.
func (a *Accounts) Create(ctx context.Context, account model.Account) error {
	return a.db.write(ctx, "create account "+account.ID, func(tx *gorm.DB) error {
		row := accountRow{Account: account, UsernameKey: usernameKey(account.Username)}
		if row.CreatedAt = stored(row.CreatedAt); row.CreatedAt.IsZero() {
			now, err := readClock(tx, a.db.dialect)
			if err != nil {
				return err
			}
			row.CreatedAt = now
		}
		err := tx.Create(&row).Error
		if classify(err) == faultDuplicate {
			return model.Conflict("The username is taken.")
		}
		return err
	})
}

// ByUsername finds an account without regard to case; NOT_FOUND when there is none.
func (a *Accounts) ByUsername(ctx context.Context, username string) (model.Account, error) {
	var row accountRow
	err := a.db.read(ctx, "get the account of a username", func(db *gorm.DB) error {
		if !model.ValidID(username) { // its letters are those of usernames; see possible
			return model.NotFound("account")
		}
		return notFound(db.Where("username_key = ?", usernameKey(username)).Take(&row).Error, "account")
	})
	return row.Account, err
}
