//part:races

package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// rush lets every user make his attempts at once, spread over the instances, and returns every final answer by user. All
// start at the same instant.
func rush(t *testing.T, instances []*app, voucherID string, users []string, attempts int) map[string][]answer {
	t.Helper()
	var mu sync.Mutex
	answers := map[string][]answer{}
	for _, a := range instances {
		a.connect(t, len(users)*attempts/len(instances)+1)
	}
	check.Volley(len(users)*attempts, func(n int) {
		user := users[n/attempts]
		got := insist(t, user, func(again int) (answer, error) {
			return instances[(n+again)%len(instances)].place(t, voucherID, user)
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
func winners(t *testing.T, answers map[string][]answer) map[string]model.Order {
	t.Helper()
	won := map[string]model.Order{}
	for user, all := range answers {
		yes, soldOut := 0, 0
		for _, got := range all {
			order, ok := orderOf(t, got, "", user)
			switch {
			case !ok && got.code() == model.CodeSoldOut:
				soldOut++
				continue
			case !ok:
				t.Errorf("%s: %d %s", user, got.status, got.body)
				continue
			case sells(got):
				yes++
				if order.UserID != user || order.Status != model.OrderUnpaid || got.header.Get("Location") != "/api/v1/orders/"+order.ID {
					t.Errorf("%s got %+v at %q", user, order, got.header.Get("Location"))
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
	if len(won) != units {
		t.Errorf("%d users were told yes, want %d", len(won), units)
	}
	rows := a.rows(t, voucherID)
	if len(rows) != units {
		t.Errorf("%d rows, want %d", len(rows), units)
	}
	for user, order := range won {
		if rows[user].ID != order.ID {
			t.Errorf("%s was told %q, the row says %q", user, order.ID, rows[user].ID)
		}
	}
	if audit := a.audit(t, voucherID); !audit.Balanced || audit.Database.LiveOrders != int64(units) {
		t.Errorf("audit %+v, want %d live orders, balanced", audit, units)
	}
}

// A sale with a start gun, and what comes behind it. In the long version the program runs in processes of its own, as it
// is shipped, and embedded, too.
//
//nolint:paralleltest,tparallel // what comes behind it comes behind it
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
					got := instance.insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.token(t, user, model.RoleUser), nil)
					p := decode[problem](t, got)
					if got.status != http.StatusConflict || p.Code != model.CodeAlreadyOrdered || p.OrderID != order.ID || p.OrderStatus != model.OrderUnpaid {
						t.Fatalf("%s: %d %s, want ALREADY_ORDERED with %s", user, got.status, got.body, order.ID)
					}
				}
			}
		})
		t.Run("restock by 5 sells 5 more", func(t *testing.T) {
			got := a.insist(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/stock", a.admin(t), map[string]any{"delta": 5})
			if v := decode[model.Voucher](t, got); got.status != http.StatusOK || v.Stock != int64(stock)+5 || v.Remaining != 5 {
				t.Fatalf("restock: %d %s", got.status, got.body)
			}
			for _, instance := range instances {
				check.Eventually(t, "the restock is obeyed", func() bool {
					return decode[model.Voucher](t, instance.call(t, http.MethodGet, "/vouchers/"+voucher.ID, "", nil)).Phase == model.PhaseLive
				})
			}
			more := winners(t, rush(t, instances, voucher.ID, users(a, buyers, 50), 2))
			maps.Copy(more, won)
			sold(t, a, voucher.ID, more, stock+5)
		})
		t.Run("stock below what is sold is refused", func(t *testing.T) {
			got := a.insist(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/stock", a.admin(t), map[string]any{"stock": stock + 4})
			refused(t, got, http.StatusConflict, model.CodeConflict)
			if audit := a.audit(t, voucher.ID); !audit.Balanced || audit.Database.Stock != int64(stock)+5 {
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

// TestChangesAreObeyedByEveryInstance changes a voucher here and buys there. (That it is obeyed within a second, also when
// every message is lost, service/cache tells.)
func TestChangesAreObeyedByEveryInstance(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	here, there := start(t, s), start(t, s)
	voucher := here.onSale(t, 1)
	buy := func(n int) answer {
		return there.insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", there.token(t, here.user(n), model.RoleUser), nil)
	}
	there.buys(t, voucher.ID, here.user(0))
	check.Equal(t, "the second", buy(1).code(), model.CodeSoldOut)
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
		object(t, here.insist(t, step.method, step.path, here.admin(t), step.body), http.StatusOK)
		attempt := 1000 * (n + 1)
		check.Eventually(t, fmt.Sprintf("step %d (%v) is obeyed", n, step.body), func() bool {
			attempt++
			got := buy(attempt)
			return got.code() == step.want && (step.want != "" || got.status == http.StatusCreated)
		})
	}
}

// until asks again and again until it holds, and fails the test when it does
// not within the bound.
func until(t *testing.T, bound time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(bound); ; {
		if holds() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", bound, what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
