//part:races
//part:mysql8

package e2e_test

import (
	"net/http"
	"sync"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// promises lets every user buy once, all at the same instant and spread over
// the instances, and returns the promised orders with their users. Each order
// is read at once, from every instance, and waited for.
func promises(t *testing.T, instances []*app, voucherID string, users []string) map[string]string {
	t.Helper()
	var mu sync.Mutex
	promised := map[string]string{}
	check.Volley(len(users), func(n int) {
		order, ok := promise(t, instances[n%len(instances)], voucherID, users[n])
		if !ok {
			return
		}
		for _, a := range instances {
			readable(t, a, order)
		}
		mu.Lock()
		defer mu.Unlock()
		promised[order.ID] = users[n]
	})
	return promised
}

// promise asks for one unit; nobody may hear anything for good but 202 and SOLD_OUT, unless an answer was lost.
func promise(t *testing.T, a *app, voucherID, user string) (order model.Order, ok bool) {
	t.Helper()
	unknown := false
	got := remote.Insist(t, user, func(int) (api.Answer, error) {
		got, err := a.Place(t, voucherID, user)
		unknown = unknown || err != nil || got.Code() == model.CodeUnavailable
		return got, err
	})
	switch {
	case got.Status == http.StatusAccepted:
		order = remote.Decode[model.Order](t, got)
		if order.Status != model.OrderProcessing || order.UserID != user || got.Header.Get("Location") != "/api/v1/orders/"+order.ID {
			t.Errorf("%s was promised %+v at %q", user, order, got.Header.Get("Location"))
		}
		return order, true
	case unknown && got.Code() == model.CodeAlreadyOrdered:
		return model.Order{ID: remote.Decode[api.Problem](t, got).OrderID, UserID: user}, true
	case got.Code() != model.CodeSoldOut:
		t.Errorf("%s: %d %s", user, got.Status, got.Body)
	}
	return model.Order{}, false
}

// readable reads a promised order, which is there from the first moment on, and
// waits until it is no promise any more.
func readable(t *testing.T, a *app, order model.Order) {
	t.Helper()
	got := a.Insist(t, http.MethodGet, "/orders/"+order.ID, a.Token(t, order.UserID, model.RoleUser), nil)
	if got.Status != http.StatusOK {
		t.Errorf("order %s right after its promise: %d %s", order.ID, got.Status, got.Body)
		return
	}
	if status := remote.Decode[model.Order](t, got).Status; status != model.OrderUnpaid && status != model.OrderProcessing {
		t.Errorf("order %s is %s", order.ID, status)
	}
	a.becomes(t, order, model.OrderUnpaid)
}

func TestAsyncSaleSellsExactlyItsStock(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	instances := []*app{start(t, s), start(t, s)}
	buyers := check.Count(t, "REQUESTS", 300, 1000)
	stock := buyers / 3
	voucher := instances[0].onSale(t, stock)
	promised := promises(t, instances, voucher.ID, users(instances[0], 0, buyers))
	check.Equal(t, "promises", len(promised), stock)
	for _, a := range instances {
		check.Equal(t, "orders", len(a.kept(t, voucher.ID, promised)), stock)
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
	var mu sync.Mutex
	promised := map[string]string{}
	check.Volley(check.Count(t, "REQUESTS", 100, 300), func(n int) {
		got := remote.Insist(t, user, func(attempt int) (api.Answer, error) {
			return instances[(n+attempt)%len(instances)].Place(t, voucher.ID, user)
		})
		mu.Lock()
		defer mu.Unlock()
		switch {
		case got.Status == http.StatusAccepted:
			promised[remote.Decode[model.Order](t, got).ID] = user
		case got.Code() == model.CodeAlreadyOrdered:
			promised[remote.Decode[api.Problem](t, got).OrderID] = user
		default:
			t.Errorf("%d %s", got.Status, got.Body)
		}
	})
	if len(promised) != 1 {
		t.Errorf("one user hears of the orders %v", promised)
	}
	instances[1].kept(t, voucher.ID, promised)
}
