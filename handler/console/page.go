package console

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/currency"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"seckill/handler/wire"
	"seckill/internal/token"
	"seckill/internal/words"
	"seckill/model"
)

//go:embed pages
var pageFiles embed.FS

type handle func(w http.ResponseWriter, r *http.Request, v *visit) error

type visit struct {
	claims   token.Claims // zero: nobody has signed in
	language *words.Language
	zone     *time.Location
	by       func(actor string) string // in words: the username of an account, if it is one's
}

const zoneCookie = "seckill-zone" // the time zone of the browser, which only a script can tell

func (c *console) public(do handle) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{language: c.pages.language(r), zone: time.UTC}
		v.by = c.names(r.Context(), v.language)
		if cookie, err := r.Cookie(zoneCookie); err == nil {
			if zone, err := loadZone(cookie.Value); err == nil {
				v.zone = zone
			}
		}
		err := readForm(r)
		if err == nil {
			err = do(w, r, v)
		}
		if err != nil {
			c.fail(w, r, v, err)
		}
	})
}

// names are what a page calls people, each asked for once, and the service and the payment provider.
func (c *console) names(ctx context.Context, language *words.Language) func(actor string) string {
	known := map[string]string{model.BySystem: language.Text(model.BySystem), model.ByProvider: language.Text(model.ByProvider)}
	return func(actor string) string {
		if known[actor] == "" {
			known[actor] = c.name(ctx, actor)
		}
		return known[actor]
	}
}

// readForm reads the form of a request, so that no field is silently missing.
func readForm(r *http.Request) error {
	err := r.ParseForm()
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &model.Error{Code: model.CodePayloadTooLarge, Detail: "The form is too large."}
	}
	if err != nil {
		return model.Invalid("body", "The form could not be read.")
	}
	return nil
}

// loadZone finds a zone of the IANA time zone database. The server's own is none that a person has chosen.
func loadZone(name string) (*time.Location, error) {
	if name == "" || strings.EqualFold(name, "local") {
		return nil, errors.New("no zone is named")
	}
	return time.LoadLocation(name)
}

type pages struct {
	words     *words.Catalogue
	templates map[string]map[string]*template.Template
}

func newPages(money money, files files) (pages, error) {
	catalogue, err := words.New()
	if err != nil {
		return pages{}, err
	}
	names, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		return pages{}, fmt.Errorf("list the console's pages: %w", err)
	}
	icons, err := files.url("lib/icons.svg")
	if err != nil {
		return pages{}, err
	}
	p := pages{words: catalogue, templates: map[string]map[string]*template.Template{}}
	for tag, language := range catalogue.All() {
		p.templates[tag] = map[string]*template.Template{}
		functions := template.FuncMap{
			"t": func(key any, values ...any) string { // also of a pointer to a word
				return language.Text(fmt.Sprint(reflect.Indirect(reflect.ValueOf(key))), values...)
			},
			"money": money.in(tag), "phase": phase, "rfc": rfc, "share": share, "short": short, "asset": files.url,
			"n": func(number any) string { return grouped(fmt.Sprint(number)) },
			"said": func(of model.Voucher, at time.Time) string { // to those whose zone is not known
				zone := zoneOf(&of.VoucherFields, time.UTC)
				return dated(tag, at.In(zone), true) + " " + zone.String()
			},
			"ms":       func(n int64) time.Duration { return time.Duration(n) * time.Millisecond },
			"lasts":    func(d any) string { return lasts(language, time.Duration(reflect.ValueOf(d).Int())) },
			"list":     func(of ...any) []any { return of }, // for a template with several values
			"statuses": model.OrderStatuses,
			"checks":   func(names string) string { return checkWords(language, names) },
			// The names come from pages and this package, never from a user.
			"icon": func(name string) template.HTML {
				return template.HTML(`<svg class="icon" aria-hidden="true"><use href="` + icons + "#" + name + `"></use></svg>`) //nolint:gosec // see above
			},
		}
		for _, name := range names {
			page, err := template.New("layout.html").Funcs(functions).ParseFS(pageFiles, "pages/layout.html", name)
			if err != nil {
				return pages{}, fmt.Errorf("read the page %s: %w", name, err)
			}
			p.templates[tag][strings.TrimSuffix(path.Base(name), ".html")] = page
		}
	}
	return p, nil
}

type place struct{ Section, Path, Words, Icon string }

func places(level model.Level) []place {
	all := []place{
		{Section: "overview", Path: Path, Words: "Overview", Icon: "layout-dashboard"},
		{Section: "vouchers", Path: Path + "/vouchers", Words: "Vouchers", Icon: "ticket"},
		{Section: "orders", Path: Path + "/orders", Words: "Orders", Icon: "receipt"},
		{Section: "redeem", Path: Path + "/redeem", Words: "Redeem", Icon: "scan"},
		{Section: "refunds", Path: Path + "/refunds", Words: "Refunds", Icon: "receipt-refund"},
		{Section: "accounts", Path: Path + "/accounts", Words: "Customers", Icon: "user"},
		{Section: "log", Path: Path + "/log", Words: "Log", Icon: "history"},
		{Section: "system", Path: Path + "/system", Words: "System", Icon: "server"},
	}
	return slices.DeleteFunc(all, func(p place) bool {
		if level == model.LevelCashier {
			return p.Section != "redeem" && p.Section != "orders" // what a till needs
		}
		return p.Section == "redeem" && wire.Allow(level, "redeem-code") != nil
	})
}

// frame is what every page shows around its own part, which is Data.
type frame struct {
	Data any

	Language             string
	OtherTag, OtherWords string // of the switch
	Scheme, NextScheme   scheme
	Back                 string // where the switches lead back to
	Section              string // of the places
	Places               []place
	Username             string // empty: nobody has signed in
	Level                model.Level
	Shop                 bool // there is a shop window
	Zone, Currency       string
	Now                  time.Time
	Ends                 time.Time // the session; zero: it is not told
	Did, Done            string    // what an action has done: its word in results, and for people

	visit *visit
}

// At is an instant to the second, in the zone that the page names.
func (f frame) At(at time.Time) string { return f.visit.at(at) }

func (v *visit) at(at time.Time) string {
	return dated(v.language.Tag, at.In(v.zone), true) + at.In(v.zone).Format(":05")
}

// When is an instant for a list: to the minute, and without the year when it is this one.
func (f frame) When(at time.Time) string {
	at = at.In(f.visit.zone)
	return dated(f.Language, at, at.Year() != f.Now.In(f.visit.zone).Year())
}

// dated is a local time as all pages say it.
func dated(tag string, at time.Time, year bool) string {
	layouts := map[bool]string{true: "2 Jan 2006, 15:04", false: "2 Jan, 15:04"}
	if tag == words.Chinese {
		layouts = map[bool]string{true: "2006年1月2日 15:04", false: "1月2日 15:04"}
	}
	return at.Format(layouts[year])
}

// On is an instant with its day of the week, and In how long it is until then, in hours from two hours on.
func (f frame) On(at time.Time) string {
	at = at.In(f.visit.zone)
	return f.visit.language.Text(at.Weekday().String()) + " " + dated(f.Language, at, true)
}

func (f frame) In(at time.Time) string {
	left := at.Sub(f.Now)
	if left > 2*time.Hour {
		left = left.Round(time.Hour)
	}
	return lasts(f.visit.language, max(0, left.Round(time.Minute)))
}

// By is who did or has something, in words.
func (f frame) By(actor string) string { return f.visit.by(actor) }

// May reports whether the page's visitor may do something, see wire.LeastLevel.
func (f frame) May(operation string) bool { return wire.Allow(f.visit.claims.Level, operation) == nil }

func (c *console) page(name string, load func(r *http.Request, v *visit) (any, error)) handle {
	return func(w http.ResponseWriter, r *http.Request, v *visit) error {
		data, err := load(r, v)
		if err != nil {
			return err
		}
		return c.show(w, r, v, http.StatusOK, name, data)
	}
}

func (c *console) show(w http.ResponseWriter, r *http.Request, v *visit, status int, name string, data any) error {
	f := frame{
		Data: data, Language: v.language.Tag, Back: Path, Section: section(r.URL.Path), Places: places(v.claims.Level),
		Username: v.claims.Username, Level: v.claims.Level, Shop: c.Shop, Ends: v.claims.ExpiresAt, Zone: v.zone.String(),
		Currency: c.Currency, Now: time.Now(), visit: v,
	}
	if f.Username == "" {
		f.Username = v.claims.Subject // of a token without a name
	}
	f.OtherTag, f.OtherWords = v.language.Other()
	f.Scheme, f.NextScheme = schemeOf(r)
	if r.Method == http.MethodGet {
		f.Back = r.URL.RequestURI()
		f.Did, f.Done = takeDone(w, r, v)
	}
	var page bytes.Buffer
	if err := c.pages.templates[v.language.Tag][name].Execute(&page, f); err != nil {
		return fmt.Errorf("make the page %s: %w", name, err)
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Language", v.language.Tag)
	header.Add("Vary", "Accept-Language, Cookie")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // the browser is gone
	return nil
}

// doneCookie keeps what an action has done until the next page has said so: a reload does not say it again.
const (
	doneCookie = "seckill-done"
	doneLasts  = 60 // seconds
)

// done leads from an action to a page that says what it has done. A reload there repeats nothing.
func done(w http.ResponseWriter, r *http.Request, path, what string) error {
	keep(w, r, doneCookie, what, Path, doneLasts)
	http.Redirect(w, r, path, http.StatusSeeOther) //nolint:gosec // the path is of this console
	return nil
}

// action is what a button does in the name of an administrator, and the path of the page that says so.
type action func(r *http.Request, by string) (leads string, err error)

// button does an action. refused shows a refusal; nil: it has a page of its own.
func button(said string, refused func(http.ResponseWriter, *http.Request, *visit, error) error, do action) handle {
	return func(w http.ResponseWriter, r *http.Request, v *visit) error {
		leads, err := do(r, v.claims.Subject)
		switch {
		case err == nil:
			return done(w, r, leads, said)
		case refused == nil || hasOwnPage(err):
			return err
		default:
			return refused(w, r, v, err)
		}
	}
}

// keep sets a cookie for some seconds (negative: ends it), closed to scripts and not sent along by another site's page.
func keep(w http.ResponseWriter, r *http.Request, name, value, path string, lasts int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure behind TLS; without it a browser would drop the cookie
		Name: name, Value: value, Path: path, MaxAge: lasts,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: encrypted(r),
	})
}

// takeDone is what was done, by its word and for people; no text of a cookie is shown. It is said once.
func takeDone(w http.ResponseWriter, r *http.Request, v *visit) (did, words string) {
	cookie, err := r.Cookie(doneCookie)
	if err != nil {
		return "", ""
	}
	keep(w, r, doneCookie, "", Path, -1)
	if text, ok := results()[cookie.Value]; ok {
		return cookie.Value, v.language.Text(text)
	}
	return "", ""
}

func section(of string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(of, Path), "/"), "/")
	return cmp.Or(strings.NewReplacer("dead-letters", "system", "events", "system", "colleagues", "system", "redemptions", "redeem").Replace(first), "overview")
}

type failure struct {
	Status  int
	Refusal string
	Fields  []string
	ID      string // of the request
}

// fail shows an error and logs what people must not see.
func (c *console) fail(w http.ResponseWriter, r *http.Request, v *visit, err error) {
	code := model.CodeOf(err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		code, err = model.CodeUnavailable, model.Unavailable("The answer was not known in time.", err)
	}
	f := failure{Status: wire.KindOf(code).Status, Refusal: v.language.Explain(err), ID: w.Header().Get("X-Request-Id")}
	level := slog.LevelDebug
	if f.Status > http.StatusInternalServerError {
		level = slog.LevelWarn
	} else if f.Status == http.StatusInternalServerError {
		level = slog.LevelError
	}
	c.Log.LogAttrs(r.Context(), level, "the console refused a request", slog.String("request_id", f.ID),
		slog.String("path", r.URL.Path), slog.String("code", string(code)), slog.Any("error", err))
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		retryAfter(w, refusal)
		for _, field := range refusal.Fields {
			f.Fields = append(f.Fields, v.language.Text(field.Message))
		}
	}
	if err := c.show(w, r, v, f.Status, "failure", f); err != nil {
		c.Log.ErrorContext(r.Context(), "the page of an error failed", slog.Any("error", err))
		http.Error(w, "Something went wrong.", http.StatusInternalServerError)
	}
}

func statusOf(err error) int { return wire.KindOf(model.CodeOf(err)).Status }

// refuse shows a form again with what is wrong, unless the error has a page of its own.
func (c *console) refuse(w http.ResponseWriter, r *http.Request, v *visit, err error, name string, page any) error {
	if hasOwnPage(err) {
		return err
	}
	return c.show(w, r, v, statusOf(err), name, page)
}

// hasOwnPage reports whether an error is a page of its own, rather than a message beside a form.
func hasOwnPage(err error) bool {
	code := model.CodeOf(err)
	return code == model.CodeNotFound || code == model.CodeInternal
}

func notFound(http.ResponseWriter, *http.Request, *visit) error { return model.NotFound("page") }

func retryAfter(w http.ResponseWriter, refusal *model.Error) {
	if refusal.RetryAfter > 0 {
		w.Header().Set("Retry-After", wire.RetryAfter(refusal.RetryAfter))
	}
}

func rfc(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// lasts is a duration for people: milliseconds below a second, tenths below a minute, and no part that is zero.
func lasts(language *words.Language, d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprint(d.Milliseconds(), " ", language.Text("ms"))
	case d < time.Minute:
		return strconv.FormatFloat(d.Round(time.Second/10).Seconds(), 'f', -1, 64) + " " + language.Text("s") //nolint:mnd // a tenth
	}
	d = d.Round(time.Second)
	var parts []string
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if n := d / unit.of; n > 0 {
			parts = append(parts, fmt.Sprint(int64(n), " ", language.Text(unit.name)))
			d %= unit.of
		}
	}
	return strings.Join(parts, " ")
}

func share(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return int64(math.Round(float64(part) / float64(whole) * 100))
}

// short is the end of an id, which differs in a list; of an order's id that of its first part.
func short(id string) string {
	const shown = 8
	own, _, _ := strings.Cut(id, ".")
	if len(own) <= shown+2 {
		return own
	}
	return "…" + own[len(own)-shown:]
}

type money struct {
	currency string
	decimals int // ISO 4217: how many digits the minor unit has
}

func newMoney(code string) money { return money{code, wire.Decimals(code)} }

// in writes minor units as the browsers' Intl.NumberFormat does, so that pages and scripts say the same.
func (m money) in(tag string) func(minor int64) string {
	symbol := m.currency
	if unit, err := currency.ParseISO(m.currency); err == nil {
		symbol = message.NewPrinter(language.Make(tag)).Sprint(currency.Symbol(unit))
		symbol = strings.Replace(symbol, "￥", "¥", 1) // browsers have the narrow one
	}
	if strings.Trim(symbol, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		symbol += "\u00a0"
	}
	return func(minor int64) string { return symbol + grouped(m.plain(minor)) }
}

func grouped(number string) string {
	whole, fraction, found := strings.Cut(number, ".")
	for at := len(whole) - 3; at > 0; at -= 3 { //nolint:mnd // a thousand
		whole = whole[:at] + "," + whole[at:]
	}
	if found {
		whole += "." + fraction
	}
	return whole
}

func (m money) plain(minor int64) string { return wire.Decimal(minor, m.decimals) }

func (m money) parse(location, text string) (int64, error) {
	refused := model.Invalid(location, "must be an amount like %s", m.plain(1000))
	whole, fraction := strings.TrimSpace(text), ""
	if at := strings.LastIndexAny(whole, ".,"); at >= 0 && len(whole)-at-1 <= m.decimals {
		whole, fraction = whole[:at], whole[at+1:]
	}
	if plain := strings.ReplaceAll(whole, ",", ""); grouped(plain) == whole {
		whole = plain
	}
	if whole == "" || len(fraction) > m.decimals || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, refused
	}
	minor, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", m.decimals-len(fraction)), 10, 64)
	if err != nil {
		return 0, refused
	}
	return minor, nil
}

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

const choiceLasts = 365 * 24 * 60 * 60 // seconds that a choice is kept: a year

// choose keeps what a person has chosen, if it is a choice, and leads back to where that was.
func choose(cookie, field string, otherwise *model.Error, known func(string) bool) handle {
	return func(w http.ResponseWriter, r *http.Request, _ *visit) error {
		chosen := r.PostFormValue(field)
		if !known(chosen) {
			return otherwise
		}
		keep(w, r, cookie, chosen, "/", choiceLasts)
		http.Redirect(w, r, below(r.PostFormValue("back")), http.StatusSeeOther)
		return nil
	}
}

const schemeCookie = "seckill-scheme"

// schemes are the choices of colours, each followed by the next one; the first is as the person's device has it.
var schemes = []scheme{ //nolint:gochecknoglobals // constant
	{Tag: "auto", Words: "Colours: automatic", Icon: "sun-moon"},
	{Tag: "light", Words: "Colours: light", Icon: "sun"},
	{Tag: "dark", Words: "Colours: dark", Icon: "moon"},
}

type scheme struct{ Tag, Words, Icon string }

// schemeOf is the choice of a person, and the one that the switch leads to.
func schemeOf(r *http.Request) (chosen, next scheme) {
	n := 0
	if cookie, err := r.Cookie(schemeCookie); err == nil {
		n = max(0, slices.IndexFunc(schemes, isScheme(cookie.Value)))
	}
	return schemes[n], schemes[(n+1)%len(schemes)]
}

func isScheme(tag string) func(scheme) bool { return func(s scheme) bool { return s.Tag == tag } }
