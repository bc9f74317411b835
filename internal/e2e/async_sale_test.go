package e2e_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

// promises lets every user buy once, all at the same instant and spread over
// the instances, and returns the promised orders with their users. Each order
// is read at once, from every instance, and waited for.
func promises(t *testing.T, instances []*app, voucherID string, users []string) map[string]string {
	t.Helper()
	var (
		ready, done sync.WaitGroup
		gun         = make(chan struct{})
		mu          sync.Mutex
		promised    = map[string]string{}
	)
	for _, a := range instances {
		a.connect(t, len(users))
	}
	for n, user := range users {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-gun
			order, ok := promise(t, instances[n%len(instances)], voucherID, user)
			if !ok {
				return
			}
			for _, a := range instances {
				readable(t, a, order)
			}
			mu.Lock()
			defer mu.Unlock()
			promised[order.ID] = user
		})
	}
	ready.Wait()
	close(gun)
	done.Wait()
	return promised
}

// promise asks once, but for those whose lock was busy; nobody may hear anything
// but 202 and SOLD_OUT.
func promise(t *testing.T, a *app, voucherID, user string) (order model.Order, ok bool) {
	t.Helper()
	for {
		got, err := a.place(t, voucherID, user)
		switch {
		case err == nil && got.status == http.StatusAccepted:
			order = decode[model.Order](t, got)
			if order.Status != model.OrderProcessing || order.UserID != user || got.header.Get("Location") != "/api/v1/orders/"+order.ID {
				t.Errorf("%s was promised %+v at %q", user, order, got.header.Get("Location"))
			}
			return order, true
		case err == nil && got.code() == model.CodeLockBusy:
			<-time.After(10 * time.Millisecond)
		default:
			if err != nil || got.code() != model.CodeSoldOut {
				t.Errorf("%s: %d %s %v", user, got.status, got.body, err)
			}
			return model.Order{}, false
		}
	}
}

// readable reads a promised order, which is there from the first moment on, and
// waits until it is no promise any more.
func readable(t *testing.T, a *app, order model.Order) {
	t.Helper()
	token := a.token(t, order.UserID, model.RoleUser)
	for _, query := range []string{"", "?wait=20s"} {
		got, err := send(a.client, http.MethodGet, a.url+"/api/v1/orders/"+order.ID+query, token, nil)
		if err != nil || got.status != http.StatusOK {
			t.Errorf("order %s%s right after its promise: %d %s %v", order.ID, query, got.status, got.body, err)
			return
		}
		status := decode[model.Order](t, got).Status
		if query != "" && status != model.OrderUnpaid || query == "" && status != model.OrderUnpaid && status != model.OrderProcessing {
			t.Errorf("order %s%s is %s", order.ID, query, status)
		}
	}
}

// The program runs in processes of its own, before the parallel tests, as for
// TestSaleSellsExactlyItsStock.
//
//nolint:paralleltest // see above
func TestAsyncSaleSellsExactlyItsStock(t *testing.T) {
	s := asyncOnServers(t)
	instances := []*app{launch(t, s).app, launch(t, s).app}
	buyers := requestsAtOnce(t)
	stock := buyers / 3
	voucher := instances[0].onSale(t, stock)
	began := time.Now()
	promised := promises(t, instances, voucher.ID, users(instances[0], 0, buyers))
	t.Logf("%d promises, all of them unpaid after %v", len(promised), time.Since(began))
	if len(promised) != stock {
		t.Errorf("%d were promised, want %d", len(promised), stock)
	}
	for _, a := range instances {
		orders := a.conserved(t, voucher.ID, promised)
		unbroken(t, orders, promised)
		if len(orders) != stock {
			t.Errorf("%d orders, want %d", len(orders), stock)
		}
	}
}

func TestAsyncSaleInEveryLockMode(t *testing.T) {
	t.Parallel()
	parts := []string{testserver.Redis(t).URL(), testserver.Redis(t).URL(), testserver.Redis(t).URL()}
	for _, mode := range []string{"redis", "multilock", "redlock", "setnx", "mysql", "none"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := asyncOnServers(t).with(settings{"SECKILL_LOCK_MODE": mode})
			if mode == "multilock" || mode == "redlock" {
				s["SECKILL_LOCK_REDIS_URLS"] = strings.Join(parts, ",")
			}
			instances := []*app{start(t, s), start(t, s)}
			const stock, buyers = 60, 150
			voucher := instances[0].onSale(t, stock)
			promised := promises(t, instances, voucher.ID, users(instances[0], 0, buyers))
			if len(promised) != stock {
				t.Errorf("%d were promised, want %d", len(promised), stock)
			}
			unbroken(t, instances[1].conserved(t, voucher.ID, promised), promised)
		})
	}
}

// One user who clicks many times has one order, on whichever instance and
// however late each of them hears of the others.
func TestAsyncUserWithManyRequestsGetsOneOrder(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	instances := []*app{start(t, s), start(t, s)}
	voucher := instances[0].onSale(t, 10)
	user := instances[0].user(1)
	answers := rush(t, instances, voucher.ID, []string{user}, 300)[user]
	promised := map[string]string{}
	for _, got := range answers {
		switch {
		case got.status == http.StatusAccepted:
			promised[decode[model.Order](t, got).ID] = user
		case got.code() == model.CodeAlreadyOrdered:
			promised[decode[problem](t, got).OrderID] = user
		case got.code() != model.CodeLockBusy:
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if len(promised) != 1 {
		t.Errorf("one user hears of the orders %v", promised)
	}
	unbroken(t, instances[1].conserved(t, voucher.ID, promised), promised)
}
