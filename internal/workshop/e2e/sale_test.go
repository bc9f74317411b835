//part:races
//part:mysql8

package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// rush starts several attempts of every user at one instant, over all instances, and returns each winner's order, which
// each instance then shows. One attempt of a user at most succeeds, the others name its order; losers hear SOLD_OUT.
func rush(t *testing.T, instances []*app, voucherID string, users []string, attempts int) map[string]model.Order {
	c, answers := newCrowd(instances[0], voucherID, instances[1:]...), make([]api.Answer, len(users)*attempts)
	for _, a := range instances {
		a.connect(t, len(answers)/len(instances)+1)
	}
	check.Volley(len(answers), func(n int) {
		user := users[n/attempts]
		answers[n] = c.insist(t, user)
		for _, a := range instances {
			if !answers[n].Sells() {
				break
			}
			order := model.Order{ID: remote.Decode[model.Order](t, answers[n]).ID, UserID: user}
			status := a.now(t, order).Status
			check.That(t, status == model.OrderProcessing || status == model.OrderUnpaid, "order %s is %s at once",
				order.ID, status)
			a.becomes(t, order, model.OrderUnpaid)
		}
	})
	told := map[string]bool{}
	made := map[int]model.OrderStatus{http.StatusCreated: model.OrderUnpaid, http.StatusAccepted: model.OrderProcessing}
	for n, got := range answers {
		user := users[n/attempts]
		order, _ := orderOf(t, got, voucherID, user)
		check.That(t, order.ID == c.told[user].ID, "%s heard of %q, and has %q", user, order.ID, c.told[user].ID)
		if got.Sells() {
			check.That(t, !told[user] && order.UserID == user && order.Status == made[got.Status] &&
				got.Header.Get("Location") == "/api/v1/orders/"+order.ID, "%s got %+v, %v", user, order, got.Header)
			told[user] = true
		}
	}
	return c.told
}

func users(a *app, from, count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = a.user(from + i)
	}
	return names
}

// sold waits until everything agrees, and checks that the winners, the rows and the audit tell the same.
func sold(t *testing.T, a *app, voucherID string, won map[string]model.Order, units int) {
	t.Helper()
	check.Equal(t, "users who were told yes", len(won), units)
	check.Equal(t, "live orders", a.quiet(t, voucherID).Database.LiveOrders, int64(units))
	rows := a.rows(t, voucherID)
	check.Equal(t, "rows", len(rows), units)
	for user, order := range won {
		check.Equal(t, "the order of "+user, rows[user].ID, order.ID)
	}
}

// A sale with a start gun, and what follows. The long version has processes of the shipped program, embedded too.
func TestSaleSellsExactlyItsStock(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, _ string, s settings) { sellsExactly(t, start(t, s), start(t, s)) })
	if !check.Faults {
		return
	}
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		s := onServers(t)
		sellsExactly(t, launch(t, s).app, launch(t, s).app)
	})
	t.Run("embedded", func(t *testing.T) { t.Parallel(); sellsExactly(t, launch(t, embeddedSettings(t)).app) })
}

func sellsExactly(t *testing.T, instances ...*app) {
	const attempts = 3
	buyers := check.Count(t, "REQUESTS", 300, 1500) / attempts
	stock, a := buyers*3/10, instances[0]
	voucher := a.onSale(t, stock)
	won := rush(t, instances, voucher.ID, users(a, 0, buyers), attempts)
	sold(t, a, voucher.ID, won, stock)
	for user, order := range won { // who repeats hears of the own order
		for _, instance := range instances {
			p := refused(t, instance.buy(t, voucher.ID, user), model.CodeAlreadyOrdered)
			check.That(t, p.OrderID == order.ID && p.OrderStatus == model.OrderUnpaid, "%s: %+v, want %s", user, p,
				order.ID)
		}
	}

	restock := "POST /admin/vouchers/" + voucher.ID + "/stock"
	got := object(t, a.does(t, restock, a.Admin(t), map[string]any{"delta": 5}), http.StatusOK)
	check.That(t, got["stock"] == float64(stock+5) && got["remaining"] == 5.0, "%v", got)
	for _, instance := range instances {
		check.Eventually(t, "the restock is obeyed", func() bool {
			return remote.Decode[model.Voucher](t,
				instance.once(t, "GET /vouchers/"+voucher.ID, "", nil)).Phase == model.PhaseLive
		})
	}
	maps.Copy(won, rush(t, instances, voucher.ID, users(a, buyers, 50), 2))
	sold(t, a, voucher.ID, won, stock+5)
	refused(t, a.does(t, restock, a.Admin(t), map[string]any{"stock": stock + 4}), model.CodeConflict)
	audit := a.Audit(t, voucher.ID)
	check.That(t, audit.Balanced && audit.Database.Stock == int64(stock+5), "audit after the refusal: %+v", audit)
}

// One user who clicks often has one order, at whichever instance, however late the clicks arrive.
func TestOneUserWithManyRequestsGetsOneOrder(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, _ string, s settings) {
		a := start(t, s)
		voucher, clicks := a.onSale(t, 10), check.Count(t, "REQUESTS", 100, 300)
		sold(t, a, voucher.ID, rush(t, []*app{a, start(t, s)}, voucher.ID, users(a, 0, 1), clicks), 1)
	})
}

// TestChangesAreObeyedByEveryInstance changes here and buys there. (That it takes a second, service/sale/cache tests.)
func TestChangesAreObeyedByEveryInstance(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	here, there := start(t, s), start(t, s)
	voucher := here.onSale(t, 1)
	there.buys(t, voucher.ID, here.user(0))
	check.Equal(t, "the second", there.buy(t, voucher.ID, here.user(1)).Code(), model.CodeSoldOut)
	in := func(d time.Duration) time.Time { return time.Now().Add(d).UTC() }
	const stock, fields = "POST /admin/vouchers/{id}/stock", "PATCH /admin/vouchers/{id}"
	for n, step := range []struct {
		call, member string
		value        any
		want         model.Code // empty: sold
	}{
		{stock, "delta", 1, ""},
		{stock, "stock", 3, ""},
		{stock, "delta", 50, ""},
		{fields, "state", "paused", model.CodePaused},
		{fields, "state", "published", ""},
		{fields, "begin_at", in(30 * time.Minute), model.CodeNotStarted},
		{fields, "begin_at", in(-time.Minute), ""},
		{fields, "end_at", in(-time.Second), model.CodeEnded},
		{fields, "end_at", in(time.Hour), ""},
		{fields, "state", "archived", model.CodeNotFound},
		{fields, "state", "published", ""},
	} {
		body := map[string]any{step.member: step.value}
		object(t, here.does(t, concrete(step.call, voucher.ID), here.Admin(t), body), http.StatusOK)
		attempt := 1000 * (n + 1)
		check.Eventually(t, fmt.Sprintf("step %d (%v) is obeyed", n, body), func() bool {
			attempt++
			got := there.buy(t, voucher.ID, here.user(attempt))
			return got.Code() == step.want && (step.want != "" || got.Status == http.StatusCreated)
		})
	}
}
