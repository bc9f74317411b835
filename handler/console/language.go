package console

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	xlanguage "golang.org/x/text/language"

	"seckill/model"
)

// words are the Chinese texts, by the English ones that the pages and the services have,
// and the English texts for what is a word of programs.
//
//go:embed text
var words embed.FS

// The languages of the console; the first is for everybody whose own is not among them.
const (
	english = "en"
	chinese = "zh"
)

// language is one language of the console.
type language struct {
	Tag   string            // of BCP 47
	words map[string]string // by the text of the page; what is absent is said as it is
}

// languages are those of the console.
type languages struct {
	all     map[string]*language
	matcher xlanguage.Matcher
}

func newLanguages() (languages, error) {
	l := languages{
		all:     map[string]*language{},
		matcher: xlanguage.NewMatcher([]xlanguage.Tag{xlanguage.English, xlanguage.Chinese}),
	}
	for _, tag := range []string{english, chinese} {
		text, err := words.ReadFile("text/" + tag + ".json")
		if err != nil {
			return languages{}, fmt.Errorf("read the texts: %w", err)
		}
		l.all[tag] = &language{Tag: tag}
		if err := json.Unmarshal(text, &l.all[tag].words); err != nil {
			return languages{}, fmt.Errorf("read the texts in %s: %w", tag, err)
		}
	}
	return l, nil
}

// languageCookie keeps what was chosen with the switch.
const languageCookie = "seckill-language"

// of is the language that a person has chosen, or else the best that the browser asks for (RFC 9110, 12.5.4).
func (l languages) of(r *http.Request) *language {
	if cookie, err := r.Cookie(languageCookie); err == nil {
		if chosen, ok := l.all[cookie.Value]; ok {
			return chosen
		}
	}
	asked, _, err := xlanguage.ParseAcceptLanguage(r.Header.Get("Accept-Language"))
	if err != nil || len(asked) == 0 {
		return l.all[english]
	}
	if _, index, sure := l.matcher.Match(asked...); index == 1 && sure != xlanguage.No {
		return l.all[chinese]
	}
	return l.all[english]
}

// text is an English text in this language, with its arguments filled in.
func (l *language) text(key string, args ...any) string {
	if translated, ok := l.words[key]; ok {
		key = translated
	}
	if len(args) == 0 {
		return key
	}
	return fmt.Sprintf(key, args...)
}

// other is the language that the switch leads to.
func (l *language) other() (tag, name string) {
	if l.Tag == english {
		return chinese, "中文"
	}
	return english, "English"
}

// explain is an error for the person who caused it. What is no refusal of the domain was
// not written for people.
func (l *language) explain(err error) string {
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok || refusal.Code == model.CodeInternal {
		return l.text("Something went wrong on our side. The request's id finds it in our log.")
	}
	if refusal.Detail == "" {
		return l.text(string(refusal.Code))
	}
	if _, known := l.words[refusal.Detail]; known || l.Tag == english {
		return l.text(refusal.Detail)
	}
	return l.text(string(refusal.Code)) + " (" + refusal.Detail + ")"
}

// languageLasts is how long a choice is kept, in seconds: a year.
const languageLasts = 365 * 24 * 60 * 60

func (c *console) chooseLanguage(w http.ResponseWriter, r *http.Request, _ *visit) error {
	chosen, ok := c.pages.languages.all[r.PostFormValue("to")]
	if !ok {
		return model.Invalid("body.to", "is no language of the console")
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure behind TLS; without it a browser would drop the cookie
		Name: languageCookie, Value: chosen.Tag, Path: "/", MaxAge: languageLasts,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: encrypted(r),
	})
	http.Redirect(w, r, below(r.PostFormValue("back")), http.StatusSeeOther)
	return nil
}
