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
// to take stock. Those who hear 429 or 503 ask again, as the contract tells clients.
func TestEveryLockModeWithEveryStockStrategy(t *testing.T) {
	t.Parallel()
	parts := make([]string, 3)
	for i := range parts {
		parts[i] = testserver.Redis(t).URL()
	}
	on := onServers(t) // a database for all: each has a voucher of its own
	strategies := []string{"conditional", "pessimistic", "optimistic"}
	buyers := check.Count(t, "BUYERS", 16, 150) // each of them makes two attempts
	for n, mode := range []string{"redis", "multilock", "redlock", "setnx", "mysql", "none"} {
		for m, strategy := range strategies {
			if !check.Faults && m != n%len(strategies) {
				continue
			}
			t.Run(mode+" "+strategy, func(t *testing.T) {
				t.Parallel()
				s := settings{"SECKILL_LOCK_MODE": mode, "SECKILL_STOCK_STRATEGY": strategy}
				if mode == "multilock" || mode == "redlock" {
					s["SECKILL_LOCK_REDIS_URLS"] = strings.Join(parts, ",")
				}
				a := start(t, on.with(s))
				stock := buyers * 2 / 5
				voucher := a.onSale(t, stock)
				c := newCrowd(a, voucher.ID)
				names := users(a, 0, buyers)
				c.buy(t, append(names, names...), buyers)
				sold(t, a, voucher.ID, c.told, stock)
			})
		}
	}
}
