package repository

import (
	"database/sql/driver"
	"fmt"
	"time"
)

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
