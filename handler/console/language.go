package console

import (
	"net/http"

	"seckill/internal/words"
	"seckill/model"
)

// languageCookie keeps what was chosen with the switch.
const languageCookie = "seckill-language"

// language is the one that a person has chosen, or else the best that the browser asks for.
func (p pages) language(r *http.Request) *words.Language {
	if cookie, err := r.Cookie(languageCookie); err == nil {
		if chosen, ok := p.words.All()[cookie.Value]; ok {
			return chosen
		}
	}
	return p.words.Asked(r.Header.Get("Accept-Language"))
}

// choiceLasts is how long a choice is kept, in seconds: a year.
const choiceLasts = 365 * 24 * 60 * 60

// choose keeps what a person has chosen, and leads back to where that was.
func choose(w http.ResponseWriter, r *http.Request, name, value string) error {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure behind TLS; without it a browser would drop the cookie
		Name: name, Value: value, Path: "/", MaxAge: choiceLasts,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: encrypted(r),
	})
	http.Redirect(w, r, below(r.PostFormValue("back")), http.StatusSeeOther)
	return nil
}

func (c *console) chooseLanguage(w http.ResponseWriter, r *http.Request, _ *visit) error {
	chosen, ok := c.pages.words.All()[r.PostFormValue("to")]
	if !ok {
		return model.Invalid("body.to", "is no language of the console")
	}
	return choose(w, r, languageCookie, chosen.Tag)
}

// schemeCookie keeps in which colours the pages are.
const schemeCookie = "seckill-scheme"

// schemes are the choices of colours, each followed by the next one; the first is as the person's device has it.
var schemes = []scheme{ //nolint:gochecknoglobals // constant
	{Tag: "auto", Words: "Colours: automatic", Icon: "sun-moon"},
	{Tag: "light", Words: "Colours: light", Icon: "sun"},
	{Tag: "dark", Words: "Colours: dark", Icon: "moon"},
}

// scheme is one choice.
type scheme struct{ Tag, Words, Icon string }

// schemeOf is the choice of a person, and the one that the switch leads to.
func schemeOf(r *http.Request) (chosen, next scheme) {
	if cookie, err := r.Cookie(schemeCookie); err == nil {
		for n, s := range schemes {
			if s.Tag == cookie.Value {
				return s, schemes[(n+1)%len(schemes)]
			}
		}
	}
	return schemes[0], schemes[1]
}

func (c *console) chooseScheme(w http.ResponseWriter, r *http.Request, _ *visit) error {
	for _, s := range schemes {
		if s.Tag == r.PostFormValue("scheme") {
			return choose(w, r, schemeCookie, s.Tag)
		}
	}
	return model.Invalid("body.scheme", "is no choice of colours")
}
