package handler_test

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"seckill/handler"
	"seckill/internal/ratelimit"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// byUser limits purchases of a user to so many in a time.
func byUser(t *testing.T, events int, per time.Duration) func(*handler.Options) {
	t.Helper()
	return func(o *handler.Options) {
		o.ByUser = ratelimit.New("user", 0, nil)
		check.Must(t, o.ByUser.Set(model.Rate{Events: events, Per: per}, ""))
	}
}

// byAddress limits all requests of an address to so many in a time.
func byAddress(t *testing.T, events int, per time.Duration) func(*handler.Options) {
	t.Helper()
	return func(o *handler.Options) {
		o.ByAddress = ratelimit.NewAddresses(nil)
		check.Must(t, o.ByAddress.Set(model.Rate{Events: events, Per: per}, ""))
	}
}

// behindProxies lets the tests be proxies, which say where a request is from.
func behindProxies(o *handler.Options) {
	o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// TestStubbornAddressIsAnsweredLater: after a thousand refusals, and others are not.
func TestStubbornAddressIsAnsweredLater(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.fakes.place = sold
		user := s.as(t, "u", model.RoleUser)
		press := func(address string) (answer, time.Duration) {
			began := time.Now()
			return s.do(t, http.MethodPost, seckill, "", append(user, "X-Forwarded-For", address)...), time.Since(began)
		}
		press("198.51.100.1") // the user has had the one purchase of the minute
		for n := range 1000 {
			if got, took := press("192.0.2.1"); got.status != http.StatusTooManyRequests || took > 0 {
				t.Fatalf("refusal %d is %d after %s", n, got.status, took)
			}
		}
		late, took := press("192.0.2.1")
		wantProblem(t, late, http.StatusTooManyRequests, model.CodeRateLimited)
		check.Equal(t, "a stubborn address is held back for", took, time.Second)
		if seconds, err := strconv.Atoi(late.header.Get("Retry-After")); err != nil || seconds > 59 {
			t.Errorf("the second that it was held back counts twice: Retry-After %s", late.header.Get("Retry-After"))
		}
		_, took = press("198.51.100.1")
		check.Equal(t, "another address is held back for", took, 0)
	}, byUser(t, 1, time.Minute), behindProxies)
}

// TestEveryRouteIsLimited: known or not, with or without a token; but for health checks,
// which have a limit of their own.
func TestEveryRouteIsLimited(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		for n, call := range []struct{ method, path string }{
			{"GET", "/api/v1/vouchers"},
			{"POST", "/api/v1/auth/login"},
			{"GET", "/api/v1/orders"},
			{"GET", "/api/v1/openapi.json"},
			{"GET", "/api/v1/docs"},
			{"GET", "/nowhere"},
			{"DELETE", "/api/v1/vouchers"},
			{"PATCH", "/api/v1/admin/settings/limits"},
		} {
			from := []string{"X-Forwarded-For", "198.51.100." + strconv.Itoa(n)}
			for range 2 {
				if got := s.do(t, call.method, call.path, "", from...); got.status == http.StatusTooManyRequests {
					t.Errorf("%s %s: %d %s", call.method, call.path, got.status, got.body)
				}
			}
			got := s.do(t, call.method, call.path, "", from...)
			wantProblem(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
			if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || seconds < 1800 || seconds > 1804 {
				t.Errorf("Retry-After = %q with 2 an hour", got.header.Get("Retry-After"))
			}
			if policy, left := got.header.Get("RateLimit-Policy"), got.header.Get("RateLimit"); policy != `"addr";q=2;w=3600` ||
				left != `"addr";r=0;t=`+got.header.Get("Retry-After") {
				t.Errorf("RateLimit-Policy: %s, RateLimit: %s", policy, left)
			}
			for _, path := range []string{"/livez", "/readyz"} {
				s.do(t, http.MethodGet, path, "", from...).is(t, http.StatusOK)
			}
		}
	}, byAddress(t, 2, time.Hour), behindProxies)
}

// TestTooLowALimitCanBeMended: the address of an administrator who set it is over it, too.
func TestTooLowALimitCanBeMended(t *testing.T) {
	t.Parallel()
	s := setup(t, byAddress(t, 1, time.Hour))
	const path = "/api/v1/admin/settings/limits"
	for range 3 {
		got := s.do(t, http.MethodPatch, path, `{"addr":"1000/s"}`, s.as(t, "a", model.RoleAdmin)...)
		got.is(t, http.StatusOK)
	}
	got := s.do(t, http.MethodPatch, path, `{}`, s.as(t, "u", model.RoleUser)...)
	wantProblem(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
}

// TestHealthChecksAreBounded: a flood of them does not ask the dependencies each time.
func TestHealthChecksAreBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		refused := 0
		for range 3000 { // in one instant
			if record(t, s.handler, http.MethodGet, "/readyz").status == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused == 0 {
			t.Error("3000 health checks at once were all answered")
		}
		if got := record(t, s.handler, http.MethodGet, "/api/v1/vouchers"); got.status != http.StatusOK {
			t.Errorf("another route is refused as well: %d", got.status)
		}
	}, byAddress(t, 1_000_000, time.Second))
}

// TestForwardedAddressesAreLimited: what a client writes beside a trusted proxy's header gives it no other address.
func TestForwardedAddressesAreLimited(t *testing.T) {
	t.Parallel()
	s := setup(t, byAddress(t, 2, time.Hour), behindProxies)
	others := 0
	for name, headers := range map[string]func(i string) []string{
		"X-Real-IP": func(i string) []string {
			return []string{"X-Real-IP", "192.0.2." + i, "X-Forwarded-For", "198.51.100.6"}
		},
		"a port":              func(i string) []string { return []string{"X-Forwarded-For", "198.51.100.7:5000" + i} },
		"invented, then true": func(i string) []string { return []string{"X-Forwarded-For", "192.0.2." + i + ", 198.51.100.8"} },
		"Forwarded": func(i string) []string {
			return []string{"Forwarded", `for=192.0.2.` + i + `, for="198.51.100.9:1` + i + `"`}
		},
		"both, one of a client's": func(i string) []string {
			return []string{"X-Forwarded-For", "198.51.100.10", "Forwarded", "for=192.0.2." + i}
		},
		"IPv6 of one /64": func(i string) []string { return []string{"X-Forwarded-For", "2001:db8::" + i} },
	} {
		for i := range 5 {
			got := s.do(t, http.MethodGet, "/api/v1/vouchers", "", headers(strconv.Itoa(i))...)
			if refused := got.status == http.StatusTooManyRequests; refused != (i >= 2) {
				t.Errorf("%s, request %d: %d", name, i, got.status)
			}
		}
		others++ // have a limit of their own
		s.do(t, http.MethodGet, "/api/v1/vouchers", "", "X-Forwarded-For", "203.0.113."+strconv.Itoa(others)).is(t, http.StatusOK)
	}
	alone := setup(t, byAddress(t, 2, time.Hour)) // nobody's proxy is believed
	for i, status := range []int{200, 200, 429} {
		alone.do(t, http.MethodGet, "/api/v1/vouchers", "", "X-Forwarded-For", "198.51.100."+strconv.Itoa(i)).is(t, status)
	}
}

// TestCrowdsComeBackSpread: what refuses everybody at once does not name one second for all.
func TestCrowdsComeBackSpread(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.place = func(context.Context, string, string) (model.Order, error) {
		return model.Order{}, model.Unavailable("The database is away.", nil)
	}
	seen := map[string]bool{}
	for range 40 {
		got := s.do(t, http.MethodPost, seckill, "", s.as(t, "u", model.RoleUser)...)
		seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
		if err != nil || seconds < 1 || seconds > 5 {
			t.Errorf("Retry-After = %q", got.header.Get("Retry-After"))
		}
		seen[got.header.Get("Retry-After")] = true
	}
	if len(seen) < 3 {
		t.Errorf("40 refusals name only %v", seen)
	}
}

// TestLimitsOfTheInstances: administrators read and change them.
func TestLimitsOfTheInstances(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const path = "/api/v1/admin/settings/limits"
	admin := s.as(t, "a", model.RoleAdmin)
	if got := s.do(t, http.MethodGet, path, "", admin...); got.status != http.StatusOK || got.body != `{"user":"20/s","addr":"1000/s"}`+"\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := s.do(t, http.MethodPatch, path, `{"user":"5/m"}`, admin...); got.status != http.StatusOK || got.body != `{"user":"5/m","addr":"1000/s"}`+"\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := s.do(t, http.MethodPatch, path, `{"addr":"0"}`, admin...); got.status != http.StatusOK || got.body != `{"user":"5/m","addr":"0"}`+"\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, body := range []string{`{"user":"many"}`, `{"user":"20"}`, `{"user":"-1/s"}`, `{"user":"20/d"}`, `{"user":""}`, `{"user":20}`, `{"addr":null}`, `{"address":"1/s"}`} {
		p := wantProblem(t, s.do(t, http.MethodPatch, path, body, admin...), http.StatusUnprocessableEntity, model.CodeValidation)
		if len(p.Errors) != 1 || !strings.HasPrefix(p.Errors[0].Location, "body.") {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	p := wantProblem(t, s.do(t, http.MethodPatch, path, `{"user":"x","addr":"y"}`, admin...), http.StatusUnprocessableEntity, model.CodeValidation)
	if len(p.Errors) != 2 {
		t.Errorf("%+v", p.Errors)
	}
	got := s.do(t, http.MethodPatch, path, `{"user":"0"}`, s.as(t, "u", model.RoleUser)...)
	wantProblem(t, got, http.StatusForbidden, model.CodeForbidden)
	if now := s.fakes.limits; now.User.String() != "5/m" || now.Addr.String() != "0" {
		t.Errorf("refused changes made them %v", now)
	}
}

// TestBuyersWritesAreBounded walks every route: what users write counts for their one limit, and only purchases and
// administrators have more than the buyers' share of the database's connections.
func TestBuyersWritesAreBounded(t *testing.T) {
	t.Parallel()
	type share struct{ marked, patient bool }
	var seen share
	free := setup(t, func(o *handler.Options) {
		o.Trace = func(c *gin.Context) {
			c.Next()
			seen.marked, seen.patient = model.ForBuyers(c.Request.Context())
		}
	})
	limited := setup(t, byUser(t, 1, time.Hour))
	user := limited.as(t, "u", model.RoleUser)
	limited.do(t, http.MethodDelete, "/api/v1/vouchers/v1/waitlist", "", user...).is(t, http.StatusNotFound) // the one of the hour
	doc, _ := readDocument(t, free)
	for path, operations := range doc.Paths {
		for method, o := range operations {
			method = strings.ToUpper(method)
			path := strings.ReplaceAll(path, "{id}", "o1.v1")
			writes := method != http.MethodGet && o.LeastLevel == ""
			ofUser := writes && len(o.Security[0]) > 0
			free.do(t, method, path, "", user...)
			want := share{marked: writes && o.OperationID != "seckill", patient: o.OperationID == "payment-webhook"}
			check.Equal(t, method+" "+path+" has the share", seen, want)
			check.Equal(t, method+" "+path+" is refused", limited.do(t, method, path, "", user...).status == http.StatusTooManyRequests, ofUser)
		}
	}
}
