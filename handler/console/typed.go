package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// What was typed into a form is not lost when the session has ended meanwhile: the answer is
// the page to sign in, with the entries in it, and after that a page with a button that leads
// to the form as it was sent. Nothing is carried out on the way. The entries are on these pages
// alone: not on the server, which would have to bound and to forget them, not in a URL, and not
// in a storage of the browser, where the next person at it would find them. It needs no script.
//
// This is for forms into which people type more than a code. The code of a buyer is worth
// money and is not kept; other actions are a button, which is there again.

// entry is one field of a form.
type entry struct{ Name, Value string }

const (
	// typedPrefix begins the names of the entries on the page to sign in.
	typedPrefix = "typed."
	// again marks a form that is to be shown as it was sent, and not to be carried out.
	again = "again"
)

// keepTyped asks who has sent a form to sign in, and keeps the form.
func (c *console) keepTyped(w http.ResponseWriter, r *http.Request, v *visit) error {
	form := signInForm{
		Next: r.URL.Path, Refusal: v.language.Text("The session has ended. Sign in, and what you typed is there again. Nothing was changed."),
	}
	for _, name := range sortedNames(r.PostForm) {
		form.Typed = append(form.Typed, entry{name, r.PostForm.Get(name)})
	}
	return c.show(w, r, v, http.StatusUnauthorized, "sign_in", form)
}

// typedBefore are the entries that came through the page to sign in.
func typedBefore(form url.Values) []entry {
	var entries []entry
	for _, name := range sortedNames(form) {
		if of, ok := strings.CutPrefix(name, typedPrefix); ok {
			entries = append(entries, entry{of, form.Get(name)})
		}
	}
	return entries
}

func sortedNames(form url.Values) []string { return slices.Sorted(maps.Keys(form)) }

// toShowAgain reports whether a form is to be shown as it was sent.
func toShowAgain(r *http.Request) bool { return r.PostForm.Has(again) }
