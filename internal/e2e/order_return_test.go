package e2e_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestReturnedUnitIsSoldOnce: twenty cancellations of one order at once return one unit,
// one of six users who wait for it has it within a second, and who gave it back may buy
// again.
func TestReturnedUnitIsSoldOnce(t *testing.T) {
	t.Parallel()
	for name, deployment := range map[string]func(*testing.T) settings{"sync": onServers, "async": asyncOnServers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := start(t, deployment(t))
			testserver.Undisturbed(t, 50*time.Millisecond, func() error { return checkReturnedUnit(t, a) })
		})
	}
}

func checkReturnedUnit(t *testing.T, a *app) (late error) {
	t.Helper()
	voucher := a.onSale(t, 1)
	alice := a.token(t, a.user(0), model.RoleUser)
	buy := func(token string) (model.Order, bool) {
		got := a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil)
		sold := got.status == http.StatusCreated || got.status == http.StatusAccepted
		if !sold && got.code() != model.CodeSoldOut && got.code() != model.CodeUnavailable {
			t.Errorf("%d %s", got.status, got.body)
		}
		if !sold {
			return model.Order{}, false
		}
		return decode[model.Order](t, got), true
	}
	first, sold := buy(alice)
	if !sold {
		t.Fatal("a voucher of one unit is not for sale")
	}
	first = decode[model.Order](t, a.call(t, http.MethodGet, "/orders/"+first.ID+"?wait=10s", alice, nil))

	var winners, waiting sync.WaitGroup
	var over atomic.Bool
	won := make(chan int, 6)
	for n := 1; n <= 6; n++ {
		token := a.token(t, a.user(n), model.RoleUser)
		waiting.Add(1)
		winners.Go(func() {
			for once := sync.OnceFunc(waiting.Done); !over.Load(); once() {
				if _, sold := buy(token); sold {
					won <- n
					return
				}
			}
		})
	}
	waiting.Wait() // each has asked
	check.Volley(20, func(int) {
		got := a.call(t, http.MethodPost, "/orders/"+first.ID+"/cancel", alice, nil)
		if got.status != http.StatusOK || decode[model.Order](t, got).Status != model.OrderCanceled {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
	canceled := time.Now()
	var winner int
	select {
	case winner = <-won:
	case <-time.After(settlement):
		t.Fatal("nobody has the unit")
	}
	if after := time.Since(canceled); after > time.Second {
		late = fmt.Errorf("the unit was sold again after %s", after)
	}
	<-time.After(time.Second) // the others go on trying
	over.Store(true)
	winners.Wait()
	if len(won) != 0 {
		t.Errorf("%d more users bought one unit", len(won))
	}
	token := a.token(t, a.user(winner), model.RoleUser)
	page := decode[model.OrderPage](t, a.call(t, http.MethodGet, "/orders?voucher_id="+voucher.ID, token, nil))
	if len(page.Items) != 1 {
		t.Fatalf("%+v", page.Items)
	}
	id := page.Items[0].ID
	a.call(t, http.MethodGet, "/orders/"+id+"?wait=10s", token, nil)
	object(t, a.call(t, http.MethodPost, "/orders/"+id+"/cancel", token, nil), http.StatusOK)
	until(t, settlement, "who gave the unit back has it again", func() bool { _, sold := buy(alice); return sold })
	until(t, settlement, "it adds up", func() bool {
		d := a.audit(t, voucher.ID).Database
		return d.LiveOrders == 1 && d.Remaining == 0
	})
	return late
}
