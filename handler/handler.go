// Package handler is the product on HTTP. It checks the form of a request, asks the services, and translates their
// answers. Which values are allowed, the model says. Each route is a value of the type route: its documentation and its
// checks are made of it. Most are typed functions behind huma; the hot one, a purchase, huma only documents.
package handler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"seckill/internal/budget"
	"seckill/internal/payment"
	"seckill/internal/ratelimit"
	"seckill/internal/token"
	"seckill/internal/version"
	"seckill/internal/words"
	"seckill/model"
	"seckill/service"
)

const warningsPerSecond = 10 // about a dependency that is down, so that they do not hide the rest of the log

type (
	orders interface {
		Place(ctx context.Context, userID, voucherID string, groups ...string) (model.Order, error)
		Get(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error)
		List(ctx context.Context, query model.OrderQuery) (model.OrderPage, error)
		Detail(ctx context.Context, orderID string) (model.OrderDetail, error)
		Cancel(ctx context.Context, userID, orderID string) (model.Order, error)
		Join(ctx context.Context, userID, voucherID string,
			groups ...string) (place model.WaitlistPlace, created bool, err error)
		Waits(ctx context.Context, userID, voucherID string) (model.WaitlistPlace, error)
		Leave(ctx context.Context, userID, voucherID string) error
	}
	vouchers interface {
		Get(ctx context.Context, id string, admin bool) (model.Voucher, error)
		List(ctx context.Context, query model.VoucherQuery) (model.VoucherPage, error)
		Create(ctx context.Context, voucher model.VoucherFields, by string,
			once model.Idempotency) (model.Voucher, error)
		Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error)
		ChangeStock(ctx context.Context, id string, change model.StockChange,
			once model.Idempotency) (model.Voucher, error)
		Stats(ctx context.Context, id string) (model.Stats, error)
		Audit(ctx context.Context, id string) (model.Audit, error)
		Rebuild(ctx context.Context, id, adminID string) error
	}
	payments interface {
		Pay(ctx context.Context, userID, orderID string) (model.Payment, model.Order, error)
		Elsewhere(ctx context.Context, adminID, orderID string, paid model.Elsewhere) (model.Order, error)
		Notice(ctx context.Context, notice model.PaymentNotice) error
		Unheard(outcome string)
	}
	draws interface {
		Entry(ctx context.Context, voucherID, userID string) (model.Entry, error)
		Proof(ctx context.Context, voucherID string, admin bool) (model.Draw, error)
		SetValue(ctx context.Context, voucherID, value, adminID string) (model.Draw, error)
		Leaves(ctx context.Context, voucherID string, admin bool, cursor string, limit int) (model.DrawnLeaves, error)
	}
	accounts interface {
		Register(ctx context.Context, address, username, password string) (model.Account, error)
		Login(ctx context.Context, address, username, password string) (service.Session, error)
		ChangePassword(ctx context.Context, address string, claims token.Claims, current, next string) error
		Admit(ctx context.Context, claims token.Claims, asAdmin bool) (token.Claims, error)
		SetGroups(ctx context.Context, id, by string, groups model.Groups) (model.Account, error)
	}
	people interface {
		Data(ctx context.Context, userID string) (model.PersonData, error)
		Erase(ctx context.Context, userID, adminID string) error
	}
	limits interface {
		InForce() model.Limits
		Change(ctx context.Context, patch model.LimitsPatch) (model.Limits, error)
	}
	health interface {
		Check(ctx context.Context) []service.Check
		Ready() bool
	}
)

// Options are what the handler works with. What may be nil or empty says so; everything else is required.
type Options struct {
	Orders   orders   // *sale.Orders
	Vouchers vouchers // *service.Vouchers
	Accounts accounts // *service.Accounts
	Health   health   // *service.Health
	Limits   limits   // *service.Limits
	Build    version.Build

	Payments payments // *service.Payments
	Draws    draws    // *repository.Draws
	People   people   // *service.People

	Search   func(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	Export   func(ctx context.Context, q model.OrderQuery, row func(model.BookedOrder) error) error
	Redeem   func(ctx context.Context, till model.Till, code string) (model.Order, error)
	Unredeem func(ctx context.Context, undo model.Undo) (model.Order, error)
	Refund   func(ctx context.Context, adminID, orderID string, ask model.RefundAsk) (model.Refund, error)
	PaidBack func(ctx context.Context, adminID, orderID string) (model.Refund, error)
	Refunds  func(ctx context.Context, query model.RefundQuery) (model.RefundPage, error)
	Withdraw func(ctx context.Context, userID, orderID string) (receipt model.OrderDetail, changed bool, err error)
	AdminLog func(ctx context.Context, query model.AdminLogQuery) (model.AdminLogPage, error)
	Report   func(ctx context.Context, voucherID string) (model.Report, error)
	Replay   func(ctx context.Context, voucherID string, admin bool) (model.Replay, error)

	Receivers    func(ctx context.Context) (model.EventReceivers, error)
	ReplayEvents func(ctx context.Context, adminID string, since time.Time, url string) error

	Tokens   *token.Authority
	Webhooks *payment.Signatures // verifies those of the payment provider

	// ByUser limits what a user writes, and ByAddress all requests; nil is no limit.
	ByUser    *ratelimit.Limiter
	ByAddress *ratelimit.Addresses

	// TrustedProxies may tell the client's address in their headers; none by default: any client can write a header.
	TrustedProxies []netip.Prefix

	// Origins are the origins (scheme://host[:port]) of pages whose scripts may call the API; none by default.
	Origins []string

	// Console is what people see at /console and below, and Shop at /shop; nil is none.
	Console http.Handler
	Shop    http.Handler

	Trace gin.HandlerFunc // the first of every chain; nil: nothing is traced

	Currency string // ISO 4217
	Log      *slog.Logger
	Metrics  prometheus.Registerer
}

// api is the handler while it is put together, and what its routes share.
type api struct {
	options   Options
	engine    *gin.Engine
	paths     []string // of its routes, as patterns of path.Match
	huma      huma.API
	durations *prometheus.HistogramVec
	warnings  *rate.Limiter
	strangers rate.Sometimes // log lines about webhooks that nobody we know has signed
	proxies   proxies
	probes    *ratelimit.Addresses
	brake     *ratelimit.Brake
	compress  gin.HandlerFunc
	words     *words.Catalogue
}

// strictNames makes huma tell Title from title, once, so that two APIs that are built at once do not race.
//
//nolint:gochecknoglobals // guards a variable of another package
var strictNames = sync.OnceFunc(func() { huma.ValidateStrictCasing = true })

// NewHealthOnly serves an instance that only works: health checks, else problems. It needs Health, Build, Log, Metrics.
func NewHealthOnly(options Options) (http.Handler, error) {
	a, err := begin(options)
	if err != nil {
		return nil, err
	}
	a.healthRoutes()
	return a.engine, nil
}

// New makes the main listener's handler.
func New(options Options) (http.Handler, error) {
	a, err := begin(options)
	if err != nil {
		return nil, err
	}
	a.accountRoutes()
	a.voucherRoutes()
	a.orderRoutes()
	a.drawRoutes()
	a.waitlistRoutes()
	a.paymentRoutes()
	a.adminVoucherRoutes()
	a.adminOrderRoutes()
	a.redemptionRoutes()
	a.refundRoutes()
	a.adminLogRoutes()
	a.eventRoutes()
	a.personRoutes()
	a.limitRoutes()
	a.healthRoutes()
	a.pages(a.options.Console, consolePath)
	a.pages(a.options.Shop, shopPath)
	if err := a.problemRoutes(); err != nil {
		return nil, err
	}
	if err := a.documentRoutes(); err != nil {
		return nil, err
	}
	return a.engine, nil
}

func begin(options Options) (*api, error) {
	strictNames()
	gin.SetMode(gin.ReleaseMode) // else Gin prints its routes to standard output
	options.ByUser = cmp.Or(options.ByUser, ratelimit.New("user", 0, nil))
	options.ByAddress = cmp.Or(options.ByAddress, ratelimit.NewAddresses(nil))
	a := &api{
		options:   options,
		engine:    gin.New(),
		durations: requestDurations(),
		warnings:  rate.NewLimiter(warningsPerSecond, warningsPerSecond),
		strangers: rate.Sometimes{Interval: time.Minute},
		proxies:   options.TrustedProxies,
		probes:    ratelimit.NewAddresses(nil),
	}
	if err := a.configure(); err != nil {
		return nil, err
	}
	if options.Trace != nil {
		a.engine.Use(options.Trace)
	}
	a.engine.Use(a.identify, a.observe)
	if len(options.Origins) > 0 {
		a.engine.Use(crossOrigin(options.Origins))
	}
	a.engine.Use(makeRoom, a.handOver, a.limitAddress)
	a.engine.NoRoute(a.noRoute)
	a.engine.NoMethod(a.noMethod)
	a.huma = huma.NewAPI(a.humaConfig(), &adapter{Handler: a.engine, api: a})
	return a, nil
}

func (a *api) configure() error {
	a.probes.Set(model.Rate{Events: probeRate, Per: budget.Look}, "")
	a.brake = ratelimit.NewBrake()
	var err error
	if a.words, err = words.New(); err != nil {
		return err
	}
	if a.compress, err = newCompressor(); err != nil {
		return err
	}
	// identify has put in the client's address; Gin's own reading of headers believes more of them.
	a.engine.ForwardedByClientIP = false
	if err := a.options.Metrics.Register(a.durations); err != nil {
		return fmt.Errorf("register the metrics of HTTP: %w", err)
	}
	a.engine.RedirectTrailingSlash = false // Gin's own is 301 for GET, which caches keep for good: see withoutSlash
	a.engine.UseRawPath = true             // an escaped slash belongs to an id, which then cannot exist
	a.engine.HandleMethodNotAllowed = true
	return nil
}

// withoutSlash answers 308, which keeps method and body, for our paths with a slash behind; not to a preflight (Fetch).
func (a *api) withoutSlash(c *gin.Context) bool {
	given := c.Request.URL.EscapedPath()
	trimmed := strings.TrimRight(given, "/")
	ours := func(pattern string) bool { found, err := path.Match(pattern, trimmed); return found && err == nil }
	if trimmed == given || !slices.ContainsFunc(a.paths, ours) {
		return false
	}
	if c.Request.Method == http.MethodOptions {
		c.AbortWithStatus(http.StatusNoContent)
		return true
	}
	if c.Request.URL.RawQuery != "" {
		trimmed += "?" + c.Request.URL.RawQuery
	}
	c.Writer.Header().Set("Location", trimmed)
	c.AbortWithStatus(http.StatusPermanentRedirect)
	return true
}

func (a *api) noRoute(c *gin.Context) {
	if a.welcome(c) || a.withoutSlash(c) {
		return
	}
	a.abort(c, &model.Error{Code: model.CodeNotFound, Detail: "There is nothing at this path."})
}

// noMethod refuses a method. Gin has set Allow to those that the path knows.
func (a *api) noMethod(c *gin.Context) {
	if a.withoutSlash(c) {
		return
	}
	if c.Request.Method == http.MethodOptions {
		c.AbortWithStatus(http.StatusNoContent)
		return
	}
	a.abort(c, &model.Error{
		Code:   model.CodeMethodNotAllowed,
		Detail: "This path knows other methods: see the header Allow.",
	})
}

const tagOperations = "Operations"

// Liveness is the answer of /livez.
type Liveness struct {
	Status string `json:"status" example:"ok"`
}

// Readiness is the answer of /readyz when all is well.
type Readiness struct {
	Status string            `json:"status" example:"ready"`
	Checks map[string]string `json:"checks" doc:"One line per dependency."`
	Build  version.Build     `json:"build"`
}

func (a *api) healthRoutes() {
	a.registerPlain(route{
		id: "livez", call: "GET /livez", beside: true, tag: tagOperations, access: public,
		summary: "Is the process alive", description: "Asks no dependency.",
		response: map[string]any{"application/json": Liveness{}},
	}, func(c *gin.Context) {
		a.send(c, http.StatusOK, "application/json", Liveness{Status: "ok"})
	})
	a.registerPlain(route{
		id: "readyz", call: "GET /readyz", beside: true, tag: tagOperations, access: public,
		summary: "Can this instance serve",
		description: "503 while nothing can be sold or the server is about to stop, with a line per check: what a sale reads can be read, " +
			"the database takes writes, and the queue has its leader. Order mode async sells on for a while without the database.",
		codes:    []model.Code{model.CodeUnavailable},
		response: map[string]any{"application/json": Readiness{}},
	}, a.ready)
}

// ready answers with one line per check, so that it can be read with curl.
func (a *api) ready(c *gin.Context) {
	checks := map[string]string{}
	ready := true
	for _, check := range a.options.Health.Check(c.Request.Context()) {
		checks[check.Name] = cmp.Or(check.Note, "ok")
		if check.Err != nil {
			ready = false
			checks[check.Name] = a.complaint(c, check.Name, check.Err)
		}
	}
	status, contentType := http.StatusOK, "application/json"
	var document any = Readiness{Status: "ready", Checks: checks, Build: a.options.Build}
	if !ready {
		p := problemOf(model.Unavailable("This instance is not ready.", nil))
		p.Checks, p.Build = checks, &a.options.Build
		maps.Copy(c.Writer.Header(), p.GetHeaders())
		status, contentType, document = p.Status, problemType, p
	}
	lines, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		a.abort(c, err)
		return
	}
	c.Data(status, contentType, append(lines, '\n'))
}

// complaint is the detail that a client gets for a failed check. The error itself, with its addresses, is only logged.
func (a *api) complaint(c *gin.Context, name string, err error) string {
	ctx := c.Request.Context()
	if a.warnings.Allow() {
		a.options.Log.LogAttrs(ctx, slog.LevelWarn, "not ready",
			slog.String("request_id", callOf(ctx).id), slog.String("check", name), slog.Any("error", err))
	}
	if refusal, ok := errors.AsType[*model.Error](err); ok && refusal.Detail != "" {
		return refusal.Detail
	}
	return "cannot be reached"
}

// NewOperations serves metrics and profiles, without authentication and therefore on a listener of its own.
func NewOperations(gatherer prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
