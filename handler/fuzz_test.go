package handler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/big"
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// FuzzBodies: a body is refused with a fitting problem document, or reaches the services as it is, within the model.
func FuzzBodies(f *testing.F) {
	routes := []struct{ method, path string }{
		{http.MethodPost, "/api/v1/auth/register"},
		{http.MethodPost, "/api/v1/auth/login"},
		{http.MethodPost, "/api/v1/auth/password"},
		{http.MethodPost, "/api/v1/admin/vouchers"},
		{http.MethodPatch, "/api/v1/admin/vouchers/v1"},
		{http.MethodPost, "/api/v1/admin/vouchers/v1/stock"},
		{http.MethodPost, "/api/v1/admin/vouchers/v1/rebuild"},
		{http.MethodPost, "/api/v1/vouchers/v1/seckill"},
		{http.MethodPost, "/api/v1/orders/o1.v1/cancel"},
	}
	for i := range routes {
		for _, body := range bodies() {
			f.Add(uint8(i), "application/json", "", []byte(body))
		}
		for _, contentType := range []string{"", "text/plain", "application/json; charset=gbk", "application/json;charset", "/;;", "\x00"} {
			f.Add(uint8(i), contentType, "", []byte("{}"))
		}
		for _, key := range []string{"first", " ", "\t", "é", strings.Repeat("k", 256)} {
			f.Add(uint8(i), "application/json", key, []byte(bodies()[0]))
		}
	}
	s := setup(f)
	headers := s.as(f, "a", model.RoleAdmin)
	var heard call
	heard.listen(s.fakes)
	f.Fuzz(func(t *testing.T, which uint8, contentType, key string, body []byte) {
		heard.reset()
		r := routes[int(which)%len(routes)]
		request := httptest.NewRequestWithContext(t.Context(), r.method, r.path, bytes.NewReader(body))
		request.Header.Set(headers[0], headers[1])
		request.Header["Content-Type"] = []string{contentType}
		if key != "" {
			request.Header["Idempotency-Key"] = []string{key}
		}
		got := serve(s, request)
		kind, params, err := mime.ParseMediaType(contentType)
		isJSON := contentType == "" || err == nil && kind == "application/json" &&
			(params["charset"] == "" || strings.EqualFold(params["charset"], "utf-8"))
		switch {
		case len(body) > 16<<10:
			wantProblem(t, got, http.StatusRequestEntityTooLarge, model.CodePayloadTooLarge)
		case len(body) > 0 && !isJSON:
			wantProblem(t, got, http.StatusUnsupportedMediaType, model.CodeUnsupportedMediaType)
		case len(body) > 0 && !json.Valid(body):
			wantProblem(t, got, http.StatusBadRequest, model.CodeValidation)
		case got.status >= http.StatusBadRequest:
			wantRefusal(t, got)
		default:
			wantJSON(t, got)
			heard.wantSaid(t, key, body)
		}
	})
}

// bodies are seeds: the first is a whole voucher, and the others are wrong in all the ways that were thought of.
func bodies() []string {
	const whole = `{"title":"Coffee","description":"","price":1000,"face_value":2500.0,"stock":1e2,` +
		`"begin_at":"2026-01-01T00:00:00Z","end_at":"2036-01-01T00:00:00.123456789+08:00","state":"draft"}`
	list := []string{
		whole, whole + "x", whole + whole, " \t\r\n" + whole + "\n", "\ufeff" + whole, strings.ToUpper(whole),
		`{"username":"somebody","password":"long enough"}`, `{"username":"somebody","password":"short"}`, `{"username":"","password":""}`,
		`{"delta":5}`, `{"delta":-1,"stock":1}`, `{"stock":0}`, `{"stock":-1}`, `{"delta":1.5}`, `{"title":"Tea"}`, `{"end_at":null}`,
		"", "{}", "[]", "null", "0", `""`, "{", `{"":{}}`, `{"a":1,"a":2}`, "[[[[]]]]", strings.Repeat("[", 16<<10), strings.Repeat(" ", 16<<10+1),
	}
	for old, others := range map[string][]string{
		"Coffee":     {`\ud83d\ude00`, `\ud800`, "\xff", `\u0000`, strings.Repeat("é", 201)},
		`"Coffee"`:   {"null"},
		"1000":       {"1000000000001", "-0", "1e400", "1000.00000000000001", "1e-400", "9007199254740993", "0.5", `"1000"`},
		`"price"`:    {`"title"`, `"Price"`, `"more"`},
		"2026-01-01": {"0999-12-31", "2036-01-02"},
		"00:00:00Z":  {"24:00:00Z", "0:00:00Z"},
	} {
		for _, other := range others {
			list = append(list, strings.Replace(whole, old, other, 1))
		}
	}
	return list
}

type call struct {
	draft  *model.VoucherFields
	patch  *model.VoucherPatch
	change *model.StockChange
	key    string
}

func (c *call) reset() { *c = call{} }

func (c *call) listen(fakes *fakes) {
	fakes.create = func(_ context.Context, v model.VoucherFields, _ string, once model.Idempotency) (model.Voucher, error) {
		c.draft, c.key = &v, once.Key
		return voucher("v1"), nil
	}
	fakes.patch = func(_ context.Context, id string, patch model.VoucherPatch) (model.Voucher, error) {
		c.patch = &patch
		return voucher(id), nil
	}
	fakes.changeStock = func(_ context.Context, id string, change model.StockChange, once model.Idempotency) (model.Voucher, error) {
		c.change, c.key = &change, once.Key
		return voucher(id), nil
	}
}

// wantSaid compares what reached the services with what encoding/json makes of the body.
func (c *call) wantSaid(t *testing.T, key string, body []byte) {
	t.Helper()
	var said struct {
		Title        *string
		Price        *json.Number
		Delta, Stock *json.Number
	}
	check.Need(t, utf8.Valid(body) && (len(bytes.TrimSpace(body)) == 0 || json.Unmarshal(body, &said) == nil),
		"%q was accepted", body)
	good := true
	switch {
	case c.draft != nil:
		good = c.draft.Check() == nil && said.Title != nil && *said.Title == c.draft.Title &&
			same(said.Price, &c.draft.Price) &&
			same(said.Stock, &c.draft.Stock) && storable(&c.draft.BeginAt) && storable(&c.draft.EndAt) && c.key == key
	case c.patch != nil:
		good = c.patch.Check() == nil && (said.Title == nil) == (c.patch.Title == nil) &&
			same(said.Price, c.patch.Price) &&
			storable(c.patch.BeginAt) && storable(c.patch.EndAt)
	case c.change != nil:
		good = c.change.Check() == nil && same(said.Delta, c.change.Delta) && same(said.Stock, c.change.Stock) &&
			c.key == key
	}
	check.Need(t, good, "%q with the key %q became %+v", body, key, c)
}

// same reports whether a number was taken for what it is, 1e3 for 1000.
func same(said *json.Number, taken *int64) bool {
	if said == nil || taken == nil {
		return said == nil && taken == nil
	}
	exact, ok := new(big.Rat).SetString(said.String()) // bounded: what is taken has a small exponent
	return ok && exact.IsInt() && exact.Num().IsInt64() && exact.Num().Int64() == *taken
}

func storable(at *time.Time) bool { return at == nil || model.StorableTime(*at) }

// serve answers without a listener, which would refuse the strangest headers itself.
func serve(s *server, request *http.Request) answer {
	recorder := httptest.NewRecorder()
	s.handler.ServeHTTP(recorder, request)
	return answer{recorder.Code, recorder.Header(), recorder.Body.String(), request.URL.String()}
}

func wantJSON(t *testing.T, got answer) {
	t.Helper()
	check.Need(t, got.header.Get("Content-Type") == "application/json" && json.Valid([]byte(got.body)),
		"%d %v %q", got.status, got.header, got.body)
}

func wantRefusal(t *testing.T, got answer) {
	t.Helper()
	if got.status == http.StatusUnauthorized {
		wantProblem(t, got, got.status, model.CodeUnauthenticated)
		return
	}
	check.Need(t, got.status == http.StatusBadRequest || got.status == http.StatusUnprocessableEntity, "%d %s",
		got.status, got.body)
	p := wantProblem(t, got, got.status, model.CodeValidation)
	check.That(t, len(p.Errors) > 0, "no field is named: %s", got.body)
}
