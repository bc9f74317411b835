package console

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
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

// vouchers is what the console needs of service.Vouchers.
type vouchers interface {
	Get(ctx context.Context, id string, admin bool) (model.Voucher, error)
	List(ctx context.Context, query model.VoucherQuery) (model.VoucherPage, error)
	Create(ctx context.Context, voucher model.VoucherFields, by string, once model.Idempotency) (model.Voucher, error)
	Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error)
	ChangeStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (model.Voucher, error)
	Audit(ctx context.Context, id string) (model.Audit, error)
	Rebuild(ctx context.Context, id, adminID string) error
	Takings(ctx context.Context, id string) (model.Takings, error)
	Since(ctx context.Context, at time.Time) (model.Day, error)
}

// orders is what the console needs of sale.Orders.
type orders interface {
	List(ctx context.Context, query model.OrderQuery) (model.OrderPage, error)
	Detail(ctx context.Context, orderID string) (model.OrderDetail, error)
	CancelFor(ctx context.Context, adminID, orderID string) (model.Order, error)
}

// payments is what the console needs of repository.Payments.
type payments interface {
	OfOrder(ctx context.Context, orderID string) ([]model.Payment, error)
}

// refunds is what the console needs of service.Refunds.
type refunds interface {
	Request(ctx context.Context, adminID, orderID string) (model.Refund, error)
	List(ctx context.Context, query model.RefundQuery) (model.RefundPage, error)
}

// redemptions is what the console needs of service.Redemptions.
type redemptions interface {
	Redeem(ctx context.Context, adminID, code string) (model.Order, error)
}

// search is what the console needs of service.OrderSearch.
type search interface {
	Find(ctx context.Context, q model.OrderSearch) (model.OrderPage, error)
}

// codes is what the console needs of service.Codes.
type codes interface {
	Hash(typed string) ([]byte, error)
}

// people is what the console needs of repository.Accounts.
type people interface {
	ByID(ctx context.Context, id string) (model.Account, error)
	ByUsername(ctx context.Context, username string) (model.Account, error)
}

// adminLog is what the console needs of repository.AdminLog.
type adminLog interface {
	List(ctx context.Context, query model.AdminLogQuery) (model.AdminLogPage, error)
}

// administrators is what the console needs of service.Administrators.
type administrators interface {
	List(ctx context.Context) ([]model.Account, error)
}

// limits is what the console needs of service.Limits.
type limits interface {
	InForce() model.Limits
}

// health is what the console needs of service.Health.
type health interface {
	Check(ctx context.Context) []service.Check
	Draining() bool
}

// instances is what the console needs of hotcopy.Instances.
type instances interface {
	Alive(ctx context.Context) ([]model.Instance, error)
}

// tallies is what the console needs of hotcopy.Tallies.
type tallies interface {
	Read(ctx context.Context, voucherID string) (map[string]model.Tally, error)
}

// draws is what the console needs of repository.Draws.
type draws interface {
	Proof(ctx context.Context, voucherID string, admin bool) (model.Draw, error)
}

// reports is what the console needs of service.Reports.
type reports interface {
	Make(ctx context.Context, voucherID string) (model.Report, error)
}

// accounts is what the console needs of service.Accounts.
type accounts interface {
	Login(ctx context.Context, address, username, password string) (service.Session, error)
	Admit(ctx context.Context, claims token.Claims, asAdmin bool) (token.Claims, error)
	Renew(claims token.Claims) (session service.Session, later bool, err error)
	SignOut(ctx context.Context, claims token.Claims) error
	SetGroups(ctx context.Context, id, by string, groups model.Groups) (model.Account, error)
}

// Options are what the console works with; all but Behind are required.
type Options struct {
	Vouchers       vouchers       // *service.Vouchers
	Orders         orders         // *sale.Orders
	Payments       payments       // *repository.Payments
	Refunds        refunds        // *service.Refunds
	Redemptions    redemptions    // *service.Redemptions
	Search         search         // *service.OrderSearch
	Codes          codes          // *service.Codes
	People         people         // *repository.Accounts
	AdminLog       adminLog       // *repository.AdminLog
	Accounts       accounts       // *service.Accounts
	Administrators administrators // *service.Administrators
	Limits         limits         // *service.Limits
	Health         health         // *service.Health
	Build          version.Build
	Instances      instances // *hotcopy.Instances
	Tallies        tallies   // *hotcopy.Tallies: what all instances count
	Reports        reports   // *service.Reports
	Draws          draws     // *repository.Draws

	// Shop also serves the shop window, at ShopPath.
	Shop bool

	// Behind is what works behind the requests; nil in the order mode sync.
	Behind behind

	Tokens   *token.Authority
	Metrics  prometheus.Gatherer // of the backlog; read from memory alone
	Mode     model.OrderMode
	Currency string // ISO 4217
	Log      *slog.Logger
}

type console struct {
	Options

	money money
	pages pages
	files files
	hub   *hub

	recorder recorder
	days     days
}

// Console serves people, and keeps for them what the charts of sales show.
type Console struct {
	http.Handler
	*console
}

// New makes the console's handler. It expects the client's own address in RemoteAddr, and
// "https" as the scheme of the URL where a proxy has taken TLS off.
func New(options Options) (*Console, error) {
	c := &console{Options: options, money: newMoney(options.Currency), recorder: recorder{sales: map[string]*recorded{}}}
	c.hub = newHub(c)
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
	open("POST /language", c.chooseLanguage)
	open("POST /scheme", c.chooseScheme)
	open("GET /static/{file...}", c.files.serve)
	open("/", notFound)
	if c.Shop {
		mux.Handle("GET "+ShopPath, c.public(c.shop))
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
	mux.Handle("GET "+Path, c.signedIn("admin-list-vouchers", c.overview, askToSignIn))
	admin("GET /vouchers", "admin-list-vouchers", c.listVouchers)
	admin("GET /vouchers/new", "create-voucher", c.newVoucher)
	kept("POST /vouchers/new", "create-voucher", c.createVoucher)
	admin("GET /vouchers/{id}", "admin-get-voucher", c.showVoucher)
	admin("GET /vouchers/{id}/events", "admin-get-voucher", c.live)
	admin("GET /vouchers/{id}/edit", "patch-voucher", c.editVoucher)
	kept("POST /vouchers/{id}/edit", "patch-voucher", c.changeVoucher)
	admin("POST /vouchers/{id}/state", "patch-voucher", c.changeState)
	kept("POST /vouchers/{id}/stock", "change-stock", c.changeStock)
	kept("POST /vouchers/{id}/end", "patch-voucher", c.moveEnd)
	admin("GET /vouchers/{id}/audit", "voucher-audit", c.audit)
	admin("GET /vouchers/{id}/report", "voucher-report", c.report)
	admin("POST /vouchers/{id}/repair", wire.RepairVoucher, c.repair)
	admin("POST /vouchers/{id}/rebuild", "rebuild-voucher", c.rebuild)
	admin("GET /orders", "voucher-orders", c.listOrders)
	admin("GET /orders.csv", "voucher-orders", c.exportOrders("csv"))
	admin("GET /orders.xlsx", "voucher-orders", c.exportOrders("xlsx"))
	admin("GET /orders/{id}", "admin-get-order", c.showOrder)
	admin("POST /orders/{id}/cancel", wire.OrderForBuyer, c.cancelOrder)
	admin("POST /orders/{id}/refund", "refund-order", c.refundOrder)
	admin("GET /refunds", "list-refunds", c.listRefunds)
	admin("GET /redeem", "redeem-code", c.redeemPage)
	admin("POST /redemptions", "redeem-code", c.redeem)
	admin("GET /dead-letters", wire.SeeLetters, c.listLetters)
	admin("GET /dead-letters/{sequence}", wire.SeeLetters, c.showLetter)
	admin("POST /dead-letters/{sequence}/replay", wire.ReplayLetter, c.replayLetter)
	admin("POST /dead-letters/{sequence}/drop", wire.DropLetter, c.dropLetter)
	admin("GET /accounts", wire.SeeAccount, c.findAccount)
	admin("GET /accounts/{id}", wire.SeeAccount, c.showAccount)
	kept("POST /accounts/{id}/groups", "set-groups", c.changeGroups)
	admin("GET /system", wire.SeeSystem, c.system)
	admin("GET /log", "admin-log", c.adminLog)
	return mux
}

// at is a pattern of the mux: the method, and the path below the console's.
func at(pattern string) string { return strings.Replace(pattern, "/", Path+"/", 1) }

// policy lets a page load nothing but the console's own files, and lets no text become a
// script (Content Security Policy Level 3; Trusted Types).
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types htmx"

// maxForm bounds a form, in bytes: a description of 4,000 characters, of 4 bytes each and
// 3 characters for a byte, and the other fields.
const maxForm = 64 << 10

// guarded sets the headers of every answer, refuses what another site's page sends, and
// bounds what is read.
func (c *console) guarded(next http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(c.public(func(http.ResponseWriter, *http.Request, *visit) error {
		return &model.Error{Code: model.CodeForbidden, Detail: "The request came from another site's page. Nothing was changed."}
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
