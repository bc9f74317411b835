package model_test

import (
	"strings"
	"testing"

	"seckill/model"
)

// What people write is accepted, in any language.
func TestTextsOfPeople(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Chinese":                     "双人咖啡券",
		"Hebrew and Latin":            "קפה לשניים (Coffee)",
		"Persian with a non-joiner":   "می\u200cخواهم",
		"a suffix on a foreign word":  "PDF\u200cها",
		"Sinhala with a joiner":       "ශ්\u200dරී",
		"Hindi with a joiner":         "क्\u200dष",
		"a family":                    "👨\u200d👩\u200d👧",
		"an astronaut of some colour": "👩🏽\u200d🚀",
		"a heart on fire":             "❤\ufe0f\u200d🔥",
		"a rainbow flag":              "🏳\ufe0f\u200d🌈",
		"a shaking head":              "🙂\u200d↔\ufe0f",
		"a keycap":                    "1\ufe0f⃣",
		"information":                 "ℹ\ufe0f",
		"an Arabic number sign":       "\u0600١٢٣",
		"accents":                     "Cafe\u0301 Zalgo\u0316\u0317",
		"spaces that are no ASCII":    "10\u00a0€ \u3000茶",
	} {
		if err := (model.VoucherPatch{Title: &text, Description: &text}).Check(); err != nil {
			t.Errorf("%s (%q): %v", name, text, err)
		}
	}
}

func TestTextsThatCannotBeSeen(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"right-to-left override":       "Coffee \u202eeerF",
		"right-to-left isolate":        "Coffee \u2067x\u2069",
		"right-to-left mark":           "Coffee\u200f",
		"zero-width space":             "Cof\u200bfee",
		"byte order mark":              "\ufeffCoffee",
		"word joiner":                  "Cof\u2060fee",
		"soft hyphen":                  "Cof\u00adfee",
		"joiner between Latin letters": "Cof\u200dfee",
		"non-joiner between the same":  "Cof\u200cfee",
		"non-joiner at the end":        "می\u200c",
		"two non-joiners":              "می\u200c\u200cخواهم",
		"joiner behind a picture":      "🔥\u200d",
		"selector behind a letter":     "C\ufe0foffee",
		"two selectors":                "❤\ufe0f\ufe0f",
		"variant of a character":       "葛\U000e0100",
		"tags":                         "Coffee\U000e0041\U000e0042",
		"line separator":               "Coffee\u2028free",
		"Hangul filler":                "Cof\u3164fee",
		"grapheme joiner":              "Cof\u034ffee",
		"noncharacter":                 "Coffee\uffff",
		"escape":                       "Coffee\x1b[2J",
		"delete":                       "Coffee\x7f",
		"next line":                    "Coffee\u0085",
	} {
		err := model.VoucherPatch{Title: &text, Description: &text}.Check()
		if got := strings.Join(wrongFields(t, err), " "); got != "body.title body.description" {
			t.Errorf("%s (%q): the fields %q are refused, want both", name, text, got)
		}
	}
	for _, blank := range []string{"", " ", "\u00a0\u3000", "\u2800", "\u3164", "\u200b", "\u0301", "\n", "\u2003\u2800"} {
		if got := wrongFields(t, model.VoucherPatch{Title: &blank}.Check()); len(got) != 1 {
			t.Errorf("the blank title %q: the fields %q are refused", blank, got)
		}
	}
	lines := "first\n\tsecond\r\n"
	if err := (model.VoucherPatch{Description: &lines}).Check(); err != nil {
		t.Errorf("a description of two lines: %v", err)
	}
}
