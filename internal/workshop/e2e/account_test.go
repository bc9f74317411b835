//part:races

package e2e_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

func operate(t *testing.T, s settings, stdin string, args ...string) {
	t.Helper()
	check.Must(t, check.ErrorOf(typed(t, s, stdin, args...)))
}

// TestAnAdministratorIsOutWithinASecond ends the right in every way. (That it is a second, service/sale/cache tests.)
func TestAnAdministratorIsOutWithinASecond(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	instances := []*app{start(t, s), start(t, s)}
	operator := instances[0].Admin(t)
	create := func(username string) string {
		operate(t, s, rightPassword+"\n", "admin", "create", "--username", username)
		token, lasts := instances[0].elsewhere(t).session(t, username, rightPassword)
		check.That(t, lasts <= time.Hour, "an administrator's token lasts %s", lasts)
		for _, a := range instances {
			object(t, a.Call(t, http.MethodGet, "/admin/vouchers", token, nil), http.StatusOK)
		}
		return token
	}
	tokens := map[string]string{}
	for name, test := range map[string]struct {
		end  func(username string)
		code model.Code
		me   int // of GET /auth/me, in the end
	}{
		"disabled": {func(u string) { operate(t, s, "", "admin", "disable", "--username", u) }, model.CodeUnauthenticated, 401},
		"password": {func(u string) { operate(t, s, "another horse\n", "admin", "passwd", "--username", u) }, model.CodeUnauthenticated, 401},
		"demoted":  {func(u string) { execute(t, s, "UPDATE accounts SET role = 'user' WHERE username_key = '"+u+"'") }, model.CodeForbidden, 200},
		"deleted":  {func(u string) { execute(t, s, "DELETE FROM accounts WHERE username_key = '"+u+"'") }, model.CodeUnauthenticated, 200},
	} {
		tokens[name] = create(name)
		test.end(name)
		for _, a := range instances {
			asks := func(call string) api.Answer { return a.once(t, call, tokens[name], nil) }
			check.Eventually(t, name+": is out",
				func() bool { return asks("GET /admin/vouchers").Status != http.StatusOK })
			refused(t, asks("GET /admin/vouchers"), test.code)
			check.Eventually(t, name+": a user's routes", func() bool { return asks("GET /auth/me").Status == test.me })
			object(t, a.once(t, "GET /admin/vouchers", operator, nil), http.StatusOK)
		}
	}
	late := start(t, s) // knows it from the start
	refused(t, late.once(t, "GET /auth/me", tokens["password"], nil), model.CodeUnauthenticated)
	operate(t, s, "", "admin", "enable", "--username", "DISABLED")
	other := instances[1].elsewhere(t)
	renewed, _ := other.session(t, "disabled", rightPassword)
	object(t, other.once(t, "GET /admin/vouchers", renewed, nil), http.StatusOK)
	refused(t, other.once(t, "GET /admin/vouchers", tokens["disabled"], nil), model.CodeUnauthenticated)
}

func TestPasswordChange(t *testing.T) { t.Parallel(); anywhere(t, checkPasswordChange) }

func checkPasswordChange(t *testing.T, in shop) {
	a, alice := in.elsewhere(t), in.name("Alice")
	a.register(t, alice)
	change := func(token, current, next string) api.Answer {
		t.Helper()
		return a.Insist(t, http.MethodPost, "/auth/password", token, map[string]string{"current": current, "new": next})
	}
	first, lasts := a.session(t, strings.ToLower(alice), rightPassword)
	second, _ := a.session(t, alice, rightPassword)
	check.That(t, lasts >= 6*time.Hour, "a buyer's token lasts %s", lasts)

	refused(t, change("", rightPassword, "another horse"), model.CodeUnauthenticated)
	refused(t, change(first, "wrong horse", "another horse"), model.CodeUnauthenticated)
	for _, short := range []string{"", "123456789", strings.Repeat("x", 129)} {
		p := refused(t, change(first, rightPassword, short), model.CodeValidation)
		check.That(t, len(p.Errors) == 1 && p.Errors[0].Location == "body.new", "%v", p.Errors)
	}
	// A token of no account has no password here.
	refused(t, change(a.as(t, "github:42"), rightPassword, "another horse"), model.CodeNotFound)
	me := func(token string) api.Answer { return a.once(t, "GET /auth/me", token, nil) }
	check.Equal(t, "who was refused", me(second).Status, http.StatusOK)

	check.Equal(t, "a change", change(first, rightPassword, "another horse").Status, http.StatusNoContent)
	for _, token := range []string{first, second} {
		refused(t, me(token), model.CodeUnauthenticated)
		refused(t, change(token, "another horse", "a third horse"), model.CodeUnauthenticated)
	}
	refused(t, a.login(t, alice, rightPassword), model.CodeUnauthenticated)
	a.session(t, alice, "another horse")
}

const limitsPath = "/admin/settings/limits"

// passing counts how many of n requests of one user are not over the limit, by turns of the instances.
func passing(t *testing.T, user string, n int, instances ...*app) (passed int) {
	t.Helper()
	for i := range n {
		a := instances[i%len(instances)]
		got := a.Call(t, http.MethodPost, "/vouchers/none/seckill", a.as(t, user), nil)
		switch got.Status {
		case http.StatusNotFound:
			passed++
		default:
			refused(t, got, model.CodeRateLimited)
		}
	}
	return passed
}

// shares checks what the instances let pass together. One whose question got no answer (a busy machine) counts alone.
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

// TestInstancesShareLimits: all instances together hold a user, or an address, to its limit. Each obeys a change.
func TestInstancesShareLimits(t *testing.T) {
	t.Parallel()
	s := onServers(t).with(settings{"SECKILL_RATE_USER": "7/h"})
	a, b := start(t, s), start(t, s)
	for n := range 3 {
		shares(t, passing(t, a.user(n), 20, a, b), 7, a, b)
	}
	type limits struct{ User, Addr string }
	inForce := func(a *app) limits {
		return remote.Decode[limits](t, a.once(t, "GET "+limitsPath, a.Admin(t), nil))
	}
	check.Equal(t, "the settings", inForce(b), limits{"7/h", "0"})
	boss := a.Token(t, "boss", model.RoleAdmin)
	for _, change := range []struct {
		body string
		want limits
	}{{`{"user":"3/h"}`, limits{"3/h", "0"}}, {`{"user":"3/h"}`, limits{"3/h", "0"}}, {`{}`, limits{"3/h", "0"}}, {`{"user":"0","addr":"0"}`, limits{"0", "0"}}} {
		got := a.does(t, "PATCH "+limitsPath, boss, change.body)
		check.Equal(t, "changed to", remote.Decode[limits](t, got), change.want)
		check.Eventually(t, change.body+" is obeyed", func() bool { return inForce(b) == change.want })
		if change.want.User == "0" {
			check.Equal(t, "requests that pass without a limit", passing(t, a.user(4), 30, a, b), 30)
		}
	}
	// What an administrator has set wins over the settings. What is as it was is no change.
	check.Equal(t, "the limits of who started later", inForce(start(t, s.with(settings{"SECKILL_RATE_USER": "50/s"}))),
		limits{"0", "0"})
	var told []string
	for _, e := range reads[model.AdminLogPage](t, a, "/admin/log").Items {
		told = append(told, strings.Join([]string{e.Actor, e.Action, e.Subject, string(e.Before), string(e.After)},
			" "))
	}
	same(t, "the log", told, []string{
		`boss limits.change limits {"user":"3/h"} {"user":"0","addr":"0"}`, `boss limits.change limits {} {"user":"3/h"}`,
	})

	byAddress := onServers(t).with(settings{"SECKILL_RATE_ADDR": "6/h"})
	c, d, passed := start(t, byAddress), start(t, byAddress), 0
	for n := range 20 {
		got := []*app{c, d}[n%2].once(t, "POST /vouchers/none/seckill", c.as(t, c.user(n)), nil,
			"X-Forwarded-For: 198.51.100."+strconv.Itoa(n))
		if got.Status == http.StatusNotFound {
			passed++
			continue
		}
		refused(t, got, model.CodeRateLimited)
	}
	shares(t, passed, 6, c, d)
	check.Equal(t, "what a limited address hears of the health", c.Status("/readyz"), http.StatusOK)
}

// disagrees waits until an instance of another mode is not ready and says why.
func disagrees(t *testing.T, a *app, mode string) {
	t.Helper()
	check.Patiently(t, "an instance in "+mode+" mode is not ready and says why", func() bool {
		got, err := a.Get("/readyz")
		return err == nil && got.Status == http.StatusServiceUnavailable && strings.Contains(string(got.Body), mode)
	})
}
