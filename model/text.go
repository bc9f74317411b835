package model

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A voucher's texts are read by people, beside those of others. What cannot be seen has no place in them: titles that
// look alike are alike, no text turns its line around, none carries a message for machines alone (Unicode Technical
// Report 36; category Cf and Default_Ignorable_Code_Point). Allowed is what people write: the zero-width joiner and
// non-joiner inside a word of a script that joins letters, the joiner between two pictures, one variation selector
// behind a sign or a digit. Arabic's signs before a number are visible. Refused, though harmless: soft hyphens, marks
// of direction, flags of tag characters, variants of single Chinese characters.

const (
	nonJoiner    = '\u200c'
	joiner       = '\u200d'
	textSelector = '\ufe0e'
	emojiStyle   = '\ufe0f'
	brailleBlank = '\u2800' // a symbol for Unicode, and empty
)

func isBlank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r != brailleBlank && !hidden(r) && unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S, unicode.Co)
	})
}

// invisible finds a text's first character that nobody sees, and its position from 1. Allowed ones do not count.
func invisible(text, allowed string) (r rune, position int, found bool) {
	runes := []rune(text)
	for i, r := range runes {
		if !hidden(r) || strings.ContainsRune(allowed, r) {
			continue
		}
		if i > 0 && writes(runes[i-1], r, runes[i+1:]) {
			continue
		}
		return r, i + 1, true
	}
	return 0, 0, false
}

// hidden reports whether a character has no shape of its own.
func hidden(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Noncharacter_Code_Point) &&
		!unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// writes reports whether a hidden character changes how its neighbours look.
func writes(before, r rune, after []rune) bool {
	// A picture ends with itself, its skin colour, or the mark of an emoji.
	ends := picture(before) || before == emojiStyle || before >= '\U0001f3fb' && before <= '\U0001f3ff'
	switch r {
	case textSelector, emojiStyle:
		return unicode.In(before, unicode.S, unicode.N, unicode.P) || before == 'ℹ'
	case joiner:
		return len(after) > 0 && (ends && picture(after[0]) || joins(before) && joins(after[0]))
	case nonJoiner: // a suffix follows foreign words and numbers too
		return len(after) > 0 && (joins(before) && inWord(after[0]) || inWord(before) && joins(after[0]))
	}
	return false
}

// picture reports whether a character is one, or an arrow that emoji are joined with.
func picture(r rune) bool { return unicode.Is(unicode.So, r) || r == '↔' || r == '↕' }

func inWord(r rune) bool { return unicode.In(r, unicode.L, unicode.M, unicode.N) }

// joins reports whether a letter, or a mark on one, is of a script in which the joiners mean something.
func joins(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M) && unicode.In(r,
		unicode.Arabic, unicode.Syriac, unicode.Mandaic, unicode.Mongolian, unicode.Nko, unicode.Manichaean,
		unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya, unicode.Tamil,
		unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar,
		unicode.Tibetan)
}

// MaxIDLength bounds every id, in bytes.
const MaxIDLength = 64

const idCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// OfIDs reports whether a text has characters, and only those of ids: [A-Za-z0-9._-].
func OfIDs(text string) bool { return text != "" && strings.TrimLeft(text, idCharacters) == "" }

// ValidID reports whether an id can exist: 1 to 64 of [A-Za-z0-9._-].
func ValidID(id string) bool { return len(id) <= MaxIDLength && OfIDs(id) }

// ValidUserID is ValidID for users, whose ids come from identity providers: they may also contain `:`, `|` and `@`.
func ValidUserID(id string) bool {
	return id != "" && len(id) <= MaxIDLength && strings.TrimLeft(id, idCharacters+":|@") == ""
}

// OrderID makes an order's id from a unique part that sorts by time, and the voucher: `<unique>.<voucher id>`.
func OrderID(unique, voucherID string) string { return unique + "." + voucherID }

// VoucherOf tells the voucher of an order from its id alone.
func VoucherOf(orderID string) (voucherID string, ok bool) {
	unique, voucherID, found := strings.Cut(orderID, ".")
	if !found || unique == "" || !ValidID(voucherID) || !ValidID(orderID) {
		return "", false
	}
	return voucherID, true
}

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
