package e2e_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

func (a *app) user(n int) string { return a.prefix + strconv.Itoa(n) }

func (a *app) as(t testing.TB, user string) string {
	t.Helper()
	return a.Token(t, user, model.RoleUser)
}

// once makes a call, such as "POST /orders/1/cancel", which must be answered.
func (a *app) once(t testing.TB, call, token string, body any, headers ...string) api.Answer {
	t.Helper()
	method, path, _ := strings.Cut(call, " ")
	return a.Call(t, method, path, token, body, headers...)
}

func (a *app) does(t testing.TB, call, token string, body any, headers ...string) api.Answer {
	t.Helper()
	return remote.Insist(t, call, func(int) (api.Answer, error) {
		method, path, _ := strings.Cut(call, " ")
		return a.Send(method, path, token, body, headers...)
	})
}

func reads[T any](t testing.TB, a *app, path string) T {
	t.Helper()
	got := a.does(t, "GET "+path, a.Admin(t), nil)
	check.Need(t, got.Status == http.StatusOK, "GET %s: %d %s", path, got.Status, got.Body)
	return remote.Decode[T](t, got)
}

// buy asks for a unit until that is answered for good.
func (a *app) buy(t testing.TB, voucherID, user string) api.Answer {
	t.Helper()
	return a.does(t, "POST /vouchers/"+voucherID+"/seckill", a.as(t, user), nil)
}

func (a *app) mine(t testing.TB, voucherID, user string) []model.Order {
	t.Helper()
	got := a.does(t, "GET /orders?voucher_id="+voucherID, a.as(t, user), nil)
	check.Need(t, got.Status == http.StatusOK, "the orders of %s: %d %s", user, got.Status, got.Body)
	return remote.Decode[model.OrderPage](t, got).Items
}

func (a *app) patch(t testing.TB, voucherID string, fields any) model.Voucher {
	t.Helper()
	got := a.does(t, "PATCH /admin/vouchers/"+voucherID, a.Admin(t), fields)
	check.Need(t, got.Status == http.StatusOK, "change voucher %s: %d %s", voucherID, got.Status, got.Body)
	return remote.Decode[model.Voucher](t, got)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (a *app) onSale(t testing.TB, stock int) model.Voucher {
	t.Helper()
	return a.Create(t, map[string]any{"stock": stock})
}

func (a *app) rows(t testing.TB, voucherID string) map[string]model.Order {
	t.Helper()
	rows := map[string]model.Order{}
	for _, order := range a.orders(t, voucherID) {
		other, twice := rows[order.UserID]
		check.That(t, !twice, "user %s has two orders: %s and %s", order.UserID, order.ID, other.ID)
		rows[order.UserID] = order
	}
	return rows
}

func (a *app) orders(t testing.TB, voucherID string) map[string]model.Order {
	t.Helper()
	orders := map[string]model.Order{}
	for cursor := ""; ; {
		page := reads[model.OrderPage](t, a, "/admin/vouchers/"+voucherID+"/orders?limit=100&cursor="+cursor)
		for _, order := range page.Items {
			orders[order.ID] = order
		}
		if cursor = page.NextCursor; cursor == "" {
			return orders
		}
	}
}

// connect opens connections and lets each have an answer, so that as many requests at once need no new one. The program
// closes a silent connection after five seconds, and http.Transport opens some for later use.
func (a *app) connect(t testing.TB, count int) {
	t.Helper()
	const atOnce = 50 // more would themselves wait too long to be written
	var (
		opening sync.WaitGroup
		slots   = make(chan struct{}, atOnce)
		answers = make([]*http.Response, count)
	)
	for n := range answers {
		slots <- struct{}{}
		opening.Go(func() {
			defer func() { <-slots }()
			var err error
			if answers[n], err = a.Client.Get(a.URL + "/livez"); err != nil { //nolint:bodyclose // below
				t.Errorf("connection %d: %v", n, err)
			}
		})
	}
	opening.Wait()
	for _, answer := range answers {
		if answer == nil {
			continue
		}
		// Only now is the connection free for another request: all are there.
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
}

func (a *app) refuses(t testing.TB, voucherID, user string) {
	t.Helper()
	got, err := a.Place(t, voucherID, user)
	check.That(t, err == nil && got.Code() == model.CodeUnavailable && got.Header.Get("Retry-After") != "",
		"%s buys: %d %s %v, want UNAVAILABLE", user, got.Status, got.Body, err)
}

// accepted buys one unit, and fails the test when that is not promised in the end.
func (a *app) accepted(t testing.TB, voucherID, user string) model.Order {
	t.Helper()
	got := a.buy(t, voucherID, user)
	order, ok := orderOf(t, got, voucherID, user)
	check.Need(t, ok && got.Status != http.StatusCreated, "%s buys: %d %s, want 202", user, got.Status, got.Body)
	return order
}

// buysAll has so many users buy one unit each, and returns the orders with their users.
func (a *app) buysAll(t testing.TB, voucherID string, users []string) map[string]string {
	t.Helper()
	promised := map[string]string{}
	for _, user := range users {
		promised[a.accepted(t, voucherID, user).ID] = user
	}
	return promised
}

// stores is buysAll of n users from one on, and waits until each order has its row.
func (a *app) stores(t testing.TB, voucherID string, from, n int) map[string]string {
	t.Helper()
	bought := a.buysAll(t, voucherID, users(a, from, n))
	for id, user := range bought {
		a.becomes(t, model.Order{ID: id, UserID: user}, model.OrderUnpaid)
	}
	return bought
}

// becomes waits for what becomes of an order; the answer comes when it does.
func (a *app) becomes(t testing.TB, order model.Order, want model.OrderStatus) (became model.Order) {
	t.Helper()
	token := a.as(t, order.UserID)
	check.Eventually(t, "order "+order.ID+" is more than a promise", func() bool {
		got := a.Insist(t, http.MethodGet, "/orders/"+order.ID+"?wait=25s", token, nil)
		check.Need(t, got.Status == http.StatusOK, "order %s: %d %s", order.ID, got.Status, got.Body)
		became = remote.Decode[model.Order](t, got)
		return became.Status != model.OrderProcessing
	})
	check.That(t, became.Status == want, "order %s is %s (%s), want %s", order.ID, became.Status, became.Reason, want)
	return became
}

func (a *app) cancels(t testing.TB, order model.Order) {
	t.Helper()
	got := a.Insist(t, http.MethodPost, "/orders/"+order.ID+"/cancel", a.as(t, order.UserID), nil)
	check.That(t, got.Status == http.StatusOK && remote.Decode[model.Order](t, got).Status == model.OrderCanceled,
		"cancel %s: %d %s", order.ID, got.Status, got.Body)
}

func (a *app) quiet(t testing.TB, voucherID string) (audit model.Audit) {
	t.Helper()
	check.Patiently(t, "the audit of "+voucherID+" is balanced and quiet", func() bool {
		audit = a.Audit(t, voucherID)
		return settled(audit)
	})
	return audit
}

// settled reports whether all agrees and nothing is under way, not even what is younger than 5 s and so not balanced.
func settled(audit model.Audit) bool {
	return audit.Balanced && (audit.Queue == nil || audit.Queue.Pending == 0) &&
		(audit.Redis == nil || audit.Redis.State == string(model.CopyOpen) && audit.Redis.Reserved == 0 &&
			audit.Redis.Remaining == audit.Database.Remaining && audit.Redis.Buyers == audit.Database.LiveOrders)
}

// conserved waits until a voucher is quiet, checks invariants 1 to 4 by id, and returns all orders, promised ones too.
func (a *app) conserved(t testing.TB, voucherID string, promised map[string]string) map[string]model.Order {
	t.Helper()
	audit := a.quiet(t, voucherID)
	orders := a.orders(t, voucherID)
	live := map[string]string{}
	for id, order := range orders {
		if !order.Live() {
			continue
		}
		other, twice := live[order.UserID]
		check.That(t, !twice, "%s has two live orders: %s and %s", order.UserID, id, other)
		live[order.UserID] = id
	}
	d := audit.Database
	check.That(t, d.LiveOrders == int64(len(live)) && d.Stock == d.Remaining+d.LiveOrders,
		"%d live orders, and the audit says %+v", len(live), d)
	for id, user := range promised {
		order := orders[id]
		check.That(t, order.UserID == user && order.Status != model.OrderProcessing, "%s: %s is %+v", user, id, order)
	}
	return orders
}

func unbroken(t testing.TB, orders map[string]model.Order, promised map[string]string) {
	t.Helper()
	for id := range promised {
		order := orders[id]
		check.That(t, order.Status == model.OrderUnpaid, "order %s was promised and is %q (%s)", id, order.Status,
			order.Reason)
	}
}

// kept waits until a voucher is quiet, and checks that it is conserved and every promise is kept.
func (a *app) kept(t testing.TB, voucherID string, promised map[string]string) map[string]model.Order {
	t.Helper()
	orders := a.conserved(t, voucherID, promised)
	unbroken(t, orders, promised)
	return orders
}

// sellsOn lets new users buy the rest, checks that exactly everything was sold, and returns what was promised.
func (a *app) sellsOn(t testing.TB, voucherID string, from int) map[string]string {
	t.Helper()
	promised, n := map[string]string{}, from
	check.Eventually(t, "voucher "+voucherID+" sells to the last unit", func() bool {
		for ; ; n++ {
			got := a.buy(t, voucherID, a.user(n))
			order, ok := orderOf(t, got, voucherID, a.user(n))
			if !ok {
				check.Need(t, got.Code() == model.CodeSoldOut, "it does not sell on: %d %s", got.Status, got.Body)
				return a.Audit(t, voucherID).Database.Remaining == 0 // a local copy may say so for a second
			}
			promised[order.ID] = order.UserID
		}
	})
	a.kept(t, voucherID, promised)
	d := a.Audit(t, voucherID).Database
	check.That(t, d.Remaining == 0 && d.LiveOrders == d.Stock, "stock was lost: %+v", d)
	return promised
}

// sellsOut lowers a large stock, so that only some units are left, and lets new users buy them.
func (a *app) sellsOut(t testing.TB, voucherID string) {
	t.Helper()
	const more = 5
	stock := map[string]any{"stock": a.Audit(t, voucherID).Database.LiveOrders + more}
	got := a.does(t, "POST /admin/vouchers/"+voucherID+"/stock", a.Admin(t), stock)
	check.Need(t, got.Status == http.StatusOK, "lower the stock: %d %s", got.Status, got.Body)
	check.Equal(t, "units sold to the last", len(a.sellsOn(t, voucherID, 900_000_000)), more)
}

func (a *app) rebuild(t *testing.T, voucherID string) {
	t.Helper()
	got := a.does(t, "POST /admin/vouchers/"+voucherID+"/rebuild", a.Admin(t), nil)
	check.Need(t, got.Status == http.StatusAccepted, "rebuild: %d %s", got.Status, got.Body)
}

func (a *app) opens(t *testing.T, voucherID string) {
	t.Helper()
	check.Patiently(t, "the hot copy is open",
		func() bool { return a.Audit(t, voucherID).Redis.State == string(model.CopyOpen) })
}

func (a *app) later(t *testing.T, method, path, token string) <-chan api.Answer {
	t.Helper()
	done := make(chan api.Answer, 1)
	go func() {
		got, err := a.Send(method, path, token, nil)
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	return done
}

func owners(orders map[string]model.Order) map[string][]string {
	owns := map[string][]string{}
	for _, id := range sorted(orders) {
		if order := orders[id]; order.Live() {
			owns[order.UserID] = append(owns[order.UserID], id)
		}
	}
	return owns
}

func (a *app) reportOf(t testing.TB, voucherID string) model.Report {
	t.Helper()
	return reads[model.Report](t, a, "/admin/vouchers/"+voucherID+"/report")
}
