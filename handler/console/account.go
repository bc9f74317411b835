package console

import (
	"net/http"
	"net/url"
	"strings"

	"seckill/handler/wire"
	"seckill/model"
)

// accountPage finds an account, and shows it with its groups.
type accountPage struct {
	Words   string // a username or an id, as it was typed
	Unknown string // why no account was found
	model.Account

	Typed string // the groups, one a line
	Wrong string // what is wrong with them
}

func accountPath(id string) string { return Path + "/accounts/" + url.PathEscape(id) }

// findAccount leads to the account of a username or an id.
func (c *console) findAccount(w http.ResponseWriter, r *http.Request, v *visit) error {
	page := accountPage{Words: strings.TrimSpace(r.URL.Query().Get("q"))}
	if page.Words == "" {
		return c.show(w, r, v, http.StatusOK, "account", page)
	}
	account, err := c.People.ByUsername(r.Context(), page.Words)
	if model.CodeOf(err) == model.CodeNotFound {
		account, err = c.People.ByID(r.Context(), page.Words)
	}
	if model.CodeOf(err) == model.CodeNotFound {
		page.Unknown = v.language.Explain(err)
		return c.show(w, r, v, http.StatusNotFound, "account", page)
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, accountPath(account.ID), http.StatusSeeOther)
	return nil
}

func (c *console) showAccount(w http.ResponseWriter, r *http.Request, v *visit) error {
	account, err := c.People.ByID(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.show(w, r, v, http.StatusOK, "account", accountPage{Account: account, Typed: strings.Join(account.Groups, "\n")})
}

// changeGroups replaces the groups of an account.
func (c *console) changeGroups(w http.ResponseWriter, r *http.Request, v *visit) error {
	account, err := c.People.ByID(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	page := accountPage{Account: account, Typed: r.PostForm.Get("groups")}
	if toShowAgain(r) {
		return c.show(w, r, v, http.StatusOK, "account", page)
	}
	_, err = c.Accounts.SetGroups(r.Context(), account.ID, v.claims.Subject, groups(page.Typed))
	if code := model.CodeOf(err); err != nil && hasOwnPage(code) {
		return err
	} else if err != nil {
		page.Wrong = explainField(v.language, err)
		return c.show(w, r, v, wire.KindOf(code).Status, "account", page)
	}
	return done(w, r, accountPath(account.ID), "groups")
}
