package e2e_test

import (
	"strings"
	"testing"

	"seckill/internal/testserver"
)

// Every way to lock with every way to take stock sells exactly. Those who hear
// 429 or 503 ask again, as the contract tells clients.
func TestEveryLockModeWithEveryStockStrategy(t *testing.T) {
	t.Parallel()
	parts := make([]string, 3)
	for i := range parts {
		parts[i] = testserver.Redis(t).URL()
	}
	modes := map[string]settings{
		"redis":     {},
		"multilock": {"SECKILL_LOCK_REDIS_URLS": strings.Join(parts, ",")},
		"redlock":   {"SECKILL_LOCK_REDIS_URLS": strings.Join(parts, ",")},
		"setnx":     {},
		"mysql":     {},
		"none":      {},
	}
	for mode, more := range modes {
		for _, strategy := range []string{"conditional", "pessimistic", "optimistic"} {
			t.Run(mode+" "+strategy, func(t *testing.T) {
				t.Parallel()
				a := start(t, onServers(t).with(more).with(settings{
					"SECKILL_LOCK_MODE": mode, "SECKILL_STOCK_STRATEGY": strategy,
				}))
				const stock, buyers = 60, 150 // each of them makes two attempts
				voucher := a.onSale(t, stock)
				c := newCrowd(a, voucher.ID)
				names := users(a, 0, buyers)
				c.buy(t, append(names, names...), buyers)
				sold(t, a, voucher.ID, c.told, stock)
			})
		}
	}
}
