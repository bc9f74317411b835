package repository

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"seckill/model"
)

const (
	// defaultPage and longestPage are the contract's page sizes.
	defaultPage = 20
	longestPage = 100
	// streamRows are read at once for streams: a fraction of a megabyte, and few
	// enough questions that their number does not matter.
	streamRows = 500
)

// pageSize keeps a limit within the contract's bounds.
func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, longestPage)
}

// cursor is the last row of a page, newest first. Zero: the beginning.
type cursor struct {
	at time.Time
	id string
}

// String is the opaque form clients see: base64url of microseconds and id.
func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(c.at.UnixMicro(), 10) + " " + c.id))
}

// After is the cursor of the page that begins behind an order.
func After(order model.Order) string { return cursor{order.CreatedAt, order.ID}.String() }

// parseCursor reads what String has written; empty is the zero cursor.
func parseCursor(text string) (cursor, error) {
	if text == "" {
		return cursor{}, nil
	}
	refused := model.Invalid("query.cursor", "is not a cursor of this list")
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return cursor{}, refused
	}
	at, id, found := strings.Cut(string(plain), " ")
	micros, err := strconv.ParseInt(at, 10, 64)
	c := cursor{time.UnixMicro(micros).UTC(), id}
	if err != nil || !found || !model.ValidID(id) || !storableTime(c.at) || c.String() != text {
		return cursor{}, refused
	}
	return c, nil
}

// storableTime: DATETIME knows the years 1000 to 9999.
func storableTime(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1000 && year <= 9999
}

// newestFirst limits a query to what follows a cursor. The first condition is
// implied by the second; it is what the index on (…, created_at, id) can use.
func newestFirst(db *gorm.DB, after cursor, limit int) *gorm.DB {
	db = db.Order("created_at DESC, id DESC").Limit(limit)
	if after.id == "" {
		return db
	}
	return db.Where("created_at <= ?", after.at).
		Where("(created_at < ? OR id < ?)", after.at, after.id)
}
