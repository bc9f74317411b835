package handler_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"seckill/handler"
	"seckill/internal/payment"
	"seckill/internal/token"
	"seckill/internal/version"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service"
)

const (
	secret        = "a secret of at least 32 bytes, for tests"
	webhookSecret = "a secret of webhooks, for tests"
)

// fakes stand for the services. Each function may be replaced before the server gets its first request.
type fakes struct {
	place       func(ctx context.Context, userID, voucherID string) (model.Order, error)
	getOrder    func(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error)
	listOrders  func(ctx context.Context, query model.OrderQuery) (model.OrderPage, error)
	each        func(ctx context.Context, query model.OrderQuery, row func(model.BookedOrder) error) error
	getVoucher  func(ctx context.Context, id string, admin bool) (model.Voucher, error)
	create      func(ctx context.Context, v model.VoucherFields, by string, once model.Idempotency) (model.Voucher, error)
	patch       func(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error)
	changeStock func(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (model.Voucher, error)
	cancel      func(ctx context.Context, userID, orderID string) (model.Order, error)
	rebuild     func(ctx context.Context, id, by string) error
	login       func(ctx context.Context, username, password string) (service.Session, error)
	limits      model.Limits
	admit       func(ctx context.Context, claims token.Claims, asAdmin bool) error
	checks      []service.Check
	slow        time.Duration // an audit
}

// usual are fakes that change nothing, and find every voucher and no order.
func usual() *fakes {
	return &fakes{
		limits: model.Limits{
			User: model.Rate{Events: 20, Per: time.Second},
			Addr: model.Rate{Events: 1000, Per: time.Second},
		},
		place: sold,
		getOrder: func(_ context.Context, _, id string, _ time.Duration) (model.Order, error) {
			return model.Order{ID: id}, nil
		},
		cancel:  func(_ context.Context, _, id string) (model.Order, error) { return model.Order{ID: id}, nil },
		rebuild: func(context.Context, string, string) error { return nil },
		login: func(context.Context, string, string) (service.Session, error) {
			return service.Session{}, &model.Error{Code: model.CodeUnauthenticated}
		},
		listOrders: func(context.Context, model.OrderQuery) (model.OrderPage, error) { return model.OrderPage{}, nil },
		getVoucher: func(_ context.Context, id string, _ bool) (model.Voucher, error) { return voucher(id), nil },
		create: func(context.Context, model.VoucherFields, string, model.Idempotency) (model.Voucher, error) {
			return voucher("v1"), nil
		},
		patch: func(_ context.Context, id string, _ model.VoucherPatch) (model.Voucher, error) {
			return voucher(id), nil
		},
		changeStock: func(_ context.Context, id string, _ model.StockChange, _ model.Idempotency) (model.Voucher, error) {
			return voucher(id), nil
		},
		admit: func(context.Context, token.Claims, bool) error { return nil },
	}
}

type (
	fakeOrders struct {
		handler.Orders
		*fakes
	}
	fakeVouchers struct {
		handler.Vouchers
		*fakes
	}
	fakeAccounts struct {
		handler.Accounts
		*fakes
	}
	fakeDraws  struct{ handler.Draws }
	fakeHealth struct{ *fakes }
	fakeLimits struct{ *fakes }
)

func (fakeDraws) Leaves(context.Context, string, bool, string, int) (model.DrawnLeaves, error) {
	return model.DrawnLeaves{}, nil
}

func (f fakeOrders) Place(ctx context.Context, userID, voucherID string, _ ...string) (model.Order, error) {
	return f.place(ctx, userID, voucherID)
}

func (f fakeOrders) Get(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error) {
	return f.getOrder(ctx, userID, orderID, wait)
}

func (f fakeOrders) List(ctx context.Context, query model.OrderQuery) (model.OrderPage, error) {
	return f.listOrders(ctx, query)
}

func (f fakeOrders) Cancel(ctx context.Context, userID, orderID string) (model.Order, error) {
	return f.cancel(ctx, userID, orderID)
}

func (fakeOrders) Leave(context.Context, string, string) error { return model.NotFound("place") }

func (f fakeVouchers) Rebuild(ctx context.Context, id, by string) error {
	return f.rebuild(ctx, id, by)
}

func (f fakeVouchers) Get(ctx context.Context, id string, admin bool) (model.Voucher, error) {
	return f.getVoucher(ctx, id, admin)
}

func (f fakeVouchers) List(context.Context, model.VoucherQuery) (model.VoucherPage, error) {
	return model.VoucherPage{}, nil
}

func (f fakeVouchers) Create(
	ctx context.Context, v model.VoucherFields, by string, once model.Idempotency,
) (model.Voucher, error) {
	return f.create(ctx, v, by, once)
}

func (f fakeVouchers) Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error) {
	return f.patch(ctx, id, patch)
}

func (f fakeVouchers) ChangeStock(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (model.Voucher, error) {
	return f.changeStock(ctx, id, change, once)
}

func (f fakeVouchers) Audit(_ context.Context, id string) (model.Audit, error) {
	time.Sleep(f.slow) // of a bubble
	return model.Audit{VoucherID: id, Mode: model.ModeSync, Balanced: true}, nil
}

func (fakeAccounts) Register(_ context.Context, _, username, _ string) (model.Account, error) {
	return model.Account{ID: "a1", Username: username, Role: model.RoleUser}, nil
}

func (f fakeAccounts) Login(ctx context.Context, _, username, password string) (service.Session, error) {
	return f.login(ctx, username, password)
}

func (f fakeAccounts) Admit(ctx context.Context, claims token.Claims, asAdmin bool) (token.Claims, error) {
	return claims, f.admit(ctx, claims, asAdmin)
}

func (f fakeHealth) Check(context.Context) []service.Check { return f.checks }
func (f fakeHealth) Ready() bool                           { return len(f.checks) == 0 || f.checks[0].Err == nil }

func (f fakeLimits) InForce() model.Limits { return f.limits }

func (f fakeLimits) Change(_ context.Context, patch model.LimitsPatch) (model.Limits, error) {
	f.limits = patch.Of(f.limits)
	return f.limits, nil
}

func nothing[Q, P any](context.Context, Q) (page P, err error) { return page, nil }

func voucher(id string) model.Voucher {
	return model.Voucher{
		ID: id, VoucherFields: model.VoucherFields{Title: "A voucher", Currency: "CNY", State: model.VoucherPublished},
		VoucherView: model.VoucherView{Phase: model.PhaseLive},
	}
}

type server struct {
	fakes     *fakes
	handler   http.Handler
	url       string
	transport *http.Transport
	tokens    *token.Authority
	registry  *prometheus.Registry
	log       *check.Log
}

func setup(t testing.TB, change ...func(*handler.Options)) *server {
	t.Helper()
	s := build(t, change...)
	listener := httptest.NewServer(s.handler)
	s.url, s.transport = listener.URL, http.DefaultTransport.(*http.Transport)
	t.Cleanup(s.transport.CloseIdleConnections)
	t.Cleanup(listener.Close)
	return s
}

// writeTimeout is how much time servers in bubbles give an answer, as the real one does.
const writeTimeout = 20 * time.Second

// inBubble runs a test whose time is virtual, with a server behind a network inside the process.
func inBubble(t *testing.T, test func(t *testing.T, s *server), change ...func(*handler.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := build(t, change...)
		network := check.NewNetwork()
		listener := httptest.Server{
			Listener: network,
			Config:   &http.Server{Handler: s.handler, WriteTimeout: writeTimeout, ReadHeaderTimeout: writeTimeout},
		}
		listener.Start()
		t.Cleanup(listener.Close)
		s.url, s.transport = listener.URL, &http.Transport{DialContext: network.Dial}
		t.Cleanup(s.transport.CloseIdleConnections)
		test(t, s)
	})
}

func build(t testing.TB, change ...func(*handler.Options)) *server {
	t.Helper()
	tokens := check.Value(token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill"))(t)
	webhooks := check.Value(payment.NewSignatures([]string{webhookSecret}))(t)
	s := &server{fakes: usual(), tokens: tokens, registry: prometheus.NewRegistry(), log: &check.Log{}}
	options := handler.Options{
		Orders:   fakeOrders{fakes: s.fakes},
		Vouchers: fakeVouchers{fakes: s.fakes},
		Accounts: fakeAccounts{fakes: s.fakes},
		Health:   fakeHealth{s.fakes},
		Limits:   fakeLimits{s.fakes},
		Tokens:   tokens,
		Webhooks: webhooks,
		Draws:    fakeDraws{},
		Search:   nothing[model.OrderQuery, model.OrderPage],
		Export: func(ctx context.Context, q model.OrderQuery, row func(model.BookedOrder) error) error {
			return s.fakes.each(ctx, q, row)
		},
		Refunds:  nothing[model.RefundQuery, model.RefundPage],
		AdminLog: nothing[model.AdminLogQuery, model.AdminLogPage],
		Build:    version.Build{Version: "v1.2.0", Commit: "35879b0", Go: "go1.26.8"},
		Currency: "CNY",
		Log:      slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Metrics:  s.registry,
	}
	for _, alter := range change {
		alter(&options)
	}
	s.handler = check.Value(handler.New(options))(t)
	return s
}

func (s *server) token(t testing.TB, user string, role model.Role) string {
	t.Helper()
	signed := check.Value(s.tokens.Issue(token.Claims{Subject: user, Role: role, Username: "name-of-" + user},
		time.Hour))(t)
	return signed
}

type answer struct {
	status int
	header http.Header
	body   string
	asked  string
}

func (a answer) is(t testing.TB, status int) {
	t.Helper()
	check.That(t, a.status == status, "%s is %d, want %d: %s", a.asked, a.status, status, a.body)
}

type problem = handler.Problem

func (s *server) do(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	return s.send(t, method, path, reader, headers...)
}

func (s *server) several(t *testing.T, method, path, body, name string, values, headers []string) answer {
	t.Helper()
	request := s.request(t, t.Context(), method, path, strings.NewReader(body), headers...)
	request.Header[name] = values
	return s.answer(t, request)
}

func (s *server) send(t *testing.T, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	return s.answer(t, s.request(t, t.Context(), method, path, body, headers...))
}

func (s *server) answer(t *testing.T, request *http.Request) answer {
	t.Helper()
	response, err := s.transport.RoundTrip(request)
	check.Must(t, err)
	defer response.Body.Close()
	content := check.Value(io.ReadAll(response.Body))(t)
	return answer{
		response.StatusCode, response.Header, string(content),
		request.Method + " " + request.URL.RequestURI(),
	}
}

// request makes a request; headers are pairs of name and value, and an empty value is no header.
func (s *server) request(t *testing.T, ctx context.Context, method, path string, body io.Reader, headers ...string) *http.Request { //nolint:revive // t is first in every helper
	t.Helper()
	request := check.Value(http.NewRequestWithContext(ctx, method, s.url+path, body))(t)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			request.Header.Del(headers[i])
			continue
		}
		request.Header.Set(headers[i], headers[i+1])
	}
	return request
}

func (s *server) as(t testing.TB, user string, role model.Role) []string {
	t.Helper()
	return []string{"Authorization", "Bearer " + s.token(t, user, role)}
}

func wantProblem(t *testing.T, got answer, status int, code model.Code) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Fatalf("%d %s: not a problem document: %q", got.status, got.header.Get("Content-Type"), got.body)
	}
	kebab := "/problems/" + strings.ToLower(strings.ReplaceAll(string(code), "_", "-"))
	got.is(t, status)
	check.That(t, p.Status == status && p.Code == code && p.Type == kebab, "%s, want %d %s", got.body, status, code)
	check.Equal(t, "the type", got.header.Get("Content-Type"), "application/problem+json")
	check.That(t, got.header.Get("X-Request-Id") != "" && p.Title != "" && p.Detail != "", "%v %s", got.header,
		got.body)
	return p
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func record(t *testing.T, h http.Handler, method, path string) answer {
	t.Helper()
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return answer{recorder.Code, recorder.Header(), recorder.Body.String(), method + " " + path}
}
