package handler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/ratelimit"
	"seckill/internal/testserver"
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

// TestStubbornAddressIsAnsweredLater: after a thousand refusals, and others are not.
func TestStubbornAddressIsAnsweredLater(t *testing.T) {
	t.Parallel()
	s := setup(t, byUser(t, 1, time.Minute), func(o *handler.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	s.fakes.place = sold
	user := s.as(t, "u", model.RoleUser)
	press := func(address string) (answer, time.Duration) {
		began := time.Now()
		return s.do(t, http.MethodPost, seckill, "", append(user, "X-Forwarded-For", address)...), time.Since(began)
	}
	press("198.51.100.1") // the user has had the one purchase of the minute
	attempt := 0
	testserver.Undisturbed(t, 700*time.Millisecond, func() error {
		attempt++
		stubborn := "192.0.2." + strconv.Itoa(attempt)
		refusals := 0
		for ; refusals < 3000; refusals++ {
			got, took := press(stubborn)
			wantProblem(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
			if took < time.Second {
				continue
			}
			if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || seconds > 59 {
				return fmt.Errorf("the second that it was held back counts twice: Retry-After %s", got.header.Get("Retry-After"))
			}
			break
		}
		if refusals < 1000 || refusals == 3000 {
			return fmt.Errorf("%d refusals were answered at once", refusals)
		}
		late := make(chan struct{})
		go func() {
			defer close(late)
			for took := time.Duration(0); took < time.Second; _, took = press(stubborn) {
			}
		}()
		for range 3 {
			press("198.51.100.1")
		}
		select {
		case <-late:
			return errors.New("another address was answered as late")
		default:
		}
		<-late
		return nil
	})
}

// TestEveryRouteIsLimited: known or not, with or without a token; but for health checks,
// which have a limit of their own.
func TestEveryRouteIsLimited(t *testing.T) {
	t.Parallel()
	for _, call := range []struct{ method, path string }{
		{"GET", "/api/v1/vouchers"},
		{"POST", "/api/v1/auth/login"},
		{"GET", "/api/v1/orders"},
		{"GET", "/api/v1/openapi.json"},
		{"GET", "/api/v1/docs"},
		{"GET", "/nowhere"},
		{"DELETE", "/api/v1/vouchers"},
		{"PATCH", "/api/v1/admin/settings/limits"},
	} {
		t.Run(call.method+" "+call.path, func(t *testing.T) {
			t.Parallel()
			s := setup(t, byAddress(t, 2, time.Hour))
			for range 2 {
				if got := s.do(t, call.method, call.path, ""); got.status == http.StatusTooManyRequests {
					t.Errorf("%d %s", got.status, got.body)
				}
			}
			got := s.do(t, call.method, call.path, "")
			wantProblem(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
			if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || seconds < 1790 || seconds > 1804 {
				t.Errorf("Retry-After = %q with 2 an hour", got.header.Get("Retry-After"))
			}
			if policy, left := got.header.Get("RateLimit-Policy"), got.header.Get("RateLimit"); policy != `"addr";q=2;w=3600` ||
				left != `"addr";r=0;t=`+got.header.Get("Retry-After") {
				t.Errorf("RateLimit-Policy: %s, RateLimit: %s", policy, left)
			}
			for _, path := range []string{"/livez", "/readyz"} {
				if got := s.do(t, http.MethodGet, path, ""); got.status != http.StatusOK {
					t.Errorf("%s of a limited address: %d", path, got.status)
				}
			}
		})
	}
}

// TestTooLowALimitCanBeMended: the address of an administrator who set it is over it, too.
func TestTooLowALimitCanBeMended(t *testing.T) {
	t.Parallel()
	s := setup(t, byAddress(t, 1, time.Hour))
	const path = "/api/v1/admin/settings/limits"
	for range 3 {
		got := s.do(t, http.MethodPatch, path, `{"addr":"1000/s"}`, s.as(t, "a", model.RoleAdmin)...)
		if got.status != http.StatusOK {
			t.Errorf("an administrator: %d %s", got.status, got.body)
		}
	}
	got := s.do(t, http.MethodPatch, path, `{}`, s.as(t, "u", model.RoleUser)...)
	wantProblem(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
}

// TestHealthChecksAreBounded: a flood of them does not ask the dependencies each time.
func TestHealthChecksAreBounded(t *testing.T) {
	t.Parallel()
	s := setup(t, byAddress(t, 1_000_000, time.Second))
	refused := 0
	for range 3000 {
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
}

// TestLimitedAddressInTheContractsOrder: on a purchase the refusal keeps its place, and
// every attempt counts.
func TestLimitedAddressInTheContractsOrder(t *testing.T) {
	t.Parallel()
	s := setup(t, byAddress(t, 1, time.Hour))
	s.fakes.place = sold
	user := s.as(t, "u", model.RoleUser)
	if got := s.do(t, http.MethodPost, seckill, ""); got.status != http.StatusUnauthorized {
		t.Errorf("%d %s", got.status, got.body)
	}
	wantProblem(t, s.do(t, http.MethodPost, seckill, ""), http.StatusUnauthorized, model.CodeUnauthenticated)
	got := s.do(t, http.MethodPost, seckill, strings.Repeat("x", 17<<10), user...)
	wantProblem(t, got, http.StatusRequestEntityTooLarge, model.CodePayloadTooLarge)
	got = s.do(t, http.MethodPost, seckill, "x", append([]string{"Content-Type", "text/plain"}, user...)...)
	wantProblem(t, got, http.StatusUnsupportedMediaType, model.CodeUnsupportedMediaType)
	wantProblem(t, s.do(t, http.MethodPost, seckill, `{"n":1}`, user...), http.StatusUnprocessableEntity, model.CodeValidation)
	wantProblem(t, s.do(t, http.MethodPost, seckill, "", user...), http.StatusTooManyRequests, model.CodeRateLimited)
}

// TestForwardedAddressesAreLimited: what a client writes beside a trusted proxy's header
// gives it no other address.
func TestForwardedAddressesAreLimited(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]func(i int) []string{
		"X-Real-IP": func(i int) []string { return []string{"X-Real-IP", "192.0.2." + strconv.Itoa(i)} },
		"a port":    func(i int) []string { return []string{"X-Forwarded-For", "198.51.100.7:" + strconv.Itoa(50000+i)} },
		"invented, then true": func(i int) []string {
			return []string{"X-Forwarded-For", "192.0.2." + strconv.Itoa(i) + ", 198.51.100.7"}
		},
		"Forwarded": func(i int) []string {
			return []string{"Forwarded", `for=192.0.2.` + strconv.Itoa(i) + `, for="198.51.100.7:` + strconv.Itoa(i+1) + `"`}
		},
		"both, one of a client's": func(i int) []string {
			return []string{"X-Forwarded-For", "198.51.100.7", "Forwarded", "for=192.0.2." + strconv.Itoa(i)}
		},
		"IPv6 of one /64": func(i int) []string { return []string{"X-Forwarded-For", "2001:db8::" + strconv.Itoa(i)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t, byAddress(t, 2, time.Hour), func(o *handler.Options) {
				o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
			})
			for i := range 5 {
				got := s.do(t, http.MethodGet, "/api/v1/vouchers", "", headers(i)...)
				if refused := got.status == http.StatusTooManyRequests; refused != (i >= 2) {
					t.Errorf("request %d: %d", i, got.status)
				}
			}
			if got := s.do(t, http.MethodGet, "/api/v1/vouchers", "", "X-Forwarded-For", "203.0.113.5"); got.status != http.StatusOK {
				t.Errorf("another client: %d", got.status)
			}
		})
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
