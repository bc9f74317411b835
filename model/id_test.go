package model_test

import (
	"strings"
	"testing"
	"time"

	"seckill/model"
)

// TestIDs: users are named by identity providers, everything else by us.
func TestIDs(t *testing.T) {
	t.Parallel()
	for id, of := range map[string]struct{ user, other bool }{
		"a": {true, true}, "A-1_z.9": {true, true}, strings.Repeat("x", 64): {true, true},
		"github:42": {true, false}, "auth0|64b7f0c2": {true, false}, "google-oauth2|1109": {true, false}, "ann@shop.example": {true, false}, "@|:": {true, false},
		"": {false, false}, strings.Repeat("x", 65): {false, false}, "a b": {false, false}, "a/b": {false, false}, "a{b}": {false, false}, "a*": {false, false},
		"ä": {false, false}, "a\x00": {false, false}, "a+b@shop.example": {false, false}, "a%b": {false, false}, "a'b": {false, false}, "~": {false, false}, "}": {false, false},
	} {
		if user, other := model.ValidUserID(id), model.ValidID(id); user != of.user || other != of.other {
			t.Errorf("%q: of a user %t, of something else %t", id, user, other)
		}
	}
}

// FuzzCursor: whatever a client sends, it is a cursor that the database can look for and
// that is written just so, or VALIDATION of that one parameter.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{"", "nonsense", "AAAA", "=", "MCBh", "MCBh=", "MCAg", "LTEgYQ", "KzEgYQ", "MDEgYQ", "OTk5OTk5OTk5OTk5OTk5OTk5OSBh", "\x00", "茶"} {
		f.Add(text)
	}
	f.Add(model.Cursor{At: time.Date(2026, 11, 22, 10, 0, 0, 123456000, time.UTC), ID: "0199c0de-7a11-7000-8000-000000000001"}.String())
	f.Add(model.Cursor{At: time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC), ID: "o1.v1"}.String())
	f.Add(model.Cursor{At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), ID: "o1.v1"}.String())
	f.Add(model.Cursor{At: time.Date(999, 1, 1, 0, 0, 0, 0, time.UTC), ID: "o1.v1"}.String())
	f.Add(model.Cursor{At: time.Unix(0, 0), ID: "no id"}.String())
	f.Fuzz(func(t *testing.T, text string) {
		c, err := model.ParseCursor(text)
		if err != nil {
			if model.CodeOf(err) != model.CodeValidation || c != (model.Cursor{}) {
				t.Errorf("%q: %+v, %v", text, c, err)
			}
			return
		}
		if text == "" {
			if c != (model.Cursor{}) {
				t.Errorf("no cursor is %+v", c)
			}
			return
		}
		if c.String() != text || !model.ValidID(c.ID) || !model.StorableTime(c.At) || c.At.Location() != time.UTC || !c.At.Equal(c.At.Truncate(time.Microsecond)) {
			t.Errorf("%q is taken for %+v", text, c)
		}
	})
}

// FuzzCursorOfRow: every row that the database can keep has a cursor that is read back.
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
