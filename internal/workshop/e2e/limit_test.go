//part:races

package e2e_test

import (
	"net/http"
	"strconv"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

const limitsPath = "/admin/settings/limits"

// passing counts how many of n requests of one user are not over the limit, by turns of
// the instances.
func passing(t *testing.T, user string, n int, instances ...*app) (passed int) {
	t.Helper()
	for i := range n {
		a := instances[i%len(instances)]
		got := a.Call(t, http.MethodPost, "/vouchers/none/seckill", a.Token(t, user, model.RoleUser), nil)
		switch got.Status {
		case http.StatusNotFound:
			passed++
		default:
			refused(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
		}
	}
	return passed
}

// shares checks how many requests the instances let pass together. After a question that had no answer
// in time, which a busy machine may do to any, an instance counts alone; what it had asked for may count all the same.
func shares(t *testing.T, passed, limit int, instances ...*app) {
	t.Helper()
	least, most := limit, limit
	for _, a := range instances {
		if a.metric(t, "seckill_shared_limit_failures_total") > 0 {
			least, most = 1, limit*len(instances)
		}
	}
	check.That(t, least <= passed && passed <= most, "%d requests passed, want %d to %d", passed, least, most)
}

// TestInstancesShareLimits: a user has the limit once, however many instances serve, and
// so has an address.
func TestInstancesShareLimits(t *testing.T) {
	t.Parallel()
	s := onServers(t).with(settings{"SECKILL_RATE_USER": "7/h"})
	a, b := start(t, s), start(t, s)
	for n := range 3 {
		shares(t, passing(t, a.user(n), 20, a, b), 7, a, b)
	}
	byAddress := s.with(settings{"SECKILL_RATE_USER": "0", "SECKILL_RATE_ADDR": "6/h"})
	c, d := start(t, byAddress), start(t, byAddress)
	passed := 0
	for n := range 20 { // whoever it says that it asks for
		got := []*app{c, d}[n%2].Call(t, http.MethodPost, "/vouchers/none/seckill", c.Token(t, c.user(n), model.RoleUser), nil,
			"X-Forwarded-For: 198.51.100."+strconv.Itoa(n))
		if got.Status == http.StatusNotFound {
			passed++
			continue
		}
		refused(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
	}
	shares(t, passed, 6, c, d)
	check.Equal(t, "what a limited address hears of the health", c.Status("/readyz"), http.StatusOK)
}

// TestChangedLimits: all instances obey, also those that start later.
func TestChangedLimits(t *testing.T) {
	t.Parallel()
	s := onServers(t).with(settings{"SECKILL_RATE_USER": "20/s"})
	first, last := start(t, s), start(t, s)
	type limits struct{ User, Addr string }
	inForce := func(a *app) limits {
		return remote.Decode[limits](t, a.Call(t, http.MethodGet, limitsPath, a.Admin(t), nil))
	}
	check.Equal(t, "the settings", inForce(last), limits{"20/s", "0"})
	change := func(want limits) {
		got := first.Insist(t, http.MethodPatch, limitsPath, first.Admin(t), map[string]any{"user": want.User})
		check.Equal(t, "changed to", remote.Decode[limits](t, got), want)
		check.Eventually(t, want.User+" is obeyed", func() bool { return inForce(last) == want })
	}
	change(limits{"3/h", "0"})
	shares(t, passing(t, first.user(1), 12, first, last), 3, first, last)
	change(limits{"0", "0"})
	check.Equal(t, "requests that pass without a limit", passing(t, first.user(1), 30, first, last), 30)
	for _, body := range []any{map[string]any{"user": "3"}, map[string]any{"addr": "-1/s"}, map[string]any{"addr": 5}, map[string]any{"users": "1/s"}} {
		refused(t, first.Call(t, http.MethodPatch, limitsPath, first.Admin(t), body), http.StatusUnprocessableEntity, model.CodeValidation)
	}
	refused(t, first.Call(t, http.MethodPatch, limitsPath, first.Token(t, "u", model.RoleUser), map[string]any{"user": "0"}),
		http.StatusForbidden, model.CodeForbidden)
	// What an administrator has set wins over the settings.
	check.Equal(t, "the limits of an instance that started later", inForce(start(t, s.with(settings{"SECKILL_RATE_USER": "50/s"}))), limits{"0", "0"})

	embedded := start(t, embeddedSettings(t))
	object(t, embedded.Insist(t, http.MethodPatch, limitsPath, embedded.Admin(t), `{"user":"3/h"}`), http.StatusOK)
	check.Equal(t, "requests that pass with 3 an hour, embedded", passing(t, embedded.user(1), 12, embedded), 3)
}
