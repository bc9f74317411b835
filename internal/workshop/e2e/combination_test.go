//part:races
//part:locks

package e2e_test

import (
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// Every way to lock and every way to take stock sells exactly, and in the long version each way to lock with each way
// to take stock, and in async. Those who hear 429 or 503 ask again, as the contract tells clients.
func TestEveryLockModeWithEveryStockStrategy(t *testing.T) {
	t.Parallel()
	parts := make([]string, 3)
	for i := range parts {
		parts[i] = testserver.Redis(t).URL()
	}
	// A database for all, and one for all in async: each has a voucher of its own.
	on, async := onServers(t), asyncOnServers(t)
	buyers := check.Count(t, "BUYERS", 16, 150) // each of them makes two attempts
	for n, lock := range []string{"redis", "multilock", "redlock", "setnx", "mysql", "none"} {
		for m, strategy := range []string{"conditional", "pessimistic", "optimistic", "async"} {
			if !check.Faults && m != n%3 {
				continue
			}
			t.Run(lock+" "+strategy, func(t *testing.T) {
				t.Parallel()
				s := on.with(settings{"SECKILL_STOCK_STRATEGY": strategy})
				if strategy == "async" {
					s = async
				}
				s = s.with(settings{"SECKILL_LOCK_MODE": lock})
				if lock == "multilock" || lock == "redlock" {
					s["SECKILL_LOCK_REDIS_URLS"] = strings.Join(parts, ",")
				}
				a := start(t, s)
				stock := buyers * 2 / 5
				c := newCrowd(a, a.onSale(t, stock).ID, start(t, s))
				names := users(a, 0, buyers)
				c.buy(t, append(names, names...), buyers)
				sold(t, a, c.voucher, c.told, stock)
			})
		}
	}
}
