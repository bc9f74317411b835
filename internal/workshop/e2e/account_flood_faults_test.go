//go:build faults

//part:siege

package e2e_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
)

// TestLoginsDoNotStopTheSale sells while loops try passwords, from one address and from many: every purchase succeeds.
func TestLoginsDoNotStopTheSale(t *testing.T) {
	t.Parallel()
	p := launch(t, onServers(t))
	const loops, purchases = 64, 200
	voucher := p.onSale(t, 2*purchases)
	one := p.elsewhere(t)
	many := make([]*app, loops)
	for n := range many {
		many[n] = p.elsewhere(t)
	}
	for round, from := range []func(loop int) *app{func(int) *app { return one }, func(loop int) *app { return many[loop] }} {
		var (
			over           atomic.Bool
			tried, refused atomic.Int64
			guessing       sync.WaitGroup
		)
		for loop := range loops {
			guessing.Go(func() {
				for n := 0; !over.Load(); n++ {
					body := map[string]string{"username": fmt.Sprintf("user%d.%d", loop, n), "password": "wrong horse " + strconv.Itoa(n)}
					switch got, err := api.Send(t.Context(), from(loop).Client, http.MethodPost, p.URL+"/api/v1/auth/login", "", body); {
					case err != nil:
						t.Errorf("guess: %v", err)
						return
					case got.Status == http.StatusUnauthorized:
						tried.Add(1)
					default:
						stayAway(t, got)
						refused.Add(1)
					}
				}
			})
		}
		check.Eventually(t, "the flood is refused", func() bool { return refused.Load() > 0 })
		for n := range purchases {
			p.buys(t, voucher.ID, p.user(round*purchases+n))
		}
		over.Store(true)
		guessing.Wait()
		t.Logf("%d passwords tried, %d refused", tried.Load(), refused.Load())
	}
}
