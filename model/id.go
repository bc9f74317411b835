package model

import "strings"

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
