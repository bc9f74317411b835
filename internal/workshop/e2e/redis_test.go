//part:races
//part:redis

package e2e_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func flush(t *testing.T, server *testserver.Server) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	check.Must(t, client.FlushAll(t.Context()).Err())
}

func losses(t *testing.T, redis *testserver.Server) map[string]func() {
	return map[string]func(){
		"FLUSHALL":    func() { flush(t, redis) },
		"an old copy": func() { redis.Kill(); redis.RestoreData(); redis.Start() },
		"empty":       func() { redis.Kill(); redis.ClearData(); redis.Start() },
	}
}

// In a sale Redis forgets everything, or all since a while ago. Nobody hears SOLD_OUT while units are left, nobody buys
// twice, and exactly the stock is sold. Only an unqueued promise may break: none is, as queueing comes first.
func TestRedisForgetsInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	ways := []string{"an old copy"}
	if check.Faults {
		ways = append(ways, "FLUSHALL", "empty")
	}
	for _, how := range ways {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			own, s := asyncOnOwnRedis(t)
			a, other := start(t, s), start(t, s)
			stock := check.Count(t, "ORDERS", 200, 600)
			voucher := a.onSale(t, stock)
			c := newCrowd(a, voucher.ID, other)
			sale := c.buying(t, users(a, 0, stock*3/2), 12)
			c.moreSales(t, stock/10)
			own.KeepData()
			c.moreSales(t, stock/10)
			losses(t, own)[how]()
			sale()
			a.kept(t, voucher.ID, c.promised)
			a.sellsOn(t, voucher.ID, 2*stock)
			t.Logf("%d × 202, %d × 503", c.yes, c.refused)
		})
	}
}
