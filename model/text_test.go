package model_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestTextsOfPeople(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Chinese": "双人咖啡券", "Hebrew and Latin": "קפה לשניים (Coffee)",
		"Persian with a non-joiner": "می\u200cخواهم", "a suffix on a foreign word": "PDF\u200cها",
		"Sinhala with a joiner": "ශ්\u200dරී", "Hindi with a joiner": "क्\u200dष",
		"a family": "👨\u200d👩\u200d👧", "an astronaut of some colour": "👩🏽\u200d🚀",
		"a heart on fire": "❤\ufe0f\u200d🔥", "a rainbow flag": "🏳\ufe0f\u200d🌈",
		"a shaking head": "🙂\u200d↔\ufe0f", "a keycap": "1\ufe0f⃣",
		"information": "ℹ\ufe0f", "an Arabic number sign": "\u0600١٢٣",
		"accents": "Cafe\u0301 Zalgo\u0316\u0317", "spaces that are no ASCII": "10\u00a0€ \u3000茶",
	} {
		check.Is(t, name, model.VoucherPatch{Title: &text, Description: &text}.Check(), nil)
	}
}

func TestTextsThatCannotBeSeen(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"right-to-left override": "Coffee \u202eeerF", "right-to-left isolate": "Coffee \u2067x\u2069",
		"right-to-left mark": "Coffee\u200f", "zero-width space": "Cof\u200bfee",
		"byte order mark": "\ufeffCoffee", "word joiner": "Cof\u2060fee",
		"soft hyphen": "Cof\u00adfee", "joiner between Latin letters": "Cof\u200dfee",
		"non-joiner between the same": "Cof\u200cfee", "non-joiner at the end": "می\u200c",
		"two non-joiners": "می\u200c\u200cخواهم", "joiner behind a picture": "🔥\u200d",
		"selector behind a letter": "C\ufe0foffee", "two selectors": "❤\ufe0f\ufe0f",
		"variant of a character": "葛\U000e0100", "tags": "Coffee\U000e0041\U000e0042",
		"line separator": "Coffee\u2028free", "Hangul filler": "Cof\u3164fee",
		"grapheme joiner": "Cof\u034ffee", "noncharacter": "Coffee\uffff",
		"escape": "Coffee\x1b[2J", "delete": "Coffee\x7f",
		"next line": "Coffee\u0085",
	} {
		err := model.VoucherPatch{Title: &text, Description: &text}.Check()
		check.Equal(t, name, strings.Join(wrongFields(t, err), " "), "body.title body.description")
	}
	for _, blank := range []string{"", " ", "\u00a0\u3000", "\u2800", "\u3164", "\u200b", "\u0301", "\n", "\u2003\u2800"} {
		check.Equal(t, fmt.Sprintf("the blank title %q", blank),
			len(wrongFields(t, model.VoucherPatch{Title: &blank}.Check())), 1)
	}
	lines := "first\n\tsecond\r\n"
	check.Must(t, model.VoucherPatch{Description: &lines}.Check())
}

// TestIDs: users are named by identity providers, everything else by us.
func TestIDs(t *testing.T) {
	t.Parallel()
	for id, of := range map[string]struct{ user, other bool }{
		"a": {true, true}, "A-1_z.9": {true, true}, strings.Repeat("x", 64): {true, true},
		"github:42": {true, false}, "auth0|64b7f0c2": {true, false}, "google-oauth2|1109": {true, false}, "ann@shop.example": {true, false}, "@|:": {true, false},
		"": {false, false}, strings.Repeat("x", 65): {false, false}, "a b": {false, false}, "a/b": {false, false}, "a{b}": {false, false}, "a*": {false, false},
		"ä": {false, false}, "a\x00": {false, false}, "a+b@shop.example": {false, false}, "a%b": {false, false}, "a'b": {false, false}, "~": {false, false}, "}": {false, false},
	} {
		check.Equal(t, id+" of a user", model.ValidUserID(id), of.user)
		check.Equal(t, id+" of something else", model.ValidID(id), of.other)
	}
}

// Whatever a client sends is a cursor that databases can look for, written just so, or VALIDATION of that parameter.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{"", "nonsense", "AAAA", "=", "MCBh", "MCBh=", "MCAg", "LTEgYQ", "KzEgYQ", "MDEgYQ", "OTk5OTk5OTk5OTk5OTk5OTk5OSBh", "\x00", "茶"} {
		f.Add(text)
	}
	f.Add(model.Cursor{
		At: time.Date(2026, 11, 22, 10, 0, 0, 123456000, time.UTC),
		ID: "0199c0de-7a11-7000-8000-000000000001",
	}.String())
	f.Add(model.Cursor{At: time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC), ID: "o1.v1"}.String())
	f.Add(model.Cursor{At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), ID: "o1.v1"}.String())
	f.Add(model.Cursor{At: time.Date(999, 1, 1, 0, 0, 0, 0, time.UTC), ID: "o1.v1"}.String())
	f.Add(model.Cursor{At: time.Unix(0, 0), ID: "no id"}.String())
	f.Fuzz(func(t *testing.T, text string) {
		c, err := model.ParseCursor(text)
		if err != nil {
			check.That(t, model.CodeOf(err) == model.CodeValidation && c == model.Cursor{}, "%q: %+v, %v", text, c, err)
			return
		}
		whole := c.String() == text && model.ValidID(c.ID) && model.StorableTime(c.At) && c.At.Location() == time.UTC &&
			c.At.Equal(c.At.Truncate(time.Microsecond))
		check.That(t, whole || text == "" && c == model.Cursor{}, "%q is taken for %+v", text, c)
	})
}

func FuzzCursorOfRow(f *testing.F) {
	for _, id := range []string{"o1.v1", "a", ".", "", "no id", "a b"} {
		f.Add(int64(0), id)
		f.Add(int64(1<<53), id)
		f.Add(int64(-1), id)
	}
	f.Fuzz(func(t *testing.T, micros int64, id string) {
		at := time.UnixMicro(micros).UTC()
		c := model.Cursor{At: at, ID: id}
		read, err := model.ParseCursor(c.String())
		if whole := model.ValidID(id) && model.StorableTime(at); (err == nil) != whole || whole && read != c {
			t.Errorf("%+v is read as %+v, %v", c, read, err)
		}
	})
}
