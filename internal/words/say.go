package words

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// form is a text with values in it, by which a finished English one is known again: errors
// are made in English, far from the person who reads them.
type form struct {
	english *regexp.Regexp // a group for each value
	text    string         // with a %s for each value
}

// verb is what stands for a value.
var verb = regexp.MustCompile(`%(\[\d+\])?[-+# 0-9.]*[sdvqUf]`)

func newForms(texts map[string]string) []form {
	var keys []string
	for key := range maps.Keys(texts) {
		if verb.MatchString(key) {
			keys = append(keys, key)
		}
	}
	// The one with most words says most about a text that several fit.
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	forms := make([]form, 0, len(keys))
	for _, key := range keys {
		parts := verb.Split(key, -1)
		for i, part := range parts {
			parts[i] = regexp.QuoteMeta(part)
		}
		forms = append(forms, form{
			english: regexp.MustCompile("^" + strings.Join(parts, "(.+?)") + "$"),
			text:    verb.ReplaceAllString(texts[key], "%${1}s"),
		})
	}
	return forms
}

// Say is a finished English text in this language, and whether it is known. The values in it
// stay as they are, unless they have a text of their own.
func (l *Language) Say(text string) (said string, known bool) {
	if l.Tag == English {
		return text, true
	}
	if said, known = l.texts[text]; known {
		return said, true
	}
	for _, form := range l.forms {
		values := form.english.FindStringSubmatch(text)
		if values == nil {
			continue
		}
		filled := make([]any, 0, len(values))
		for _, value := range values[1:] {
			own, _ := l.Say(value) // which is shorter than the text
			filled = append(filled, own)
		}
		return fmt.Sprintf(form.text, filled...), true
	}
	return text, false
}
