package handler

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"
	"github.com/klauspost/compress/gzhttp"
	"github.com/rs/cors"

	"seckill/handler/wire"
	"seckill/internal/budget"
	"seckill/internal/token"
	"seckill/model"
)

const basePath = "/api/v1" // the probes are beside it

// route describes a route. Its documentation and the checks in front of it are made from this.
type route struct {
	id          string
	call        string // method and path, behind basePath, with {parameters}
	beside      bool   // the path is a whole one, beside the API
	tag         string
	summary     string
	description string
	access      access
	writer      writer
	status      int             // of success; 0: 200
	otherwise   int             // the other status of success, with the same document, where there are two
	large       bool            // the answer is compressed when it is
	tolerant    bool            // the request may have members that are not known here: others define it
	headers     []string        // of success, beside X-Request-Id
	codes       []model.Code    // beside those that access and method bring along
	response    map[string]any  // of success, where no typed output tells: media type → example of the Go type
	request     *huma.MediaType // of a plain handler
}

func (r route) method() string {
	method, _, _ := strings.Cut(r.call, " ")
	return method
}

func (r route) path() string {
	_, path, _ := strings.Cut(r.call, " ")
	if r.beside {
		return path
	}
	return basePath + path
}

const routeKey = "route" // of the route in an operation's metadata

func register[I, O any](a *api, r route, handle func(context.Context, *I) (*O, error)) {
	huma.Register(a.huma, a.operation(r), func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.fail(ctx, err)
		}
		return out, nil
	})
}

type output[T any] struct {
	Body T
}

func answer[I, T any](a *api, r route, handle func(context.Context, *I) (T, error)) {
	register(a, r, func(ctx context.Context, in *I) (*output[T], error) {
		document, err := handle(ctx, in)
		return &output[T]{Body: filled(document)}, err
	})
}

// filled is a document whose lists and maps are empty instead of null, but for those that are left out when empty.
func filled[T any](document T) T {
	fill(reflect.ValueOf(&document).Elem())
	return document
}

func fill(object reflect.Value) {
	for member, field := range object.Fields() {
		switch kind := field.Kind(); {
		case !field.CanSet() || strings.Contains(member.Tag.Get("json"), ",omit"):
		case kind == reflect.Struct:
			fill(field)
		case kind == reflect.Slice && field.IsNil():
			field.Set(reflect.MakeSlice(field.Type(), 0, 0))
		case kind == reflect.Map && field.IsNil():
			field.Set(reflect.MakeMap(field.Type()))
		}
	}
}

// registerPlain adds a route that Gin serves alone and huma only documents.
func (a *api) registerPlain(r route, handle gin.HandlerFunc) {
	op := a.operation(r)
	a.huma.OpenAPI().AddOperation(&op)
	a.mount(r, handle)
}

// registerBare documents no body: generated clients would ask for one. What comes may be missing, null or {}.
func registerBare[T any](a *api, r route, handle func(ctx context.Context, userID, id string) (T, error)) {
	registerEither(a, r, func(ctx context.Context, userID, id string) (T, bool, error) {
		document, err := handle(ctx, userID, id)
		return document, true, err
	})
}

// registerEither is registerBare with a handler that says whether it answers with the route's usual status.
func registerEither[T any](a *api, r route, handle func(ctx context.Context, userID, id string) (T, bool, error)) {
	r.response = map[string]any{"application/json": *new(T)}
	path := r.path()
	a.registerPlain(r, func(c *gin.Context) {
		ctx, id := c.Request.Context(), c.Param("id")
		if err := possible(path, id); err != nil {
			a.abort(c, err)
			return
		}
		if p := emptyBody(c.Request); p != nil {
			a.write(c, p)
			return
		}
		document, usual, err := handle(ctx, subject(ctx), id)
		if err != nil {
			a.abort(c, err)
			return
		}
		status := cmp.Or(r.status, http.StatusOK)
		if !usual {
			status = r.otherwise
		}
		a.send(c, status, "application/json", document)
	})
}

// adapter mounts huma's routes behind the same checks as the plain ones.
type adapter struct {
	http.Handler
	api *api
}

func (d *adapter) Handle(op *huma.Operation, handle func(huma.Context)) {
	r, _ := op.Metadata[routeKey].(route)
	names, path := queryNames(op), r.path()
	d.api.mount(r, func(c *gin.Context) {
		err := possible(path, c.Param("id"))
		if err == nil {
			err = readableQuery(c.Request.URL.RawQuery, names)
		}
		if err != nil {
			d.api.abort(c, err)
			return
		}
		// There is one representation. huma would label it with any of its formats that a client asks for.
		c.Request.Header.Del("Accept")
		handle(humagin.NewContext(op, c))
	})
}

// possible answers NOT_FOUND for an impossible id before the rest is looked at. (A purchase has its 422 first.)
func possible(path, id string) error {
	switch {
	case strings.Contains(path, "/vouchers/{id}"):
		if !model.ValidID(id) {
			return model.NotFound("voucher")
		}
	case strings.Contains(path, "/orders/{id}"):
		if _, ok := model.VoucherOf(id); !ok {
			return model.NotFound("order")
		}
	}
	return nil
}

// mount puts a route behind its checks, in the contract's order. HEAD comes with GET (RFC 9110, 9.1), without the body.
func (a *api) mount(r route, handle gin.HandlerFunc) {
	chain := []gin.HandlerFunc{a.wholePath}
	if r.access != public {
		chain = append(chain, a.authenticate(r.access, r.id))
	}
	chain = append(chain, a.readBody)
	if r.writes() {
		chain = append(chain, a.bound(r.writer))
	}
	if r.large {
		chain = append(chain, a.compress)
	}
	chain = append(chain, handle)
	a.paths = append(a.paths, pattern(r.path()))
	path := strings.NewReplacer("{", ":", "}", "").Replace(r.path())
	a.engine.Handle(r.method(), path, chain...)
	if r.method() == http.MethodGet {
		a.engine.Handle(http.MethodHead, path, chain...)
	}
}

// wholePath refuses paths with an empty segment where an id belongs; Gin takes it for an empty id.
func (a *api) wholePath(c *gin.Context) {
	for _, param := range c.Params {
		if param.Value == "" {
			a.noRoute(c)
			return
		}
	}
}

type access int // who may call a route

const (
	undecided      access = iota // a mistake: a route that does not say who may call it must not be public by default
	public                       // tokens are not looked at
	recognised                   // public, but shows more to a caller with a token; an invalid token counts as none
	users                        // a token is needed
	administrators               // a token with the role admin is needed, and the level of wire.LeastLevel
)

// writer is for whom a route writes, see bound. It means nothing for a route that only reads, or is for administrators.
type writer int

const (
	_         writer = iota // a buyer, if nothing else is said: anybody may come here as often as a network carries
	purchaser               // has connections kept for purchases, and limits in the contract's order: see place
	provider                // of payments, no crowd: waits behind what buyers write, is not refused for their number
)

// writes reports whether buyers may cause what a route writes, beside purchases.
func (r route) writes() bool {
	return r.method() != http.MethodGet && r.access != administrators && r.writer != purchaser
}

// bound lets a user write only so often, and lets what is written take only its share of the database's connections.
func (a *api) bound(w writer) gin.HandlerFunc {
	return func(c *gin.Context) {
		if user := subject(c.Request.Context()); user != "" && a.limitUser(c, user) {
			return
		}
		c.Request = c.Request.WithContext(model.OfBuyers(c.Request.Context(), w == provider))
	}
}

func (a *api) authenticate(who access, operation string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if who == recognised {
			c.Writer.Header().Add("Vary", "Authorization")
		}
		claims, err := a.claims(c.Request.Context(), c.Request.Header)
		if err == nil {
			claims, err = a.options.Accounts.Admit(c.Request.Context(), claims, who != users)
		}
		if claims.Subject != "" && err != nil && model.CodeOf(err) == model.CodeUnauthenticated {
			a.options.Tokens.Ended(c.Request.Context(), claims, err)
		}
		switch {
		case err == nil:
			callOf(c.Request.Context()).claims = claims
		case who == recognised:
			return
		default:
			p := a.fail(c.Request.Context(), err)
			p.challenge = challenge(c.Request.Header)
			a.write(c, p)
			return
		}
		if who == administrators {
			if err := wire.Allow(claims.Level, operation); err != nil {
				a.abort(c, err)
			}
		}
	}
}

// claims reads the bearer token. Its bearer is told which claim is wrong if it is the issuer's; the log gets the rest.
func (a *api) claims(ctx context.Context, header http.Header) (token.Claims, error) {
	refused := &model.Error{Code: model.CodeUnauthenticated, Detail: "A valid bearer token is needed."}
	values := header.Values("Authorization")
	if len(values) != 1 {
		return token.Claims{}, refused
	}
	scheme, credentials, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return token.Claims{}, refused
	}
	claims, err := a.options.Tokens.Verify(ctx, strings.TrimLeft(credentials, " "))
	if invalid, ok := errors.AsType[*token.InvalidError](err); ok {
		if invalid.Reason == token.Unread {
			later := model.Unavailable("The keys of the token's issuer have to be read first.", err)
			later.RetryAfter = invalid.RetryAfter
			return token.Claims{}, later
		}
		refused.Detail, refused.Cause = cmp.Or(invalid.Detail, refused.Detail), err
		return token.Claims{}, refused
	}
	return claims, err
}

// challenge says what is wrong with a refused token (RFC 6750, 3), and nothing where there was none (3.1).
func challenge(header http.Header) string {
	values := header.Values("Authorization")
	if len(values) == 0 {
		return bearerChallenge
	}
	scheme, _, _ := strings.Cut(values[0], " ")
	if len(values) == 1 && !strings.EqualFold(scheme, "Bearer") {
		return bearerChallenge
	}
	return bearerChallenge + ` error="invalid_token", error_description="The token is malformed, expired, revoked or not of this service"`
}

// subject is the user who calls; empty: nobody knows.
func subject(ctx context.Context) string { return callOf(ctx).claims.Subject }

func isAdmin(ctx context.Context) bool { return callOf(ctx).claims.Level.Reaches(model.LevelViewer) }

const requestIDHeader = "X-Request-Id" // in answers, in the log, and in the logs of proxies

// call is what is known of a request. It is one value of the context: each value costs a look-up and an allocation.
type call struct {
	id        string
	accepts   string        // the header Accept-Language
	address   netip.Addr    // of the client; invalid: unknown
	encrypted bool          // a trusted proxy says that the client uses TLS
	elsewhere string        // where a trusted proxy wants it to go if this instance is not ready
	overLimit time.Duration // a purchase's address must wait this long
	claims    token.Claims  // without a subject: anonymous
}

type callKey struct{}

// callOf finds the call of a request; outside of one it is an empty call.
func callOf(ctx context.Context) *call {
	if call, ok := ctx.Value(callKey{}).(*call); ok {
		return call
	}
	return &call{}
}

// identify gives every request its id, the sender's if well-formed, and finds the client's address.
func (a *api) identify(c *gin.Context) {
	id := c.GetHeader(requestIDHeader)
	if len(id) > maxRequestID || !model.OfIDs(id) {
		id = rand.Text()
	}
	header := c.Writer.Header()
	// Answers depend on the clock and on the caller; no cache may repeat one.
	values := []string{id, "no-store", "nosniff"}
	header[requestIDHeader] = values[0:1:1]
	header["Cache-Control"] = values[1:2:2]
	header["X-Content-Type-Options"] = values[2:3:3]
	address := a.proxies.client(c.Request)
	encrypted := a.proxies.encrypted(c.Request)
	elsewhere := c.GetHeader(xUnready)
	if elsewhere != "" && !a.proxies.trusts(peerOf(c.Request)) {
		elsewhere = ""
	}
	if len(a.proxies) > 0 && address != peerOf(c.Request) {
		c.Request.RemoteAddr = netip.AddrPortFrom(address, 0).String() // for whoever asks Gin
	}
	this := &call{
		id: id, accepts: c.GetHeader("Accept-Language"), address: address, encrypted: encrypted, elsewhere: elsewhere,
	}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), callKey{}, this))
}

const maxRequestID = 128 // bytes

// connectionClose asks the client to come back on another connection.
func connectionClose(header http.Header) { header.Set("Connection", "close") }

const minCompressed = 4 << 10 // bytes: a smaller answer saves few packets

// newCompressor compresses large routes, at the fastest level: anybody may ask for a list. No length tells a secret
// (BREACH): no answer repeats a token or what a request says, and these routes take no token from a cookie.
func newCompressor() (gin.HandlerFunc, error) {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minCompressed), gzhttp.CompressionLevel(gzip.BestSpeed),
		gzhttp.EnableZstd(false))
	if err != nil {
		return nil, fmt.Errorf("make the compressor: %w", err)
	}
	return func(c *gin.Context) {
		plain := c.Writer
		defer func() { c.Writer = plain }()
		wrap(http.HandlerFunc(func(body http.ResponseWriter, _ *http.Request) {
			c.Writer = &compressing{ResponseWriter: plain, body: body}
			c.Next()
		}))(plain, c.Request)
	}, nil
}

type compressing struct {
	gin.ResponseWriter
	body http.ResponseWriter
}

func (w *compressing) Write(data []byte) (int, error) { return w.body.Write(data) }

func (w *compressing) WriteString(text string) (int, error) { return io.WriteString(w.body, text) }

// Flush sends what was written so far: an export streams compressed, too.
func (w *compressing) Flush() {
	_ = http.NewResponseController(w.body).Flush() // the compressor can
}

// Unwrap gives http.ResponseController the connection's deadlines.
func (w *compressing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// preflightAge is as long as Chrome remembers: it saves round trips. An origin no longer allowed loses answers at once.
const preflightAge = 2 * budget.Hour

// crossOrigin lets origins call the API and read its answers, a 429 too. It ends no request: noMethod answers
// preflights. The API has no cookies: a foreign page, without a token, can do nothing in a user's name. So any header
// is allowed: tracing in browsers adds some. See https://fetch.spec.whatwg.org/#http-cors-protocol.
func crossOrigin(origins []string) gin.HandlerFunc {
	allowed := cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		},
		AllowedHeaders: []string{"*"}, // whatever is asked for; it is named in the answer, Authorization included
		ExposedHeaders: []string{
			"Location", "Retry-After", "ETag", requestIDHeader, "RateLimit", "RateLimit-Policy", "WWW-Authenticate",
			"Content-Disposition", "Allow",
		},
		MaxAge: int(preflightAge.Seconds()),
	})
	return func(c *gin.Context) { allowed.HandlerFunc(c.Writer, c.Request) }
}
