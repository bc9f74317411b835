// Package console is what administrators see in a browser, and the shop window of buyers. It decides nothing: it asks
// the services that the API asks, with the same checks. Its pages are made on the server (html/template), in two
// languages (package words). Tabler's styles and icons, htmx and uPlot, copied from npm (make assets), are in
// static/lib: nothing is loaded from elsewhere.
//
// What of the OWASP Application Security Verification Standard 4.0.3, level 1, is about pages, and which test holds it
// (docs/owasp.md has passwords, sessions and their cookies; 14.4.5, Strict-Transport-Security, is left to the proxy):
//
//	4.1.1  every page but the sign-in is for administrators         TestPagesAskToSignIn
//	4.2.2  another site's page can change nothing                   TestAnotherSiteIsRefused
//	5.1.5  the page after a sign-in is one of the console           TestSignInLeadsNowhereElse
//	5.3.3  what people typed stays text                             TestTextStaysText
//	7.4.1  an error shows no internals, and the request's id        TestAFailureShowsNoInternals
//	8.2.1  pages are not kept in caches                             TestHeaders
//	14.4.* types, encodings, a policy without inline scripts, ...   TestHeaders
package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // people type times of their own zone; a container may have no zones

	"github.com/prometheus/client_golang/prometheus"

	"seckill/handler/wire"
	"seckill/internal/token"
	"seckill/internal/version"
	"seckill/model"
	"seckill/service"
)

// Path is where the console is. Everything that it serves is below it, but the shop window.
const Path = "/console"

type vouchers interface {
	Get(ctx context.Context, id string, admin bool) (model.Voucher, error)
	List(ctx context.Context, query model.VoucherQuery) (model.VoucherPage, error)
	Create(ctx context.Context, voucher model.VoucherFields, by string, once model.Idempotency) (model.Voucher, error)
	Shelf(ctx context.Context, query model.VoucherQuery) (model.Shelf, error)
	Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error)
	ChangeStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (model.Voucher, error)
	Audit(ctx context.Context, id string) (model.Audit, error)
	Rebuild(ctx context.Context, id, adminID string) error
	Takings(ctx context.Context, id string) (model.Takings, error)
	Since(ctx context.Context, at time.Time) (model.Day, error)
}

type accounts interface {
	Login(ctx context.Context, address, username, password string) (service.Session, error)
	Admit(ctx context.Context, claims token.Claims, asAdmin bool) (token.Claims, error)
	Renew(claims token.Claims) (session service.Session, later bool, err error)
	SignOut(ctx context.Context, claims token.Claims) error
	SetGroups(ctx context.Context, id, by string, groups model.Groups) (model.Account, error)
}

// Options are what the console works with; all but Behind are required.
type Options struct {
	Vouchers       vouchers // *service.Vouchers
	ListOrders     func(ctx context.Context, query model.OrderQuery) (model.OrderPage, error)
	Order          func(ctx context.Context, id string) (model.OrderDetail, error)
	CancelOrder    func(ctx context.Context, adminID, orderID string) (model.Order, error)
	PaymentsOf     func(ctx context.Context, orderID string) ([]model.Payment, error)
	RefundOrder    func(ctx context.Context, adminID, orderID string, ask model.RefundAsk) (model.Refund, error)
	PaidBack       func(ctx context.Context, adminID, orderID string) (model.Refund, error)
	PaidElsewhere  func(ctx context.Context, adminID, orderID string, paid model.Elsewhere) (model.Order, error)
	ListRefunds    func(ctx context.Context, query model.RefundQuery) (model.RefundPage, error)
	Redemptions    *service.Redemptions
	Search         *service.OrderSearch
	Codes          *service.Codes
	AccountByID    func(ctx context.Context, id string) (model.Account, error)
	AccountByName  func(ctx context.Context, username string) (model.Account, error)
	FindUsers      func(ctx context.Context, words string, codeHash []byte) ([]model.Account, error)
	Places         func(ctx context.Context, userID string) ([]model.WaitlistPlace, []model.Entry, error)
	AdminLog       func(ctx context.Context, query model.AdminLogQuery) (model.AdminLogPage, error)
	Accounts       accounts // *service.Accounts
	Administrators *service.Administrators
	Limits         *service.Limits
	Health         *service.Health
	Build          version.Build
	Instances      func(ctx context.Context) ([]model.Instance, error)                         // those that are alive
	Tallies        func(ctx context.Context, voucherID string) (map[string]model.Tally, error) // by instance
	Proof          func(ctx context.Context, voucherID string, admin bool) (model.Draw, error) // of a draw
	Beacon         func(ctx context.Context, voucherID, value, adminID string) (model.Draw, error)
	Reports        *service.Reports
	Receivers      func(ctx context.Context) (model.EventReceivers, error)
	ReplayEvents   func(ctx context.Context, adminID string, since time.Time, url string) error
	Shop           bool   // the shop window is served too, at ShopPath
	Behind         behind // nil in the order mode sync
	Tokens         *token.Authority
	Metrics        prometheus.Gatherer // of the backlog; read from memory alone
	Mode           model.OrderMode
	Currency       string // ISO 4217
	Log            *slog.Logger
}

type console struct {
	Options

	money money
	pages pages
	files files

	mu       sync.Mutex
	sales    map[string]*sale             // that are on or watched, by voucher
	watchers int                          // of all sales
	days     map[time.Time]*rarely[today] // by their midnights
}

// Console serves people, and keeps for them what the charts of sales show.
type Console struct {
	http.Handler
	*console
}

// New makes the console's handler. RemoteAddr has the client's address, and the URL "https" behind a proxy's TLS.
func New(options Options) (*Console, error) {
	c := &console{Options: options, money: newMoney(options.Currency)}
	c.sales, c.days = map[string]*sale{}, map[time.Time]*rarely[today]{}
	var err error
	if c.files, err = newFiles(); err != nil {
		return nil, err
	}
	if c.pages, err = newPages(c.money, c.files); err != nil {
		return nil, err
	}
	return &Console{Handler: c.guarded(c.routes()), console: c}, nil
}

func (c *console) routes() http.Handler {
	mux := http.NewServeMux()
	open := func(pattern string, do handle) { mux.Handle(at(pattern), c.public(do)) }
	open("GET /sign-in", c.signInPage)
	open("POST /sign-in", c.signIn)
	open("POST /language", choose(languageCookie, "to", model.Invalid("body.to", "is no language of the console"),
		func(tag string) bool { return c.pages.words.All()[tag] != nil }))
	open("POST /scheme", choose(schemeCookie, "scheme", model.Invalid("body.scheme", "is no choice of colours"),
		func(tag string) bool { return slices.ContainsFunc(schemes, isScheme(tag)) }))
	open("GET /static/{file...}", c.files.serve)
	open("/", notFound)
	if c.Shop {
		mux.Handle("GET "+ShopPath, c.public(c.page("shop", c.shop)))
		mux.Handle("GET "+ShopPath+"/{id}", c.public(c.page("shop", c.shop)))
		mux.Handle("GET "+ShopPath+"/{id}/replay", c.public(patiently(c.page("replay", c.replay))))
	}
	mux.Handle("/", c.public(notFound))

	admin := func(pattern, operation string, do handle) {
		mux.Handle(at(pattern), c.signedIn(operation, do, askToSignIn))
	}
	kept := func(pattern, operation string, do handle) {
		mux.Handle(at(pattern), c.signedIn(operation, do, c.keepTyped))
	}
	admin("POST /sign-out", wire.SignOut, c.signOut)
	admin("POST /session", wire.SignOut, c.stay)
	mux.Handle("GET "+Path, c.signedIn("admin-list-vouchers", c.home, askToSignIn))
	admin("GET /vouchers", "admin-list-vouchers", c.page("vouchers", c.listVouchers))
	admin("GET /vouchers/new", "create-voucher", c.page("voucher_form", c.newVoucher))
	kept("POST /vouchers/new", "create-voucher", c.saveVoucher)
	admin("POST /vouchers/many", "patch-voucher", c.changeMany)
	admin("GET /vouchers/{id}", "admin-get-voucher", c.showVoucher)
	admin("GET /vouchers/{id}/events", "admin-get-voucher", c.live)
	admin("GET /vouchers/{id}/edit", "patch-voucher", c.page("voucher_form", c.editVoucher))
	kept("POST /vouchers/{id}/edit", "patch-voucher", c.saveVoucher)
	admin("POST /vouchers/{id}/state", "patch-voucher", c.changeState)
	kept("POST /vouchers/{id}/stock", "change-stock", c.change("stock", "delta", c.changeStock))
	kept("POST /vouchers/{id}/end", "patch-voucher", c.change("end", "end_at", c.moveEnd))
	kept("POST /vouchers/{id}/beacon", "enter-beacon", c.change("beacon", "value", c.enterBeacon))
	admin("GET /vouchers/{id}/audit", "voucher-audit", patiently(c.page("audit", c.audit)))
	admin("GET /vouchers/{id}/report", "voucher-report", patiently(c.page("report", c.report)))
	admin("GET /vouchers/{id}/replay", "voucher-report", patiently(c.page("replay", c.replay)))
	admin("POST /vouchers/{id}/repair", wire.RepairVoucher, patiently(button("repaired", nil, c.repair)))
	admin("POST /vouchers/{id}/rebuild", "rebuild-voucher", button("rebuilding", nil, c.rebuild))
	admin("GET /orders", "voucher-orders", c.listOrders)
	admin("GET /orders.csv", "voucher-orders", c.exportOrders("csv"))
	admin("GET /orders.xlsx", "voucher-orders", c.exportOrders("xlsx"))
	admin("GET /orders/{id}", "admin-get-order", c.showOrder)
	admin("POST /orders/{id}/cancel", wire.OrderForBuyer, button("canceled", c.refusedOrder, moves(c.CancelOrder)))
	admin("POST /orders/{id}/refund", "refund-order", button("refunding", c.refusedOrder, c.refundOrder))
	admin("POST /orders/{id}/unredeem", "unredeem-order", c.undoUse)
	admin("POST /orders/{id}/refund/done", "refund-paid-back", button("paid-back", c.refusedOrder, moves(c.PaidBack)))
	admin("POST /orders/{id}/paid", "pay-elsewhere", button("paid", c.refusedOrder, c.payElsewhere))
	admin("GET /refunds", "list-refunds", c.page("refunds", c.listRefunds))
	admin("GET /redeem", "redeem-code", c.page("redeem", c.redeemPage))
	admin("POST /redemptions", "redeem-code", c.redeem)
	admin("GET /dead-letters", wire.SeeLetters, c.page("dead_letters", c.listLetters))
	admin("GET /dead-letters/{sequence}", wire.SeeLetters, c.page("dead_letter", c.showLetter))
	admin("POST /dead-letters/{sequence}/replay", wire.ReplayLetter, button("replayed", nil, c.replayLetter))
	admin("POST /dead-letters/{sequence}/drop", wire.DropLetter, button("dropped", nil, c.dropLetter))
	admin("GET /events", "list-receivers", c.page("events", func(r *http.Request, _ *visit) (any, error) { return c.Receivers(r.Context()) }))
	admin("POST /events", "replay-events", button("replaying", nil, c.replayEvents))
	admin("GET /accounts", wire.SeeAccount, c.findCustomer)
	admin("GET /accounts/{id}", wire.SeeAccount, c.page("account", c.showCustomer))
	kept("POST /accounts/{id}/groups", "set-groups", c.changeGroups)
	admin("GET /colleagues", wire.Colleagues, c.listColleagues)
	kept("POST /colleagues", wire.Colleagues, c.changeColleague)
	open("GET /invite/{invitation}", c.acceptInvitation)
	open("POST /invite/{invitation}", c.acceptInvitation)
	admin("GET /system", wire.SeeSystem, c.page("system", c.system))
	admin("GET /log", "admin-log", c.page("log", c.adminLog))
	return mux
}

func at(pattern string) string { return strings.Replace(pattern, "/", Path+"/", 1) }

// policy loads nothing but the console's own files, and lets no text become a script (CSP Level 3; Trusted Types).
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types htmx"

const maxForm = 64 << 10 // bytes: 4,000 characters of 4 bytes, 3 characters for a byte, and the other fields

// guarded sets the headers of every answer, refuses what another site's page sends, and bounds what is read.
func (c *console) guarded(next http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(c.public(func(http.ResponseWriter, *http.Request, *visit) error {
		return &model.Error{
			Code:   model.CodeForbidden,
			Detail: "The request came from another site's page. Nothing was changed.",
		}
	}))
	protected := sameOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")                     // browsers without frame-ancestors
		header.Set("Referrer-Policy", "same-origin")              // "no-referrer" would make the Origin of forms "null"
		header.Set("Cross-Origin-Opener-Policy", "same-origin")   // no handle for a page that opened this one
		header.Set("Cross-Origin-Resource-Policy", "same-origin") // no part of another site's page
		header.Set("Permissions-Policy", "camera=(self), microphone=(), geolocation=(), payment=()")
		header.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		protected.ServeHTTP(w, r)
	})
}

// encrypted reports whether the request came over TLS, to this server or to the proxy before it.
func encrypted(r *http.Request) bool { return r.TLS != nil || r.URL.Scheme == "https" }

//go:embed static
var staticFiles embed.FS

type file struct {
	tag     string // the hash of its content
	content []byte
	packed  func() []byte // with gzip; made when it is asked for first
}

type files map[string]file // by their path below static/

func newFiles() (files, error) {
	found := files{}
	err := fs.WalkDir(staticFiles, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		found[strings.TrimPrefix(name, "static/")] = file{
			tag: hex.EncodeToString(sum[:12]), content: content,
			packed: sync.OnceValue(func() []byte { return pack(content) }),
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the console's files: %w", err)
	}
	return found, nil
}

// pack compresses. What is written into memory is always written.
func pack(content []byte) []byte {
	var packed bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	_, _ = writer.Write(content)
	_ = writer.Close()
	return packed.Bytes()
}

// url is where a file is. It names the content, so that browsers may keep it for good.
func (f files) url(name string) (string, error) {
	found, ok := f[name]
	if !ok {
		return "", fmt.Errorf("there is no file %s", name)
	}
	return Path + "/static/" + name + "?v=" + found.tag, nil
}

// serve sends a file. One asked for without its tag, or with another version's, is revalidated each time.
func (f files) serve(w http.ResponseWriter, r *http.Request, _ *visit) error {
	name := r.PathValue("file")
	found, ok := f[name]
	if !ok {
		return model.NotFound("file")
	}
	header := w.Header()
	header.Set("ETag", `"`+found.tag+`"`)
	header.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == found.tag {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	header.Set("Content-Type", cmp.Or(mime.TypeByExtension(path.Ext(name)), "text/plain; charset=utf-8"))
	header.Add("Vary", "Accept-Encoding")
	content := found.content
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		content = found.packed()
		header.Set("Content-Encoding", "gzip")
		header.Set("ETag", `"`+found.tag+`-gzip"`)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	return nil
}

// What was typed into a form is not lost when its session has ended: the answer is the page to sign in, with the
// entries in it, and then a page with a button to the form as it was sent. Nothing is carried out on the way, and no
// script is needed. The entries are on these pages alone: a server would have to bound and to forget them, and in a URL
// or in a browser's storage the next person would find them. A buyer's code, which is worth money, and forms of a
// button alone are not kept.

const (
	typedPrefix = "typed." // begins the names of the entries on the page to sign in
	again       = "again"  // marks a form that is to be shown as it was sent, and not to be carried out
)

// keepTyped asks who has sent a form to sign in, and keeps the form.
func (c *console) keepTyped(w http.ResponseWriter, r *http.Request, v *visit) error {
	form := signInForm{Next: r.URL.Path, Typed: r.PostForm}
	form.Refusal = v.language.Text("The session has ended. Sign in, and what you typed is there again. Nothing was changed.")
	return c.show(w, r, v, http.StatusUnauthorized, "sign_in", form)
}

func typedBefore(form url.Values) url.Values {
	typed := url.Values{}
	for name, values := range form {
		if of, ok := strings.CutPrefix(name, typedPrefix); ok {
			typed[of] = values
		}
	}
	return typed
}

func toShowAgain(r *http.Request) bool { return r.PostForm.Has(again) }
