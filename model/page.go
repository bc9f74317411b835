package model

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// The contract's page sizes.
const (
	defaultPage = 20
	longestPage = 100
)

// PageSize keeps a limit within the contract's bounds.
func PageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, longestPage)
}

// Cursor is the last row of a page, newest first. Zero: the beginning.
type Cursor struct {
	At time.Time
	ID string
}

// String is the opaque form clients see: base64url of microseconds and id.
func (c Cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(c.At.UnixMicro(), 10) + " " + c.ID))
}

// ParseCursor reads what String has written; empty is the zero Cursor. Anything else is VALIDATION.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	refused := Invalid("query.cursor", "is not a cursor of this list")
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Cursor{}, refused
	}
	at, id, found := strings.Cut(string(plain), " ")
	micros, err := strconv.ParseInt(at, 10, 64)
	c := Cursor{time.UnixMicro(micros).UTC(), id}
	if err != nil || !found || !ValidID(id) || !StorableTime(c.At) || c.String() != text {
		return Cursor{}, refused
	}
	return c, nil
}

// StorableTime reports whether the database can keep an instant: DATETIME knows the years 1000 to 9999.
func StorableTime(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1000 && year <= 9999
}
