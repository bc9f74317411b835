package repository

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// resolution is what the DATETIME columns keep; times are cut to it before
// they are compared with what the database gives back.
const resolution = time.Microsecond

// stored is an instant as the database keeps it.
func stored(t time.Time) time.Time { return t.UTC().Truncate(resolution) }

// clock reads the database's clock, which MySQL gives as a time and SQLite as
// microseconds since 1970.
type clock struct{ time.Time }

// Scan implements sql.Scanner.
func (c *clock) Scan(value any) error {
	switch value := value.(type) {
	case time.Time:
		c.Time = value.UTC()
	case int64:
		c.Time = time.UnixMicro(value).UTC()
	default:
		return fmt.Errorf("read the database's clock: unexpected %T", value)
	}
	return nil
}

// Value implements driver.Valuer.
func (c clock) Value() (driver.Value, error) { return c.Time, nil }

// readClock reads the database's clock, as its columns keep it.
func readClock(tx *gorm.DB, d sqldb.Dialect) (time.Time, error) {
	var now clock
	if err := tx.Raw("SELECT " + d.Now).Row().Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return stored(now.Time), nil
}

// validIDs are the ids that can exist. SQL must not be asked for others: it
// ignores blanks at the end, and refuses to compare ASCII with other letters.
func validIDs(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !model.ValidID(id) })
}
