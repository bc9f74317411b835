package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"seckill/model"
)

// requestsAtOnce is how many requests come at one instant. A request that is older than the lock's wait and four seconds is
// answered 503, which no sale may hear: the short version has no more than a machine answers in that time that is busy
// with the tests of another package. Long version: make rush.
func requestsAtOnce(t *testing.T) int {
	t.Helper()
	return count(t, "REQUESTS", 1000)
}

// rush lets every user make his attempts at once, spread over the instances,
// and returns every answer by user. All start at the same instant.
func rush(t *testing.T, instances []*app, voucherID string, users []string, attempts int) map[string][]answer {
	t.Helper()
	var (
		ready, done sync.WaitGroup
		gun         = make(chan struct{})
		mu          sync.Mutex
		answers     = map[string][]answer{}
	)
	for _, a := range instances {
		a.connect(t, len(users)*attempts/len(instances)+1)
	}
	for n, user := range users {
		token := instances[0].token(t, user, model.RoleUser)
		for attempt := range attempts {
			a := instances[(n+attempt)%len(instances)]
			ready.Add(1)
			done.Go(func() {
				ready.Done()
				<-gun
				got, err := send(a.client, http.MethodPost, a.url+"/api/v1/vouchers/"+voucherID+"/seckill", token, nil)
				if err != nil {
					t.Errorf("%s: %v", user, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				answers[user] = append(answers[user], got)
			})
		}
	}
	ready.Wait()
	close(gun)
	done.Wait()
	return answers
}

func users(a *app, from, count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = a.user(from + i)
	}
	return names
}

// winners checks every answer of a rush and returns the order of each winner.
func winners(t *testing.T, answers map[string][]answer) map[string]model.Order {
	t.Helper()
	won := map[string]model.Order{}
	for user, all := range answers {
		for _, got := range all {
			if got.status != http.StatusCreated {
				continue
			}
			order := decode[model.Order](t, got)
			if before, twice := won[user]; twice {
				t.Errorf("%s was told yes twice: %s and %s", user, before.ID, order.ID)
			}
			if order.UserID != user || order.Status != model.OrderUnpaid {
				t.Errorf("%s got %+v", user, order)
			}
			if want := "/api/v1/orders/" + order.ID; got.header.Get("Location") != want {
				t.Errorf("Location %q, want %q", got.header.Get("Location"), want)
			}
			won[user] = order
		}
	}
	for user, all := range answers {
		for _, got := range all {
			switch got.code() {
			case model.CodeAlreadyOrdered:
				if p := decode[problem](t, got); p.OrderID != won[user].ID {
					t.Errorf("%s hears of order %q, has %q", user, p.OrderID, won[user].ID)
				}
			case model.CodeSoldOut:
				if _, ok := won[user]; ok {
					t.Errorf("%s has an order and was told SOLD_OUT", user)
				}
			case model.CodeLockBusy:
			default:
				if got.status != http.StatusCreated {
					t.Errorf("%s: %d %s", user, got.status, got.body)
				}
			}
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

// The program runs in processes of its own, as it is shipped, one sale after
// another and before the parallel tests: nobody may hear anything but the sale's
// own answers, so the machine must not be busy with thousands of requests of
// somebody else. Smaller sales run in this process, under the race detector.
//
//nolint:paralleltest // see above
func TestSaleSellsExactlyItsStock(t *testing.T) {
	for _, tt := range []struct {
		name      string
		instances int
		settings  func(*testing.T) settings
	}{
		{"one instance", 1, onServers},
		{"two instances", 2, onServers},
		{"embedded", 1, embeddedSettings},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.settings(t)
			instances := make([]*app, tt.instances)
			for i := range instances {
				instances[i] = launch(t, s).app
			}
			a := instances[0]
			const attempts = 3
			buyers := requestsAtOnce(t) / attempts
			stock := buyers * 3 / 10
			voucher := a.onSale(t, stock)
			won := winners(t, rush(t, instances, voucher.ID, users(a, 0, buyers), attempts))
			sold(t, a, voucher.ID, won, stock)

			t.Run("winners who repeat hear of their own order", func(t *testing.T) {
				for user, order := range won {
					for _, instance := range instances {
						got := instance.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.token(t, user, model.RoleUser), nil)
						p := decode[problem](t, got)
						if got.status != http.StatusConflict || p.Code != model.CodeAlreadyOrdered || p.OrderID != order.ID || p.OrderStatus != model.OrderUnpaid {
							t.Fatalf("%s: %d %s, want ALREADY_ORDERED with %s", user, got.status, got.body, order.ID)
						}
					}
				}
			})
			t.Run("restock by 5 sells 5 more", func(t *testing.T) {
				got := a.call(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/stock", a.admin(t), map[string]any{"delta": 5})
				if v := decode[model.Voucher](t, got); got.status != http.StatusOK || v.Stock != int64(stock)+5 || v.Remaining != 5 {
					t.Fatalf("restock: %d %s", got.status, got.body)
				}
				changed := time.Now()
				for _, instance := range instances {
					obeyed(t, changed, "the restock", func() bool {
						v := decode[model.Voucher](t, instance.call(t, http.MethodGet, "/vouchers/"+voucher.ID, "", nil))
						return v.Phase == model.PhaseLive
					})
				}
				more := winners(t, rush(t, instances, voucher.ID, users(a, buyers, 100), 2))
				maps.Copy(more, won)
				sold(t, a, voucher.ID, more, stock+5)
			})
			t.Run("stock below what is sold is refused", func(t *testing.T) {
				got := a.call(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/stock", a.admin(t), map[string]any{"stock": stock + 4})
				if got.status != http.StatusConflict || got.code() != model.CodeConflict {
					t.Fatalf("%d %s, want CONFLICT", got.status, got.body)
				}
				if audit := a.audit(t, voucher.ID); !audit.Balanced || audit.Database.Stock != int64(stock)+5 {
					t.Errorf("audit after the refusal: %+v", audit)
				}
			})
		})
	}
}

func TestOneUserWithManyRequestsGetsOneOrder(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t))
	voucher := a.onSale(t, 10)
	won := winners(t, rush(t, []*app{a}, voucher.ID, users(a, 0, 1), 300))
	sold(t, a, voucher.ID, won, 1)
}

func TestChangesAreObeyedByEveryInstanceWithinASecond(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	here, there := start(t, s), start(t, s)
	voucher := here.onSale(t, 1)
	buy := func(n int) answer {
		return there.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", there.token(t, here.user(n), model.RoleUser), nil)
	}
	if got := buy(0); got.status != http.StatusCreated {
		t.Fatalf("first: %d %s", got.status, got.body)
	}
	if got := buy(1); got.code() != model.CodeSoldOut {
		t.Fatalf("second: %d %s", got.status, got.body)
	}
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
		got := here.call(t, step.method, step.path, here.admin(t), step.body)
		if got.status != http.StatusOK {
			t.Fatalf("%s %s %v: %d %s", step.method, step.path, step.body, got.status, got.body)
		}
		changed, attempt := time.Now(), 0
		obeyed(t, changed, fmt.Sprintf("step %d (%v)", n, step.body), func() bool {
			attempt++
			got = buy(1000*(n+1) + attempt)
			return got.code() == step.want && (step.want != "" || got.status == http.StatusCreated)
		})
	}
}

// obeyed asks until an answer shows a change. One to a request that was made more than a second after the change has to.
func obeyed(t *testing.T, changed time.Time, what string, shows func() bool) {
	t.Helper()
	until(t, settlement, what+" is obeyed", func() bool {
		asked := time.Now()
		if shows() {
			return true
		}
		if late := asked.Sub(changed); late > time.Second {
			t.Fatalf("%s is not obeyed %v later", what, late)
		}
		return false
	})
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
