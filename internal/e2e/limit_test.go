package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

const limitsPath = "/admin/settings/limits"

// passing counts how many of n requests of one user are not over the limit, by turns of
// the instances.
func passing(t *testing.T, user string, n int, instances ...*app) (passed int) {
	t.Helper()
	for i := range n {
		a := instances[i%len(instances)]
		got := a.call(t, http.MethodPost, "/vouchers/none/seckill", a.token(t, user, model.RoleUser), nil)
		switch got.status {
		case http.StatusNotFound:
			passed++
		default:
			refused(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
		}
	}
	return passed
}

// TestInstancesShareLimits: a user has the limit once, however many instances serve, and
// so has an address.
func TestInstancesShareLimits(t *testing.T) {
	t.Parallel()
	s := onServers(t).with(settings{"SECKILL_RATE_USER": "7/h"})
	a, b := start(t, s), start(t, s)
	for n := range 3 {
		if got := passing(t, a.user(n), 20, a, b); got != 7 {
			t.Errorf("two instances let %d requests pass with 7 an hour", got)
		}
	}
	byAddress := s.with(settings{"SECKILL_RATE_USER": "0", "SECKILL_RATE_ADDR": "6/h"})
	c, d := start(t, byAddress), start(t, byAddress)
	if got := passing(t, c.user(9), 20, c, d); got != 6 {
		t.Errorf("two instances let %d requests of an address pass with 6 an hour", got)
	}
	if status := c.status(t, "/readyz"); status != http.StatusOK {
		t.Errorf("a limited address hears of its instance's health: %d", status)
	}
}

// TestLimitsWithoutRedis: each instance limits by itself, and no request waits for long.
func TestLimitsWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := testserver.Redis(t)
	a := start(t, onServers(t).with(settings{
		"SECKILL_RATE_USER": "7/h", "SECKILL_REDIS_URL": redis.URL(), "SECKILL_LOCK_MODE": "none",
	}))
	if got := passing(t, a.user(1), 3, a); got != 3 {
		t.Errorf("%d of 3 pass", got)
	}
	redis.Kill()
	if got := passing(t, a.user(1), 10, a); got != 4 {
		t.Errorf("%d more than 3 pass with 7 an hour", got)
	}
	began := time.Now()
	if got := passing(t, a.user(2), 20, a); got != 7 {
		t.Errorf("%d pass without Redis", got)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("20 requests without Redis took %s", took)
	}
}

// TestChangedLimits: all instances obey within a second, also those that start later.
func TestChangedLimits(t *testing.T) {
	t.Parallel()
	everywhere := func(t *testing.T, s settings, more int) {
		t.Helper()
		instances := []*app{start(t, s)}
		for range more {
			instances = append(instances, start(t, s))
		}
		first, last := instances[0], instances[len(instances)-1]
		type limits struct{ User, Addr string }
		inForce := func(a *app) limits {
			return decode[limits](t, a.call(t, http.MethodGet, limitsPath, a.admin(t), nil))
		}
		if got := inForce(last); got != (limits{"20/s", "0"}) {
			t.Errorf("the settings are %v", got)
		}
		change := func(body any) limits {
			got := first.call(t, http.MethodPatch, limitsPath, first.admin(t), body)
			if got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			return decode[limits](t, got)
		}
		obeyed := func(want limits) {
			testserver.Undisturbed(t, 100*time.Millisecond, func() error {
				other := limits{"50/s", "0"} // each attempt begins with it
				change(map[string]any{"user": other.User})
				until(t, settlement, "the limits are others", func() bool { return inForce(last) == other })
				if got := change(map[string]any{"user": want.User}); got != want {
					t.Fatalf("changed to %v", got)
				}
				changed := time.Now()
				for asked := changed; inForce(last) != want; asked = time.Now() {
					if late := asked.Sub(changed); late > time.Second {
						return fmt.Errorf("%v is not obeyed after %s", want, late)
					}
					<-time.After(5 * time.Millisecond)
				}
				return nil
			})
		}
		obeyed(limits{"3/h", "0"})
		if got := passing(t, first.user(1), 12, instances...); got != 3 {
			t.Errorf("%d pass with 3 an hour", got)
		}
		obeyed(limits{"0", "0"})
		if got := passing(t, first.user(1), 30, instances...); got != 30 {
			t.Errorf("%d of 30 pass without a limit", got)
		}
		for _, body := range []any{map[string]any{"user": "3"}, map[string]any{"addr": "-1/s"}, map[string]any{"addr": 5}, map[string]any{"users": "1/s"}} {
			refused(t, first.call(t, http.MethodPatch, limitsPath, first.admin(t), body), http.StatusUnprocessableEntity, model.CodeValidation)
		}
		refused(t, first.call(t, http.MethodPatch, limitsPath, first.token(t, "u", model.RoleUser), map[string]any{"user": "0"}),
			http.StatusForbidden, model.CodeForbidden)
		if more > 0 { // what an administrator has set wins over the settings
			if got := inForce(start(t, s.with(settings{"SECKILL_RATE_USER": "50/s"}))); got != (limits{"0", "0"}) {
				t.Errorf("an instance that started later has %v", got)
			}
		}
	}
	t.Run("servers", func(t *testing.T) {
		t.Parallel()
		everywhere(t, onServers(t).with(settings{"SECKILL_RATE_USER": "20/s"}), 1)
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		everywhere(t, embeddedSettings(t).with(settings{"SECKILL_RATE_USER": "20/s"}), 0)
	})
}
