package e2e_test

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// commandsOf is how many commands a Redis has carried out.
func commandsOf(t *testing.T, client *redis.Client) (count int) {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	check.Must(t, err)
	for _, calls := range regexp.MustCompile(`calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		n, err := strconv.Atoi(calls[1])
		check.Must(t, err)
		count += n
	}
	return count
}

// TestWaitsCostRedisLittle: the database is away, and one user waits for one order over
// many connections. A few may wait, and cost what one of them does; the others are told
// so. Who hangs up leaves room.
func TestWaitsCostRedisLittle(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnServers(t)
	a := start(t, s)
	options, err := redis.ParseURL(own.redis.URL())
	check.Must(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	voucher := a.onSale(t, 20)
	a.becomes(t, a.accepted(t, voucher.ID, a.user(0)), model.OrderUnpaid)
	own.database.Kill()
	user := a.user(1)
	order := a.accepted(t, voucher.ID, user)
	token := a.token(t, user, model.RoleUser)

	const look = 4 * time.Second
	rate := func() float64 {
		before := commandsOf(t, client)
		<-time.After(look)
		return float64(commandsOf(t, client)-before) / look.Seconds()
	}
	quiet := rate()
	const all, few = 60, 8
	hungUp, hangUp := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	var refused atomic.Int64
	for range all {
		waiting.Go(func() {
			request, err := http.NewRequestWithContext(hungUp, http.MethodGet, a.url+"/api/v1/orders/"+order.ID+"?wait=30s", nil)
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Authorization", "Bearer "+token)
			response, err := a.client.Do(request)
			if err != nil {
				return // hung up
			}
			defer response.Body.Close()
			if n := refused.Add(1); response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" || n > all-few {
				t.Errorf("answer %d: %d %v", n, response.StatusCode, response.Header)
			}
		})
	}
	defer waiting.Wait()
	defer hangUp()
	check.Eventually(t, "those that are too many are refused", func() bool { return refused.Load() == all-few })
	busy := rate()
	t.Logf("%.0f commands a second without waits, %.0f with", quiet, busy)
	// A look is an EVALSHA with a few calls inside; there is one a second.
	if busy > quiet+20 {
		t.Errorf("%d waits cost %.0f commands a second", few, busy-quiet)
	}
	hangUp()
	waiting.Wait()
	check.Eventually(t, "there is room again", func() bool {
		got := a.call(t, http.MethodGet, "/orders/"+order.ID+"?wait=1ms", token, nil)
		return got.status == http.StatusOK && decode[model.Order](t, got).Status == model.OrderProcessing
	})
	own.database.Start()
	a.becomes(t, order, model.OrderUnpaid)
}
