package model

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// MaxIDLength bounds every id, in bytes.
const MaxIDLength = 64

// ValidID reports whether an id can exist: 1 to 64 of [A-Za-z0-9._-].
func ValidID(id string) bool { return wellFormed(id, false) }

// ValidUserID is ValidID for users, whose ids are as identity providers make them:
// they may also contain `:`, `|` and `@`.
func ValidUserID(id string) bool { return wellFormed(id, true) }

func wellFormed(id string, user bool) bool {
	if id == "" || len(id) > MaxIDLength {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		case user && (c == ':' || c == '|' || c == '@'):
		default:
			return false
		}
	}
	return true
}

// OrderID composes an order's id from a unique part that sorts by time and
// needs no coordination, and the voucher: `<unique>.<voucher id>`.
func OrderID(unique, voucherID string) string { return unique + "." + voucherID }

// VoucherOf tells the voucher of an order from its id alone.
func VoucherOf(orderID string) (voucherID string, ok bool) {
	unique, voucherID, found := strings.Cut(orderID, ".")
	if !found || unique == "" || !ValidID(voucherID) || !ValidID(orderID) {
		return "", false
	}
	return voucherID, true
}

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
