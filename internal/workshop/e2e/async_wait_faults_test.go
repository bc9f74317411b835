//go:build faults

//part:siege

package e2e_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// TestWaitsAreBounded: the database is away, and one user waits for one order over many connections. A few may wait; the
// others are told so. Who hangs up leaves room.
func TestWaitsAreBounded(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnDatabase(t)
	a := start(t, s)
	voucher := a.onSale(t, 20)
	a.becomes(t, a.accepted(t, voucher.ID, a.user(0)), model.OrderUnpaid)
	own.Kill()
	order := a.accepted(t, voucher.ID, a.user(1))
	token := a.Token(t, order.UserID, model.RoleUser)

	const all, few = 60, 8
	hungUp, hangUp := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	var refused, waited atomic.Int64
	for range all {
		waiting.Go(func() {
			for hungUp.Err() == nil {
				got, err := api.Send(hungUp, a.Client, http.MethodGet, a.URL+"/api/v1/orders/"+order.ID+"?wait=30s", token, nil)
				if err != nil {
					return // hung up
				}
				if got.Status != http.StatusTooManyRequests {
					waited.Add(1) // a machine that stood still for so long
					continue
				}
				refused.Add(1)
				if got.Header.Get("Retry-After") == "" {
					t.Errorf("429 without Retry-After: %v", got.Header)
				}
				return
			}
		})
	}
	defer waiting.Wait()
	defer hangUp()
	check.Eventually(t, "those that are too many are refused", func() bool { return refused.Load() >= all-few })
	if n := refused.Load(); waited.Load() == 0 && n != all-few {
		t.Errorf("%d were refused, want %d", n, all-few)
	}
	hangUp()
	waiting.Wait()
	check.Eventually(t, "there is room again", func() bool {
		got := a.Call(t, http.MethodGet, "/orders/"+order.ID+"?wait=1ms", token, nil)
		return got.Status == http.StatusOK && remote.Decode[model.Order](t, got).Status == model.OrderProcessing
	})
	own.Start()
	a.becomes(t, order, model.OrderUnpaid)
}
