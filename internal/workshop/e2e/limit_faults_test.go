//go:build faults

//part:redis

package e2e_test

import (
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// TestLimitsWithoutRedis: each instance limits by itself.
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
	check.Equal(t, "requests of another user that pass", passing(t, a.user(2), 20, a), 7)
}
