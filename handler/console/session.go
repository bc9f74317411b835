package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"seckill/handler/wire"
	"seckill/internal/budget"
	"seckill/internal/ratelimit"
	"seckill/internal/token"
	"seckill/model"
)

// sessionCookie holds a login's token. Behind TLS its name promises this host and TLS (RFC 6265bis, 4.1.3.2).
func sessionCookie(r *http.Request) string {
	if encrypted(r) {
		return "__Host-seckill-console"
	}
	return "seckill-console"
}

func setSession(w http.ResponseWriter, r *http.Request, token string, lasts time.Duration) {
	keep(w, r, sessionCookie(r), token, "/", int(lasts/time.Second))
}

// session finds whose session a request is of, as the API would: the token must be good and of an account, because no
// other could be signed out; the account must be an administrator's; and neither may have ended since.
func (c *console) session(ctx context.Context, r *http.Request) (token.Claims, error) {
	refused := &model.Error{Code: model.CodeUnauthenticated, Detail: "Sign in."}
	cookie, err := r.Cookie(sessionCookie(r))
	if err != nil {
		return token.Claims{}, refused
	}
	claims, err := c.Tokens.Verify(ctx, cookie.Value)
	if err != nil || claims.Version == 0 || claims.Issuer != "" {
		refused.Cause = err
		return token.Claims{}, refused
	}
	if claims, err = c.Accounts.Admit(ctx, claims, true); err != nil {
		return token.Claims{}, err
	}
	return claims, wire.Allow(claims.Level, wire.SignOut)
}

// signedIn serves administrators who may do what is named, refuses the others, and asks everybody else to sign in.
func (c *console) signedIn(operation string, do, ask handle) http.Handler {
	if _, decided := wire.LeastLevel(operation); !decided {
		panic("the console does not say which administrators may do " + operation)
	}
	return c.public(func(w http.ResponseWriter, r *http.Request, v *visit) error {
		claims, err := c.session(r.Context(), r)
		switch {
		case err == nil:
		case model.CodeOf(err) == model.CodeUnauthenticated, model.CodeOf(err) == model.CodeForbidden:
			return ask(w, r, v)
		default:
			return err
		}
		v.claims = claims
		if err := c.goOn(w, r, v); err != nil {
			return err
		}
		if err := wire.Allow(claims.Level, operation); err != nil {
			return err
		}
		return do(w, r, v)
	})
}

const renewAfter = budget.Late / 2 // the age of a session's token from which the next request gets another one

// goOn prolongs a session that is used: a request counts, a page that watches a sale by itself does not.
func (c *console) goOn(w http.ResponseWriter, r *http.Request, v *visit) error {
	if v.claims.SignedInAt.IsZero() || strings.HasSuffix(r.URL.Path, "/events") || r.URL.Path == Path+"/sign-out" {
		return nil
	}
	session, later, err := c.Accounts.Renew(v.claims)
	if err != nil || !later || session.ExpiresIn < time.Until(v.claims.ExpiresAt)+renewAfter &&
		time.Until(v.claims.ExpiresAt) > renewAfter {
		return err
	}
	v.claims.ExpiresAt = time.Now().Add(session.ExpiresIn)
	setSession(w, r, session.AccessToken, session.ExpiresIn)
	return nil
}

// stay is asked for by a page that warns before its session ends: to ask is what prolongs it.
func (c *console) stay(w http.ResponseWriter, r *http.Request, v *visit) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := w.Write([]byte(v.claims.ExpiresAt.UTC().Format(time.RFC3339)))
	return err
}

// askToSignIn leads back to the page that was asked for. What a pressed button stands for is not done.
func askToSignIn(w http.ResponseWriter, r *http.Request, _ *visit) error {
	query := url.Values{}
	if r.Method == http.MethodPost {
		keep(w, r, doneCookie, "ended", Path, doneLasts)
		if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
			query.Set("next", below(from.RequestURI()))
		}
	} else {
		query.Set("next", r.URL.RequestURI())
	}
	http.Redirect(w, r, Path+"/sign-in?"+query.Encode(), http.StatusSeeOther)
	return nil
}

type signInForm struct {
	Username string
	Next     string
	Refusal  string
	Typed    url.Values // of a form that is to be there again
}

func (c *console) signInPage(w http.ResponseWriter, r *http.Request, v *visit) error {
	next := below(r.URL.Query().Get("next"))
	if _, err := c.session(r.Context(), r); err == nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return nil
	}
	return c.show(w, r, v, http.StatusOK, "sign_in", signInForm{Next: next})
}

// signIn logs in like the API: with the same throttle and the same refusals.
func (c *console) signIn(w http.ResponseWriter, r *http.Request, v *visit) error {
	form := signInForm{
		Username: r.PostFormValue("username"), Next: below(r.PostFormValue("next")),
		Typed: typedBefore(r.PostForm),
	}
	session, err := c.Accounts.Login(r.Context(), network(r), form.Username, r.PostFormValue("password"))
	var claims token.Claims
	if err == nil {
		claims, err = c.Tokens.Verify(r.Context(), session.AccessToken)
	}
	if err == nil && claims.Role != model.RoleAdmin {
		err = &model.Error{Code: model.CodeForbidden, Detail: "This account is not an administrator's."}
	}
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		form.Refusal = v.language.Explain(err)
		retryAfter(w, refusal)
		return c.show(w, r, v, statusOf(err), "sign_in", form)
	}
	if err != nil {
		return err
	}
	setSession(w, r, session.AccessToken, session.ExpiresIn)
	if len(form.Typed) > 0 {
		v.claims = claims
		return c.show(w, r, v, http.StatusOK, "typed", form)
	}
	http.Redirect(w, r, form.Next, http.StatusSeeOther)
	return nil
}

// signOut ends the session on every instance, and every other token of the account: copies of the cookie too.
func (c *console) signOut(w http.ResponseWriter, r *http.Request, v *visit) error {
	if err := c.Accounts.SignOut(r.Context(), v.claims); err != nil && model.CodeOf(err) != model.CodeUnauthenticated {
		return err
	}
	setSession(w, r, "", -time.Second)
	return done(w, r, Path+"/sign-in", "signed-out")
}

func network(r *http.Request) string {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // what is no address is one network
	return ratelimit.Network(peer.Addr())
}

// below is where to go next: a page of the console, and never of another site, whatever a link has said.
func below(next string) string {
	u, err := url.Parse(next)
	inside := err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && !strings.Contains(next, `\`) &&
		(u.Path == Path || u.Path == ShopPath || strings.HasPrefix(u.Path, Path+"/")) && !strings.Contains(u.Path, "..")
	if !inside {
		return Path
	}
	return cmp.Or(u.RequestURI(), Path)
}

// colleagues are the administrators, and the invitation of one who can set a password now.
type colleagues struct {
	Accounts   []model.Account
	Levels     []model.Level
	Own        string // the id of who looks
	For        string // the username of the one who was invited
	Invitation string // the link for him; empty: nobody was
	Refusal    string
	Typed      string // a username
}

func (c *console) listColleagues(w http.ResponseWriter, r *http.Request, v *visit) error {
	return c.colleagues(w, r, v, nil, colleagues{})
}

func (c *console) colleagues(w http.ResponseWriter, r *http.Request, v *visit, refused error, page colleagues) (err error) {
	page.Levels, page.Own = model.Levels(), v.claims.Subject
	if page.Accounts, err = c.Administrators.List(r.Context()); err != nil || refused == nil {
		return cmp.Or(err, c.show(w, r, v, http.StatusOK, "colleagues", page))
	}
	page.Refusal = explainField(v.language, refused)
	return c.refuse(w, r, v, refused, "colleagues", page)
}

// changeColleague invites somebody, new or once more, or says what somebody may do, or whether.
func (c *console) changeColleague(w http.ResponseWriter, r *http.Request, v *visit) (err error) {
	name, what, level := strings.TrimSpace(r.PostForm.Get("username")), r.PostForm.Get("what"), model.Level(r.PostForm.Get("level"))
	as, page := c.Administrators.As(v.claims.Subject), colleagues{Typed: name}
	switch {
	case toShowAgain(r):
		return c.colleagues(w, r, v, nil, page)
	case what == "level":
		_, err = as.SetLevel(r.Context(), name, level)
	case what == "disable", what == "enable":
		_, err = as.SetDisabled(r.Context(), name, what == "disable")
	default:
		var invited model.Account
		if invited, err = as.Invite(r.Context(), name, level); err == nil {
			page.For, page.Typed = invited.Username, ""
			page.Invitation, err = c.Tokens.Invite(invited.ID, max(invited.Version, 1))
			page.Invitation = origin(r) + Path + "/invite/" + page.Invitation
		}
		return c.colleagues(w, r, v, err, page)
	}
	if err != nil {
		return c.colleagues(w, r, v, err, page)
	}
	return done(w, r, Path+"/colleagues", "colleague")
}

// acceptInvitation asks for the password of who was invited, and sets it once.
func (c *console) acceptInvitation(w http.ResponseWriter, r *http.Request, v *visit) error {
	id, version, ok := c.Tokens.Invited(r.PathValue("invitation"))
	if !ok {
		return model.Conflict("The invitation was used, or withdrawn.")
	}
	account, err := c.AccountByID(r.Context(), id)
	if err != nil {
		return err
	}
	form := signInForm{Username: account.Username}
	if r.Method == http.MethodPost {
		if err = c.Administrators.Accept(r.Context(), network(r), id, version, r.PostFormValue("password")); err == nil {
			return done(w, r, Path+"/sign-in", "accepted")
		}
		form.Refusal = explainField(v.language, err)
		return c.refuse(w, r, v, err, "invite", form)
	}
	if account.Version != version || account.Disabled {
		return model.Conflict("The invitation was used, or withdrawn.")
	}
	return c.show(w, r, v, http.StatusOK, "invite", form)
}

// customer is all that support needs of one user, who may have no account here, or a search for one.
type customer struct {
	Words string          // as they were typed
	Found []model.Account // whom they find; those of other issuers have no name
	model.Account

	Orders   []model.Order              // newest first
	Payments map[string][]model.Payment // by order, of the newest
	Places   []model.WaitlistPlace
	Entries  []model.Entry
	Sales    []saleFor // that are on, or begin within a day
	Past     []moment  // newest first
	Titles   map[string]string

	Typed string // the groups, one a line
	Wrong string // what is wrong with them
}

// saleFor is a sale, and what the user hears who buys now; nil: it is sold.
type saleFor struct {
	model.Voucher

	Refused *model.Error
	Entered bool // in its draw, which a second purchase changes nothing of
}

// moment is what a user did, or what became of it.
type moment struct {
	At                          time.Time
	What, Why, Voucher, OrderID string
	Until                       *time.Time // when a cool-down that began then ends
}

const ordersOfCustomer, paymentsOfCustomer = 50, 20 // orders that are shown, and those with payments

func accountPath(id string) string { return Path + "/accounts/" + url.PathEscape(id) }

// findCustomer finds users by what somebody has of them: a part of a name or an id, a reference or a code.
func (c *console) findCustomer(w http.ResponseWriter, r *http.Request, v *visit) error {
	page := customer{Words: strings.TrimSpace(r.URL.Query().Get("q"))}
	if page.Words == "" {
		return c.show(w, r, v, http.StatusOK, "account", page)
	}
	code, _ := c.Codes.Hash(page.Words) // what is no code finds none
	var err error
	if page.Found, err = c.FindUsers(r.Context(), page.Words, code); err != nil {
		return err
	}
	for _, found := range page.Found {
		if len(page.Found) == 1 || found.ID == page.Words || strings.EqualFold(found.Username, page.Words) {
			http.Redirect(w, r, accountPath(found.ID), http.StatusSeeOther)
			return nil
		}
	}
	status := http.StatusOK
	if len(page.Found) == 0 {
		status = http.StatusNotFound
	}
	return c.show(w, r, v, status, "account", page)
}

func (c *console) showCustomer(r *http.Request, _ *visit) (any, error) {
	page, err := c.customer(r.Context(), r.PathValue("id"))
	page.Typed = strings.Join(page.Groups, "\n")
	return page, err
}

func (c *console) customer(ctx context.Context, id string) (page customer, err error) {
	page = customer{Payments: map[string][]model.Payment{}, Titles: map[string]string{}}
	account, unknown := c.AccountByID(ctx, id)
	if page.Account = account; unknown != nil && model.CodeOf(unknown) != model.CodeNotFound {
		return page, unknown
	}
	page.ID = id
	orders, err := c.ListOrders(ctx, model.OrderQuery{UserID: id, Limit: ordersOfCustomer})
	if err != nil {
		return page, err
	}
	if page.Places, page.Entries, err = c.Places(ctx, id); err != nil {
		return page, err
	}
	if page.Orders = orders.Items; len(page.Orders)+len(page.Places)+len(page.Entries) == 0 && unknown != nil {
		return page, unknown
	}
	for _, order := range page.Orders[:min(len(page.Orders), paymentsOfCustomer)] {
		if page.Payments[order.ID], err = c.PaymentsOf(ctx, order.ID); err != nil {
			return page, err
		}
	}
	page.remember()
	for _, one := range page.Past {
		c.title(ctx, page.Titles, one.Voucher)
	}
	shelf, err := c.Vouchers.Shelf(ctx, model.VoucherQuery{Limit: ordersOfCustomer})
	for _, voucher := range shelf.Items {
		soon := voucher.Phase != model.PhaseUpcoming || voucher.Opens().Before(voucher.ServerTime.Add(budget.Day))
		if voucher.Buyable() && voucher.Phase != model.PhaseEnded && soon {
			page.Sales = append(page.Sales, saleFor{
				voucher, voucher.RefusalTo(page.Groups, page.Orders, voucher.ServerTime),
				slices.ContainsFunc(page.Entries, func(entry model.Entry) bool { return entry.VoucherID == voucher.ID }),
			})
		}
	}
	return page, err
}

// remember makes the time line of what is kept of a user.
func (p *customer) remember() {
	for _, order := range p.Orders {
		closed := moment{What: string(order.Status), Why: order.Reason, Until: order.CooldownUntil}
		for _, one := range []struct {
			at *time.Time
			is moment
		}{
			{&order.CreatedAt, moment{What: "ordered"}},
			{order.PaidAt, moment{What: string(model.OrderPaid)}},
			{order.RedeemedAt, moment{What: string(model.OrderRedeemed)}},
			{order.ClosedAt, closed},
		} {
			if one.at != nil {
				one.is.At, one.is.Voucher, one.is.OrderID = *one.at, order.VoucherID, order.ID
				p.Past = append(p.Past, one.is)
			}
		}
	}
	for _, place := range p.Places {
		p.Past = append(p.Past, moment{At: place.JoinedAt, What: "joined the waitlist", Voucher: place.VoucherID, OrderID: place.OrderID})
	}
	for _, entry := range p.Entries {
		p.Past = append(p.Past, moment{At: entry.EnteredAt, What: "entered the draw", Voucher: entry.VoucherID})
	}
	slices.SortStableFunc(p.Past, func(a, b moment) int { return b.At.Compare(a.At) })
}

func (c *console) changeGroups(w http.ResponseWriter, r *http.Request, v *visit) error {
	page, err := c.customer(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	page.Typed = r.PostForm.Get("groups")
	if toShowAgain(r) {
		return c.show(w, r, v, http.StatusOK, "account", page)
	}
	_, err = c.Accounts.SetGroups(r.Context(), page.ID, v.claims.Subject, groups(page.Typed))
	if err != nil {
		page.Wrong = explainField(v.language, err)
		return c.refuse(w, r, v, err, "account", page)
	}
	return done(w, r, accountPath(page.ID), "groups")
}
