package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"seckill/config"
	"seckill/internal/api"
	command "seckill/internal/app"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// deployment is one instance for all tests of the contract. Each test has its own users, vouchers and names in it.
type deployment struct {
	mode     model.OrderMode
	settings func(*testing.T) settings

	mu       sync.Mutex
	tests    int
	lasting  lasting
	log      *check.Log
	instance *command.Instance
}

// deployments are the two order modes on real and on embedded servers: all promise clients the same.
var deployments = map[string]*deployment{
	"sync on servers":  {mode: model.ModeSync, settings: onServers},
	"sync embedded":    {mode: model.ModeSync, settings: embeddedSettings},
	"async on servers": {mode: model.ModeAsync, settings: asyncOnServers},
	"async embedded":   {mode: model.ModeAsync, settings: embeddedSettings},
}

// lasting is a testing.TB whose Cleanup runs after the last test that uses what is shared.
type lasting struct {
	testing.TB
	ends []func()
}

func (l *lasting) Cleanup(end func()) { l.ends = append(l.ends, end) }

func (l *lasting) end(t testing.TB) {
	t.Helper()
	l.TB = t
	for ; len(l.ends) > 0; l.ends = l.ends[:len(l.ends)-1] {
		l.ends[len(l.ends)-1]()
	}
}

// origins are those whose pages may buy from the deployments on servers. No page may buy from the embedded ones.
func origins() []string { return []string{"https://shop.example", "http://127.0.0.1:3000"} }

// join keeps the instance running until the test ends.
func (d *deployment) join(t *testing.T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.Cleanup(func() { d.leave(t) })
	if d.tests++; d.tests > 1 {
		return
	}
	dir := check.Value(os.MkdirTemp("", "seckill-shared-"))(t) //nolint:usetesting // it outlives this test
	d.lasting = lasting{TB: t}
	d.lasting.Cleanup(func() { check.Must(&d.lasting, os.RemoveAll(dir)) })
	s := d.settings(t).with(settings{
		"SECKILL_ORDER_MODE": string(d.mode), "SECKILL_CURRENCY": "EUR",
		"SECKILL_PAYMENT_WINDOW": "7m",
	})
	if s["SECKILL_DATA_DIR"] != "" {
		s["SECKILL_DATA_DIR"] = dir
	} else {
		s["SECKILL_DATABASE_DSN"], s["SECKILL_CORS_ORIGINS"] = testserver.Schema(&d.lasting),
			strings.Join(origins(), ",")
	}
	d.log = &check.Log{}
	log := slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d.instance = check.Value(command.Start(context.Background(), check.Value(config.Load(s.environ()))(t), log))(t)
}

func (d *deployment) leave(t *testing.T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.Failed() {
		testserver.KeepLog(t, "seckill", d.log.String())
	}
	if d.tests--; d.tests > 0 || d.instance == nil {
		return
	}
	halt(d.instance)
	d.instance = nil
	d.lasting.end(t)
}

type shop struct {
	*app

	mode     model.OrderMode
	embedded bool
}

// everywhere runs a test of the contract in both order modes, on the real servers and on the embedded ones.
func everywhere(t *testing.T, test func(t *testing.T, a shop)) {
	t.Helper()
	for name := range deployments {
		within(t, name, test)
	}
}

// anywhere runs a test of what has nothing to do with the order mode, on the real servers and on the embedded ones.
func anywhere(t *testing.T, test func(t *testing.T, a shop)) {
	t.Helper()
	within(t, "sync on servers", test)
	within(t, "async embedded", test)
}

func within(t *testing.T, name string, test func(t *testing.T, a shop)) {
	t.Helper()
	d := deployments[name]
	d.join(t) // here, and not in the test below: it runs when all have joined
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t, shop{newApp(t, d.instance.BaseURL(), d.instance.OpsURL()), d.mode, strings.HasSuffix(name, "embedded")})
	})
}

func (a *app) name(name string) string { return name + "." + strings.TrimSuffix(a.prefix, ":") }

func (a *app) buys(t testing.TB, voucherID, user string) model.Order {
	t.Helper()
	return a.becomes(t, a.bought(t, voucherID, user), model.OrderUnpaid)
}

// bought makes an order, which becomes unpaid if it is not yet, and goes on from there.
func (a *app) bought(t testing.TB, voucherID, user string) model.Order {
	t.Helper()
	got := a.buy(t, voucherID, user)
	order, ok := orderOf(t, got, voucherID, user)
	check.Need(t, ok, "%s buys: %d %s", user, got.Status, got.Body)
	return order
}

// orderOf is the order that a purchase's answer promises, or names after an answer of unknown outcome.
func orderOf(t testing.TB, got api.Answer, voucherID, user string) (order model.Order, ok bool) {
	t.Helper()
	switch {
	case got.Sells():
		return remote.Decode[model.Order](t, got), true
	case got.Code() == model.CodeAlreadyOrdered:
		return model.Order{ID: remote.Decode[api.Problem](t, got).OrderID, VoucherID: voucherID, UserID: user}, true
	}
	return order, false
}

// addresses are those of this machine that tests have been seen from.
var addresses atomic.Int64

// elsewhere is the program seen from an address that nobody has had.
func (a *app) elsewhere(t testing.TB) *app {
	t.Helper()
	n := addresses.Add(1)
	return a.from(t, "127.2."+strconv.FormatInt(n/250, 10)+"."+strconv.FormatInt(n%250+1, 10))
}

func (a *app) from(t testing.TB, address string) *app {
	t.Helper()
	elsewhere := *a
	elsewhere.Client = remote.Client(t, address, 100)
	return &elsewhere
}

// document is the program's own OpenAPI document, by which the contract's tests find the routes and check the answers.
type document struct {
	Paths map[string]map[string]documented

	compiler *jsonschema.Compiler
	mu       sync.Mutex
	seen     map[string]bool // "GET /path 200": answers that were checked
}

type documented struct {
	Security  []map[string][]string
	Responses map[string]struct {
		Content map[string]json.RawMessage
		Headers map[string]json.RawMessage
	}
}

func (d documented) protected() bool {
	for _, alternative := range d.Security {
		if len(alternative) == 0 {
			return false
		}
	}
	return len(d.Security) > 0
}

func readDocument(t *testing.T, a *app) *document {
	t.Helper()
	got := a.Call(t, http.MethodGet, "/openapi.json", "", nil)
	check.Need(t, got.Status == http.StatusOK && got.Header.Get("Content-Type") == "application/json", "%v", got.Header)
	doc := remote.Decode[*document](t, got)
	doc.seen = map[string]bool{}
	content := check.Value(jsonschema.UnmarshalJSON(bytes.NewReader(got.Body)))(t)
	doc.compiler = jsonschema.NewCompiler()
	doc.compiler.AssertFormat()
	check.Must(t, doc.compiler.AddResource("api.json", content))
	return doc
}

type route struct {
	method, path string // /api/v1/…, with {id}
	operation    documented
}

func (d *document) routes(holds func(route) bool) []route {
	var list []route
	for path, methods := range d.Paths {
		for method, operation := range methods {
			if r := (route{strings.ToUpper(method), path, operation}); holds(r) {
				list = append(list, r)
			}
		}
	}
	return list
}

// check holds an answer to the document: the operation must have its status, media type, headers and body.
func (d *document) check(t *testing.T, method, template string, got api.Answer) {
	t.Helper()
	operation, ok := d.Paths[template][strings.ToLower(method)]
	if !ok {
		t.Errorf("%s %s is not documented", method, template)
		return
	}
	status := strconv.Itoa(got.Status)
	response, ok := operation.Responses[status]
	if !ok {
		t.Errorf("%s %s: %s is not documented: %s", method, template, status, got.Body)
		return
	}
	for name := range response.Headers {
		optional := name == "Retry-After" && status == "409" || name == "Content-Disposition"
		check.That(t, got.Header.Get(name) != "" || optional, "%s %s: %s lacks its header %s", method, template, status,
			name)
	}
	contentType := got.Header.Get("Content-Type")
	if _, ok := response.Content[contentType]; !ok {
		t.Errorf("%s %s: %s as %q is not documented", method, template, status, contentType)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[method+" "+template+" "+status+" "+contentType] = true
	if !strings.Contains(contentType, "json") {
		return
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	pointer := "api.json#/paths/" + escape.Replace(template) + "/" + strings.ToLower(method) + "/responses/" + status +
		"/content/" + escape.Replace(contentType) + "/schema"
	schema := check.Value(d.compiler.Compile(pointer))(t)
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(got.Body))
	check.Need(t, err == nil, "%s %s: %v in %s", method, template, err, got.Body)
	if err := schema.Validate(body); err != nil {
		t.Errorf("%s %s: %v\n%s", method, template, err, got.Body)
	}
}

func concrete(path, id string) string {
	return regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, id)
}

// TestAnswersAreAsDocumented makes every call of the document succeed once, refuses some, and checks each schema.
func TestAnswersAreAsDocumented(t *testing.T) {
	t.Parallel()
	everywhere(t, checkAnswersAreAsDocumented)
}

func checkAnswersAreAsDocumented(t *testing.T, in shop) {
	a := in.elsewhere(t)
	doc := readDocument(t, a)
	admin, buyer := a.Admin(t), a.Token(t, a.user(1), "user")
	voucher := a.onSale(t, 2)
	empty := a.Create(t, map[string]any{"stock": 0, "waitlist": true})
	upcoming := a.Create(t, map[string]any{"begin_at": "2030-01-01T00:00:00Z", "end_at": "2030-01-02T00:00:00Z"})
	account := map[string]any{"username": a.name("documented"), "password": "long enough"}
	var order model.Order
	sold, rebuilt := http.StatusCreated, http.StatusConflict
	elsewhere := []string{
		// Answers about an order that is paid, which nobody does here.
		"POST /api/v1/orders/{id}/pay 202 application/json",
		"POST /api/v1/orders/{id}/pay 200 application/json",               // TestFreeVouchers
		"POST /api/v1/admin/orders/{id}/paid 200 application/json",        // TestPaidElsewhere
		"POST /api/v1/admin/orders/{id}/refund/done 200 application/json", // TestPaidElsewhere
		"POST /api/v1/admin/orders/{id}/refund 202 application/json",
		"POST /api/v1/orders/{id}/withdraw 202 application/json",
		"POST /api/v1/orders/{id}/withdraw 200 application/json",
		"POST /api/v1/admin/redemptions 200 application/json",
		"POST /api/v1/admin/orders/{id}/unredeem 200 application/json",
		"POST /api/v1/admin/vouchers/{id}/beacon 200 application/json", // TestDrawnWithABeacon
		"PUT /api/v1/admin/users/{id}/groups 200 application/json",     // TestWhoMayBuy
		"POST /api/v1/admin/events/replay 202 application/json",        // TestEventsOverHTTPS
		"GET /api/v1/vouchers/{id}/report 200 application/json",        // TestPublicReport
		"GET /api/v1/vouchers/{id}/replay 200 application/json",        // likewise
		// TestDrawnAtTheEnd
		"GET /api/v1/vouchers/{id}/draw 200 application/json",
		"GET /api/v1/vouchers/{id}/draw/entries 200 application/json",
		"GET /api/v1/vouchers/{id}/entry 200 application/json",
	}
	if in.mode == model.ModeAsync {
		sold, rebuilt = http.StatusAccepted, http.StatusAccepted
		elsewhere = append(elsewhere, "POST /api/v1/vouchers/{id}/seckill 201 application/json")
	} else {
		elsewhere = append(elsewhere, "POST /api/v1/vouchers/{id}/seckill 202 application/json",
			"POST /api/v1/admin/vouchers/{id}/rebuild 202 application/json")
	}

	for _, call := range []struct {
		method, template, id, query, token string
		body                               any
		status                             int
	}{
		{"GET", "/problems/{code}", "sold-out", "", "", nil, 200},
		{"GET", "/problems/{code}", "none", "", "", nil, 404},
		{"POST", "/api/v1/auth/register", "", "", "", account, 201},
		{"POST", "/api/v1/auth/register", "", "", "", account, 409},
		{"POST", "/api/v1/auth/register", "", "", "", map[string]any{}, 422},
		{"POST", "/api/v1/auth/register", "", "", "", "{", 400},
		{"POST", "/api/v1/auth/login", "", "", "", account, 200},
		{"POST", "/api/v1/auth/login", "", "", "", map[string]any{"username": "nobody", "password": "x"}, 401},
		{
			"POST", "/api/v1/auth/password", "", "", buyer,
			map[string]any{"current": "long enough", "new": "long enough"},
			404,
		},
		{"POST", "/api/v1/auth/password", "", "", buyer, map[string]any{"current": "long enough", "new": "short"}, 422},
		{"GET", "/api/v1/auth/me", "", "", "", nil, 401},
		{"GET", "/api/v1/vouchers", "", "?limit=0", "", nil, 422},
		{"GET", "/api/v1/vouchers/{id}", "none", "", "", nil, 404},
		{"POST", "/api/v1/vouchers/{id}/seckill", voucher.ID, "", buyer, nil, sold},
		{"POST", "/api/v1/vouchers/{id}/seckill", voucher.ID, "", buyer, nil, 409},
		{"POST", "/api/v1/vouchers/{id}/seckill", upcoming.ID, "", buyer, nil, 409},
		{"POST", "/api/v1/vouchers/{id}/seckill", voucher.ID, "", buyer, strings.Repeat(" ", 17<<10), 413},
		{"POST", "/api/v1/vouchers/{id}/waitlist", empty.ID, "", buyer, nil, 201},
		{"POST", "/api/v1/vouchers/{id}/waitlist", empty.ID, "", buyer, nil, 200},
		{"POST", "/api/v1/vouchers/{id}/waitlist", voucher.ID, "", buyer, nil, 409},
		{"GET", "/api/v1/vouchers/{id}/waitlist", empty.ID, "", buyer, nil, 200},
		{"DELETE", "/api/v1/vouchers/{id}/waitlist", voucher.ID, "", buyer, nil, 409},
		{"DELETE", "/api/v1/vouchers/{id}/waitlist", "none", "", buyer, nil, 404},
		{"GET", "/api/v1/orders/{id}", "ORDER", "?wait=1s", buyer, nil, 200},
		{"GET", "/api/v1/orders/{id}", "ORDER", "?wait=soon", buyer, nil, 422},
		{"POST", "/api/v1/admin/vouchers", "", "", admin, map[string]any{
			"title": "Tea", "price": 1, "face_value": 2, "stock": 3, "begin_at": "2030-01-01T00:00:00Z", "end_at": "2030-01-02T00:00:00Z",
		}, 201},
		{"POST", "/api/v1/admin/vouchers", "", "", buyer, map[string]any{}, 403},
		{"PATCH", "/api/v1/admin/vouchers/{id}", voucher.ID, "", admin, map[string]any{"title": "Cake"}, 200},
		{"POST", "/api/v1/admin/vouchers/{id}/stock", voucher.ID, "", admin, map[string]any{"delta": 1}, 200},
		{"POST", "/api/v1/admin/vouchers/{id}/stock", voucher.ID, "", admin, map[string]any{"stock": 0}, 409},
		{"GET", "/api/v1/admin/vouchers/{id}/orders", voucher.ID, "?format=csv", admin, nil, 200},
		{"GET", "/api/v1/admin/vouchers/{id}/orders", voucher.ID, "?format=xlsx", admin, nil, 200},
		{"GET", "/api/v1/admin/orders", "", "?q=" + a.user(1) + "&status=unpaid&limit=1", admin, nil, 200},
		{"GET", "/api/v1/admin/orders", "", "?format=csv", admin, nil, 200},
		{"GET", "/api/v1/admin/orders", "", "?format=xlsx", admin, nil, 200},
		{"GET", "/api/v1/admin/orders", "", "?cursor=x", admin, nil, 422},
		{"GET", "/api/v1/admin/orders/{id}", "none", "", admin, nil, 404},
		{"POST", "/api/v1/orders/{id}/cancel", "ORDER", "", buyer, nil, 200},
		{"POST", "/api/v1/orders/{id}/cancel", "none.none", "", buyer, nil, 404},
		{"POST", "/api/v1/orders/{id}/withdraw", "ORDER", "", buyer, nil, 409},
		{"POST", "/api/v1/orders/{id}/pay", "none.none", "", buyer, map[string]any{"amount": 1}, 422},
		{"POST", "/api/v1/webhooks/payments", "", "", "", map[string]any{}, 401},
		{"POST", "/api/v1/admin/vouchers/{id}/rebuild", voucher.ID, "", admin, nil, rebuilt},
		{"GET", "/api/v1/admin/log", "", "?cursor=x", admin, nil, 422},
		{"GET", "/api/v1/admin/refunds", "", "", buyer, nil, 403},
		{"POST", "/api/v1/admin/orders/{id}/refund", "ORDER", "", admin, nil, 409},
		{"POST", "/api/v1/admin/redemptions", "", "", admin, map[string]any{}, 422},
		{"POST", "/api/v1/admin/orders/{id}/unredeem", "ORDER", "", admin, map[string]any{"reason": "x"}, 409},
		{"PATCH", "/api/v1/admin/settings/limits", "", "", admin, map[string]any{"addr": "1000000/s"}, 200},
		{"PATCH", "/api/v1/admin/settings/limits", "", "", admin, map[string]any{"addr": "many"}, 422},
	} {
		id := call.id
		if id == "ORDER" {
			id = order.ID
		}
		got := remote.Insist(t, call.template, func(int) (api.Answer, error) {
			return api.Send(t.Context(), a.Client, call.method, a.URL+concrete(call.template, id)+call.query,
				call.token, call.body)
		})
		check.That(t, got.Status == call.status,
			"%s %s%s: %d %s, want %d", call.method, call.template, call.query, got.Status, got.Body, call.status)
		doc.check(t, call.method, call.template, got)
		if got.Sells() && strings.HasSuffix(call.template, "/seckill") {
			order = remote.Decode[model.Order](t, got)
			a.becomes(t, order, model.OrderUnpaid)
		}
	}
	a.asksEverything(t, doc, voucher.ID, order.ID)
	for _, r := range doc.routes(func(route) bool { return true }) {
		for status, response := range r.operation.Responses {
			if status >= "400" {
				continue
			}
			for contentType := range response.Content {
				given := r.method + " " + r.path + " " + status + " " + contentType
				check.That(t, doc.seen[given] || slices.Contains(elsewhere, given),
					"%s %s never answered %s as %s", r.method, r.path, status, contentType)
			}
		}
	}
}
