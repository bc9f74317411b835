package handler_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"seckill/model"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var once model.Idempotency
	s.fakes.create = func(_ context.Context, _ model.NewVoucher, o model.Idempotency) (model.Voucher, error) {
		once = o
		return voucher("v1"), nil
	}
	s.fakes.changeStock = func(_ context.Context, id string, _ model.StockChange, o model.Idempotency) (model.Voucher, error) {
		once = o
		return voucher(id), nil
	}
	ask := func(user, path, body, key string) model.Idempotency {
		once = model.Idempotency{}
		got := s.do(t, http.MethodPost, path, body, append(s.as(t, user, model.RoleAdmin), "Idempotency-Key", key)...)
		if got.status/100 != 2 {
			t.Errorf("%q: %d %s", key, got.status, got.body)
		}
		return once
	}
	first := ask("a", vouchersPath, draftWith("state", `"published"`), "key one")
	if first.Key != "key one" || first.Scope != "a POST "+vouchersPath || len(first.Fingerprint) != 64 {
		t.Errorf("%+v", first)
	}
	for _, same := range []string{draftWith("", ""), " " + draftWith("price", "1e3"), draftWith("begin_at", `"2030-01-01T01:00:00+01:00"`)} {
		if again := ask("a", vouchersPath, same, "key one"); again != first {
			t.Errorf("%s: %+v, want %+v", same, again, first)
		}
	}
	if other := ask("a", vouchersPath, draftWith("price", "999"), "key one"); other.Fingerprint == first.Fingerprint {
		t.Error("another body has the same fingerprint")
	}
	if other := ask("b", vouchersPath, draftWith("", ""), "key one"); other.Scope == first.Scope {
		t.Error("another administrator has the same scope")
	}
	one, two := ask("a", vouchersPath+"/v1/stock", `{"delta":1}`, "k"), ask("a", vouchersPath+"/v2/stock", `{"delta":1}`, "k")
	if one.Scope != two.Scope || one.Fingerprint == two.Fingerprint || one.Scope == first.Scope {
		t.Errorf("%+v %+v", one, two)
	}
	ask("a", vouchersPath, draftWith("", ""), strings.Repeat("k", 255))
	for _, key := range []string{strings.Repeat("k", 256), "schlüssel", "tab\there"} {
		got := s.do(t, http.MethodPost, vouchersPath, draftWith("", ""), append(s.as(t, "a", model.RoleAdmin), "Idempotency-Key", key)...)
		if p := wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation); !locates(p, "header.Idempotency-Key") {
			t.Errorf("%v", p.Errors)
		}
	}
	for _, values := range [][]string{{""}, {"a", "b"}} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+vouchersPath, strings.NewReader(draftWith("", "")))
		if err != nil {
			t.Fatal(err)
		}
		request.Header["Idempotency-Key"] = values
		request.Header.Set("Authorization", "Bearer "+s.token(t, "a", model.RoleAdmin))
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%q: %d", values, response.StatusCode)
		}
	}
}
