package handler_test

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
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

func byUser(t *testing.T, events int, per time.Duration) func(*handler.Options) {
	t.Helper()
	return func(o *handler.Options) {
		o.ByUser = ratelimit.New("user", 0, nil)
		o.ByUser.Set(model.Rate{Events: events, Per: per}, "")
	}
}

func byAddress(t *testing.T, events int, per time.Duration) func(*handler.Options) {
	t.Helper()
	return func(o *handler.Options) {
		o.ByAddress = ratelimit.NewAddresses(nil)
		o.ByAddress.Set(model.Rate{Events: events, Per: per}, "")
	}
}

func behindProxies(o *handler.Options) {
	o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// TestStubbornAddressIsAnsweredLater: after a thousand refusals, and others are not.
func TestStubbornAddressIsAnsweredLater(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		user := s.as(t, "u", model.RoleUser)
		press := func(address string, want time.Duration) answer {
			began := time.Now()
			got := s.do(t, http.MethodPost, seckill, "", append(user, "X-Forwarded-For", address)...)
			check.Equal(t, address+" is held back for", time.Since(began), want)
			return got
		}
		press("198.51.100.1", 0) // the user has had the one purchase of the minute
		for range 1000 {
			press("192.0.2.1", 0).is(t, http.StatusTooManyRequests)
		}
		late := press("192.0.2.1", time.Second)
		wantProblem(t, late, http.StatusTooManyRequests, model.CodeRateLimited)
		seconds, err := strconv.Atoi(late.header.Get("Retry-After"))
		check.That(t, err == nil && seconds <= 59, "the second that it was held back counts twice: Retry-After %d",
			seconds)
		press("198.51.100.1", 0)
	}, byUser(t, 1, time.Minute), behindProxies)
}

// Known or not, with or without a token; but for health checks, which have a limit of their own.
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
				got := s.do(t, call.method, call.path, "", from...)
				check.That(t, got.status != http.StatusTooManyRequests, "%s: %s", got.asked, got.body)
			}
			got := s.do(t, call.method, call.path, "", from...)
			wantProblem(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
			after := got.header.Get("Retry-After")
			seconds, err := strconv.Atoi(after)
			check.That(t, err == nil && seconds >= 1800 && seconds <= 1804, "Retry-After = %q with 2 an hour", after)
			check.Equal(t, "the policy", got.header.Get("RateLimit-Policy"), `"addr";q=2;w=3600`)
			check.Equal(t, "what is left", got.header.Get("RateLimit"), `"addr";r=0;t=`+after)
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
		check.That(t, refused > 0, "3000 health checks at once were all answered")
		record(t, s.handler, http.MethodGet, "/api/v1/vouchers").is(t, http.StatusOK)
	}, byAddress(t, 1_000_000, time.Second))
}

// TestForwardedAddressesAreLimited: what a client writes beside a trusted proxy's header gives it no other address.
func TestForwardedAddressesAreLimited(t *testing.T) {
	t.Parallel()
	// Alone believes no proxy.
	s, alone := setup(t, byAddress(t, 2, time.Hour), behindProxies), setup(t, byAddress(t, 2, time.Hour))
	for n, headers := range [][]string{ // with another # each time
		{"X-Real-IP", "192.0.2.#", "X-Forwarded-For", "198.51.100.6"},
		{"X-Forwarded-For", "198.51.100.7:5000#"},
		{"X-Forwarded-For", "192.0.2.#, 198.51.100.8"},
		{"Forwarded", `for=192.0.2.#, for="198.51.100.9:1#"`},
		{"X-Forwarded-For", "198.51.100.10", "Forwarded", "for=192.0.2.#"},
		{"X-Forwarded-For", "2001:db8::#"}, // of one /64
		{"X-Forwarded-For", "192.0.2.#"},
	} {
		from := s
		if n == 6 {
			from = alone
		}
		for i, status := range []int{200, 200, 429, 429, 429} {
			numbered := slices.Clone(headers)
			for at := range numbered {
				numbered[at] = strings.ReplaceAll(numbered[at], "#", strconv.Itoa(i))
			}
			from.do(t, http.MethodGet, "/api/v1/vouchers", "", numbered...).is(t, status)
		}
		s.do(t, http.MethodGet, "/api/v1/vouchers", "", "X-Forwarded-For", "203.0.113."+strconv.Itoa(n)).is(t,
			http.StatusOK)
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
		after := s.do(t, http.MethodPost, seckill, "", s.as(t, "u", model.RoleUser)...).header.Get("Retry-After")
		check.That(t, len(after) == 1 && "1" <= after && after <= "5", "Retry-After = %q", after)
		seen[after] = true
	}
	check.That(t, len(seen) >= 3, "40 refusals name only %v", seen)
}

func TestLimitsOfTheInstances(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const path = "/api/v1/admin/settings/limits"
	admin := s.as(t, "a", model.RoleAdmin)
	for _, step := range []struct{ method, body, user, addr string }{
		{http.MethodGet, "", "20/s", "1000/s"}, {http.MethodPatch, `{"user":"5/m"}`, "5/m", "1000/s"}, {http.MethodPatch, `{"addr":"0"}`, "5/m", "0"},
	} {
		got := s.do(t, step.method, path, step.body, admin...)
		got.is(t, http.StatusOK)
		check.Equal(t, step.body, got.body, `{"user":"`+step.user+`","addr":"`+step.addr+`"}`+"\n")
	}
	for body, wrong := range map[string]int{
		`{"user":"many"}`: 1, `{"user":"20"}`: 1, `{"user":"-1/s"}`: 1, `{"user":"20/d"}`: 1, `{"user":""}`: 1, `{"user":20}`: 1, `{"addr":null}`: 1,
		`{"address":"1/s"}`: 1, `{"user":"x","addr":"y"}`: 2,
	} {
		p := wantProblem(t, s.do(t, http.MethodPatch, path, body, admin...), http.StatusUnprocessableEntity,
			model.CodeValidation)
		check.That(t, len(p.Errors) == wrong && strings.HasPrefix(p.Errors[0].Location, "body."), "%s: %+v", body,
			p.Errors)
	}
	now := s.fakes.limits
	check.That(t, now.User.String() == "5/m" && now.Addr.String() == "0", "refused changes made them %v", now)
}

// Users' writes count for one limit; only purchases and administrators have more than the buyers' share of connections.
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
	// This is the one call of the hour.
	limited.do(t, http.MethodDelete, "/api/v1/vouchers/v1/waitlist", "", user...).is(t, http.StatusNotFound)
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
			check.Equal(t, method+" "+path+" is refused",
				limited.do(t, method, path, "", user...).status == http.StatusTooManyRequests, ofUser)
		}
	}
}
