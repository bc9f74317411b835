package repository

import (
	"cmp"
	"context"
	"fmt"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Limits keeps the rate limits that an administrator has set.
type Limits struct{ db *sqldb.Database }

// NewLimits keeps limits in a database.
func NewLimits(db *sqldb.Database) *Limits { return &Limits{db: db} }

// limitRow is the row of rate_limits, and the name of the database.
type limitRow struct {
	UserRate, AddrRate *string
	Deployment         string
}

// Read tells which limits are set.
func (l *Limits) Read(ctx context.Context) (model.LimitRecord, error) {
	var record model.LimitRecord
	err := l.db.Read(ctx, "read the rate limits", func(db *gorm.DB) (err error) {
		record, err = readLimits(db)
		return err
	})
	return record, err
}

// loggedLimits is what administrators have set.
type loggedLimits struct {
	User string `json:"user,omitempty"`
	Addr string `json:"addr,omitempty"`
}

func loggedLimitsOf(set model.LimitsPatch) (l loggedLimits) {
	if set.User != nil {
		l.User = set.User.String()
	}
	if set.Addr != nil {
		l.Addr = set.Addr.String()
	}
	return l
}

// Change sets the limits that the patch has, and tells which are set then. The
// administrators' log has it; what is set already is no change.
func (l *Limits) Change(ctx context.Context, patch model.LimitsPatch) (record model.LimitRecord, err error) {
	err = l.db.WriteRepeatable(ctx, "change the rate limits", func(tx *gorm.DB, _ bool) error {
		var id int // locked first, so that each of two changes logs what it has found
		err := tx.Table("rate_limits").Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Select("id").Take(&id).Error
		if err != nil {
			return fmt.Errorf("lock the rate limits: %w", err)
		}
		if record, err = readLimits(tx); err != nil {
			return err
		}
		before := loggedLimitsOf(record.Set)
		record.Set.User, record.Set.Addr = cmp.Or(patch.User, record.Set.User), cmp.Or(patch.Addr, record.Set.Addr)
		after := loggedLimitsOf(record.Set)
		if after == before {
			return sqldb.ErrNothingToWrite
		}
		now, err := readClock(tx, l.db.Dialect)
		if err != nil {
			return err
		}
		if err := tx.Exec("UPDATE rate_limits SET user_rate = ?, addr_rate = ? WHERE id = 1", rateText(record.Set.User), rateText(record.Set.Addr)).Error; err != nil {
			return err
		}
		return logChange(l.db, tx, adminChange{
			at: now, actor: patch.By, action: model.ActionLimitsChange, subject: model.SubjectLimits, before: before, after: after,
		})
	})
	return record, err
}

func readLimits(db *gorm.DB) (record model.LimitRecord, err error) {
	var row limitRow
	if err := db.Raw("SELECT user_rate, addr_rate, deployment FROM rate_limits, order_mode").Take(&row).Error; err != nil {
		return record, fmt.Errorf("read the row of rate limits: %w", err)
	}
	record.Deployment = row.Deployment
	if record.Set.User, err = rateOf(row.UserRate); err == nil {
		record.Set.Addr, err = rateOf(row.AddrRate)
	}
	return record, err
}

func rateText(rate *model.Rate) *string {
	if rate == nil {
		return nil
	}
	return new(rate.String())
}

func rateOf(text *string) (*model.Rate, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // none is set
	}
	rate, err := model.ParseRate(*text)
	return &rate, err
}
