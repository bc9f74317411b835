//part:races
//part:mysql8

package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// rush lets every user make several attempts at once, spread over the instances, and returns every final answer by
// user. All start at the same instant.
func rush(t *testing.T, instances []*app, voucherID string, users []string, attempts int) map[string][]api.Answer {
	t.Helper()
	var mu sync.Mutex
	answers := map[string][]api.Answer{}
	for _, a := range instances {
		a.connect(t, len(users)*attempts/len(instances)+1)
	}
	check.Volley(len(users)*attempts, func(n int) {
		user := users[n/attempts]
		got := remote.Insist(t, user, func(again int) (api.Answer, error) {
			return instances[(n+again)%len(instances)].Place(t, voucherID, user)
		})
		mu.Lock()
		defer mu.Unlock()
		answers[user] = append(answers[user], got)
	})
	return answers
}

func users(a *app, from, count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = a.user(from + i)
	}
	return names
}

// winners checks every answer of a rush and returns the order of each winner. An order whose first answer was lost is
// known from ALREADY_ORDERED.
func winners(t *testing.T, answers map[string][]api.Answer) map[string]model.Order {
	t.Helper()
	won := map[string]model.Order{}
	for user, all := range answers {
		yes, soldOut := 0, 0
		for _, got := range all {
			order, ok := orderOf(t, got, "", user)
			switch {
			case !ok && got.Code() == model.CodeSoldOut:
				soldOut++
				continue
			case !ok:
				t.Errorf("%s: %d %s", user, got.Status, got.Body)
				continue
			case got.Sells():
				yes++
				if order.UserID != user || order.Status != model.OrderUnpaid || got.Header.Get("Location") != "/api/v1/orders/"+order.ID {
					t.Errorf("%s got %+v at %q", user, order, got.Header.Get("Location"))
				}
			}
			if before, twice := won[user]; twice && before.ID != order.ID {
				t.Errorf("%s has two orders: %s and %s", user, before.ID, order.ID)
			}
			won[user] = order
		}
		if _, has := won[user]; yes > 1 || has && soldOut > 0 {
			t.Errorf("%s was told yes %d times, and SOLD_OUT %d times", user, yes, soldOut)
		}
	}
	return won
}

// sold checks that the winners, the rows and the audit tell the same.
func sold(t *testing.T, a *app, voucherID string, won map[string]model.Order, units int) {
	t.Helper()
	check.That(t, len(won) == units, "%d users were told yes, want %d", len(won), units)
	rows := a.rows(t, voucherID)
	check.That(t, len(rows) == units, "%d rows, want %d", len(rows), units)
	for user, order := range won {
		if rows[user].ID != order.ID {
			t.Errorf("%s was told %q, the row says %q", user, order.ID, rows[user].ID)
		}
	}
	if audit := a.Audit(t, voucherID); !audit.Balanced || audit.Database.LiveOrders != int64(units) {
		t.Errorf("audit %+v, want %d live orders, balanced", audit, units)
	}
}

// A sale with a start gun, and what comes behind it. In the long version the program runs in processes of its own, as
// it is shipped, and embedded, too.
//
//nolint:tparallel // what comes behind it comes behind it
func TestSaleSellsExactlyItsStock(t *testing.T) {
	t.Parallel()
	const attempts = 3
	buyers := check.Count(t, "REQUESTS", 300, 1500) / attempts
	stock := buyers * 3 / 10
	sell := func(t *testing.T, instances ...*app) {
		t.Helper()
		a := instances[0]
		voucher := a.onSale(t, stock)
		won := winners(t, rush(t, instances, voucher.ID, users(a, 0, buyers), attempts))
		sold(t, a, voucher.ID, won, stock)

		t.Run("winners who repeat hear of their own order", func(t *testing.T) {
			for user, order := range won {
				for _, instance := range instances {
					got := instance.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.Token(t, user, model.RoleUser), nil)
					p := remote.Decode[api.Problem](t, got)
					if got.Status != http.StatusConflict || p.Code != model.CodeAlreadyOrdered || p.OrderID != order.ID || p.OrderStatus != model.OrderUnpaid {
						t.Fatalf("%s: %d %s, want ALREADY_ORDERED with %s", user, got.Status, got.Body, order.ID)
					}
				}
			}
		})
		t.Run("restock by 5 sells 5 more", func(t *testing.T) {
			got := a.Insist(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/stock", a.Admin(t), map[string]any{"delta": 5})
			if v := remote.Decode[model.Voucher](t, got); got.Status != http.StatusOK || v.Stock != int64(stock)+5 || v.Remaining != 5 {
				t.Fatalf("restock: %d %s", got.Status, got.Body)
			}
			for _, instance := range instances {
				check.Eventually(t, "the restock is obeyed", func() bool {
					return remote.Decode[model.Voucher](t, instance.Call(t, http.MethodGet, "/vouchers/"+voucher.ID, "", nil)).Phase == model.PhaseLive
				})
			}
			more := winners(t, rush(t, instances, voucher.ID, users(a, buyers, 50), 2))
			maps.Copy(more, won)
			sold(t, a, voucher.ID, more, stock+5)
		})
		t.Run("stock below what is sold is refused", func(t *testing.T) {
			got := a.Insist(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/stock", a.Admin(t), map[string]any{"stock": stock + 4})
			refused(t, got, http.StatusConflict, model.CodeConflict)
			if audit := a.Audit(t, voucher.ID); !audit.Balanced || audit.Database.Stock != int64(stock)+5 {
				t.Errorf("audit after the refusal: %+v", audit)
			}
		})
	}
	t.Run("two instances", func(t *testing.T) {
		s := onServers(t)
		sell(t, start(t, s), start(t, s))
	})
	if check.Faults {
		t.Run("processes", func(t *testing.T) {
			s := onServers(t)
			sell(t, launch(t, s).app, launch(t, s).app)
		})
		t.Run("embedded", func(t *testing.T) { sell(t, launch(t, embeddedSettings(t)).app) })
	}
}

func TestOneUserWithManyRequestsGetsOneOrder(t *testing.T) {
	t.Parallel()
	within(t, "sync on servers", func(t *testing.T, a shop) {
		t.Helper()
		voucher := a.onSale(t, 10)
		won := winners(t, rush(t, []*app{a.app}, voucher.ID, users(a.app, 0, 1), check.Count(t, "REQUESTS", 60, 300)))
		sold(t, a.app, voucher.ID, won, 1)
	})
}

// TestChangesAreObeyedByEveryInstance changes a voucher here and buys there. (That it is obeyed within a second, also
// when every message is lost, service/sale/cache tells.)
func TestChangesAreObeyedByEveryInstance(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	here, there := start(t, s), start(t, s)
	voucher := here.onSale(t, 1)
	buy := func(n int) api.Answer {
		return there.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", there.Token(t, here.user(n), model.RoleUser), nil)
	}
	there.buys(t, voucher.ID, here.user(0))
	check.Equal(t, "the second", buy(1).Code(), model.CodeSoldOut)
	path := "/admin/vouchers/" + voucher.ID
	for n, step := range []struct {
		method, path string
		body         any
		want         model.Code // empty: sold
	}{
		{http.MethodPost, path + "/stock", map[string]any{"delta": 1}, ""},
		{http.MethodPost, path + "/stock", map[string]any{"stock": 3}, ""},
		{http.MethodPost, path + "/stock", map[string]any{"delta": 50}, ""},
		{http.MethodPatch, path, map[string]any{"state": "paused"}, model.CodePaused},
		{http.MethodPatch, path, map[string]any{"state": "published"}, ""},
		{http.MethodPatch, path, map[string]any{"begin_at": time.Now().Add(30 * time.Minute).UTC()}, model.CodeNotStarted},
		{http.MethodPatch, path, map[string]any{"begin_at": time.Now().Add(-time.Minute).UTC()}, ""},
		{http.MethodPatch, path, map[string]any{"end_at": time.Now().Add(-time.Second).UTC()}, model.CodeEnded},
		{http.MethodPatch, path, map[string]any{"end_at": time.Now().Add(time.Hour).UTC()}, ""},
		{http.MethodPatch, path, map[string]any{"state": "archived"}, model.CodeNotFound},
		{http.MethodPatch, path, map[string]any{"state": "published"}, ""},
	} {
		object(t, here.Insist(t, step.method, step.path, here.Admin(t), step.body), http.StatusOK)
		attempt := 1000 * (n + 1)
		check.Eventually(t, fmt.Sprintf("step %d (%v) is obeyed", n, step.body), func() bool {
			attempt++
			got := buy(attempt)
			return got.Code() == step.want && (step.want != "" || got.Status == http.StatusCreated)
		})
	}
}

// promises lets every user buy once, all at the same instant and spread over the instances, and returns the promised
// orders with their users. Each order is read at once, from every instance, and waited for.
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

// readable reads a promised order, which is there from the first moment on, and waits until it is no promise any more.
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

// One user who clicks many times has one order, on whichever instance and however late each of them hears of the
// others.
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
	check.That(t, len(promised) == 1, "one user hears of the orders %v", promised)
	instances[1].kept(t, voucher.ID, promised)
}
