//go:build faults

//part:siege
package e2e_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// hoard is a sale of few units to as many hoarders, who never pay and ask sixteen times a second, and as many honest
// buyers, who ask once a second and pay at once. They come when the hoarders have all units.
const (
	hoardUnits  = 50
	hoarderEach = time.Second / 16
	honestEach  = time.Second
	// honestShare is what the honest ones are to have after two payment windows, if the cool-down lasts as long as one.
	honestShare = 0.9
)

// As many accounts as there are units hold them, never pay, and ask again as soon as a unit comes back. With a
// cool-down they do not get it. How many units the honest buyers get without one is printed beside it.
//
//nolint:paralleltest // as TestSiege
func TestHoarders(t *testing.T) {
	window := time.Duration(check.Count(t, "SIEGE_WINDOW", 5, 5)) * time.Second
	for _, mode := range siegeWords("SIEGE_MODES", "sync async") {
		t.Run(mode, func(t *testing.T) {
			w := newTown(t, mode, nil)
			with, without := w.hoard(window, window.String()), w.hoard(window, "0s")
			t.Logf("of %d units %d hoarders left %d to %d honest buyers within two payment windows of %v, and %d where the cool-down lasts as long as one",
				hoardUnits, hoardUnits, without, hoardUnits, window, with)
			check.That(t, with >= honestShare*hoardUnits, "with a cool-down honest buyers got %d of %d units", with, hoardUnits)
		})
	}
}

// hoard lets two payment windows pass, and tells how many units the honest buyers have bought in them.
func (w *town) hoard(window time.Duration, cooldown string) (honest int) {
	w.t.Helper()
	v := w.Create(w.t, map[string]any{"stock": hoardUnits, "payment_window": window.String(), "cooldown": cooldown})
	check.Eventually(w.t, "the voucher is loaded", func() bool { return w.Audit(w.t, v.ID).Balanced })
	ctx, end := context.WithTimeout(w.t.Context(), 2*window+window/2) // real time: what is measured; orders are counted by their own
	defer end()
	hoarders := w.askOften(ctx, v.ID, "hoarder", hoarderEach, func(string) bool { return true })
	check.Eventually(w.t, "the hoarders have all units", func() bool { return w.Audit(w.t, v.ID).Database.LiveOrders == hoardUnits })
	others := w.askOften(ctx, v.ID, "honest", honestEach, func(user string) bool { w.settle(ctx, v.ID, user); return false })
	hoarders()
	others()
	check.Must(w.t, w.db.QueryRowContext(w.t.Context(), `SELECT COUNT(*) FROM orders WHERE voucher_id = ? AND status = 'paid' AND created_at <=
		(SELECT MIN(created_at) + INTERVAL ? MICROSECOND FROM orders WHERE voucher_id = ?)`, v.ID, 2*window.Microseconds(), v.ID).Scan(&honest))
	w.vouchers = append(w.vouchers, v.ID)
	w.conservedAll()
	return honest
}

// askOften lets users try to buy, each again and again until ctx ends, or until the user has bought and does not go on.
// The function that it returns waits for them.
func (w *town) askOften(ctx context.Context, voucherID, who string, each time.Duration, bought func(user string) (goesOn bool)) (wait func()) {
	client := clientsFrom(w.t, fmt.Sprintf("127.0.67.%d%%d", len(who)), 1, hoardUnits)[0]
	var all sync.WaitGroup
	for n := range hoardUnits {
		user := fmt.Sprint(who, n)
		bearer := w.Token(w.t, user, model.RoleUser)
		all.Go(func() {
			for at := time.Now().Add(each * time.Duration(n) / hoardUnits); ; at = at.Add(each) {
				select {
				case <-time.After(time.Until(at)): // real time: of users
				case <-ctx.Done():
					return
				}
				got, err := api.Send(ctx, client, http.MethodPost, w.URL+"/api/v1/vouchers/"+voucherID+"/seckill", bearer, nil)
				if err == nil && got.Sells() && !bought(user) {
					return
				}
			}
		})
	}
	return all.Wait
}

// settle pays the order of a user as soon as it has a row.
func (w *town) settle(ctx context.Context, voucherID, user string) {
	const pays = "UPDATE orders SET status = 'paid', paid_at = UTC_TIMESTAMP(6) WHERE voucher_id = ? AND user_id = ? AND status = 'unpaid'"
	for paid := int64(0); paid == 0 && ctx.Err() == nil; {
		if result, err := w.db.ExecContext(ctx, pays, voucherID, user); err == nil {
			paid, _ = result.RowsAffected()
		}
		if paid == 0 {
			<-time.After(10 * time.Millisecond) // real time: the row may be on its way
		}
	}
}

const (
	// flooding is on how many connections a route is flooded, and usersEach how many users take turns on each.
	flooding, usersEach = 100, 20
	// keptBesideWrites is what a flood of writes leaves another sale at least, of what a flood of readings leaves it.
	keptBesideWrites = 0.7
	// floodBuyers buy at once meanwhile. A part lasts floodPart, and of each kind there are floodRounds, by turns: up to
	// mostRounds while all of them together are too few, because a busy machine gives one part more than the other.
	floodBuyers = 16
	floodPart   = 500 * time.Millisecond
	floodRounds = 3
	mostRounds  = 20
)

// floodTown is what the floods of writes work with.
type floodTown struct {
	*town

	sold, drawn, hot string // vouchers: sold out with a waitlist, with a draw, and one that sells
	orders           []model.Order
	next             atomic.Int64
	clients          []*http.Client
	tokens           [][]string // of the users on each connection
}

// floodCall is what a connection sends in its turn.
type floodCall struct {
	method, path, token string
	body                any
	headers             []string
}

// flood is of one operation.
type flood struct {
	operation string
	turn      func(n, turn int) floodCall
}

// floods are of all that writes, but for administrators'.
func (w *floodTown) floods() []flood {
	hooks := check.Value(payment.NewSignatures([]string{hookSecret}))(w.t)
	plain := func(method, path string, body any) func(n, turn int) floodCall {
		return func(n, turn int) floodCall { return floodCall{method, path, w.tokens[n][turn%usersEach], body, nil} }
	}
	next := func() (int64, model.Order) {
		n := w.next.Add(1)
		return n, w.orders[n%int64(len(w.orders))]
	}
	order := func(what string) func(int, int) floodCall {
		return func(int, int) floodCall {
			_, o := next()
			return floodCall{http.MethodPost, "/orders/" + o.ID + "/" + what, w.Token(w.t, o.UserID, model.RoleUser), nil, nil}
		}
	}
	return []flood{
		{"seckill", plain(http.MethodPost, "/vouchers/"+w.hot+"/seckill", nil)},
		{"seckill", plain(http.MethodPost, "/vouchers/"+w.drawn+"/seckill", nil)}, // an entry
		{"join-waitlist", plain(http.MethodPost, "/vouchers/"+w.sold+"/waitlist", nil)},
		{"leave-waitlist", plain(http.MethodDelete, "/vouchers/"+w.hot+"/waitlist", nil)}, // by who has no place
		{"leave-waitlist", func(n, turn int) floodCall { // half of them have one
			method := []string{http.MethodPost, http.MethodDelete}[turn%2]
			return floodCall{method, "/vouchers/" + w.sold + "/waitlist", w.tokens[n][turn/2%usersEach], nil, nil}
		}},
		{"payment-webhook", func(int, int) floodCall {
			n, o := next()
			body := fmt.Sprintf(`{"type":"payment.succeeded","data":{"payment_id":"none","order_id":%q,"amount":1000,"currency":"CNY"}}`, o.ID)
			var headers []string
			for name, values := range check.Value(hooks.Sign(fmt.Sprint("msg", n), time.Now(), []byte(body)))(w.t) {
				headers = append(headers, name+": "+values[0])
			}
			return floodCall{http.MethodPost, "/webhooks/payments", "", body, headers}
		}},
		{"pay-order", order("pay")},
		{"cancel-order", order("cancel")},
		{"register", func(int, int) floodCall {
			n, _ := next()
			return floodCall{http.MethodPost, "/auth/register", "", fmt.Sprintf(`{"username":"u%d","password":"a long password"}`, n), nil}
		}},
		{"changePassword", plain(http.MethodPost, "/auth/password", `{"current":"a long password","new":"another password"}`)},
	}
}

// besides is how many orders another sale accepts in one part, beside a flood.
func (w *floodTown) besides(turn func(n, turn int) floodCall) (sold int) {
	ctx, stop := context.WithCancel(w.t.Context())
	var connections sync.WaitGroup
	var begun atomic.Int64
	for n := range flooding {
		connections.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r := turn(n, i)
				if i == 0 {
					begun.Add(1)
				}
				_, err := api.Send(ctx, w.clients[n%streets], r.method, w.URL+"/api/v1"+r.path, r.token, r.body, r.headers...)
				if err != nil && ctx.Err() == nil {
					w.t.Errorf("%s %s: %v", r.method, r.path, err)
					return
				}
			}
		})
	}
	check.Eventually(w.t, "the flood has begun", func() bool { return begun.Load() == flooding })
	before := w.throng.yes.Load()
	w.throng.closed(floodBuyers, floodPart)
	stop()
	connections.Wait()
	return int(w.throng.yes.Load() - before)
}

// TestNoWriteStarvesASale floods each route that writes, except for administrators', with its rows locked by another
// program and not. Another voucher's sale keeps most of what the same flood of readings of the voucher leaves it.
//
//nolint:paralleltest // what it measures is not for a machine that is busy with other tests
func TestNoWriteStarvesASale(t *testing.T) {
	w := &floodTown{town: newTown(t, "sync", settings{
		"SECKILL_PAYMENT_SIMULATOR": "on", "SECKILL_DATA_DIR": t.TempDir(), "SECKILL_CODE_KEY": secret, "SECKILL_WEBHOOK_SECRETS": hookSecret,
	})}
	w.throng = w.newThrong()
	w.prepare()
	w.walksAll()
	w.throng.closed(floodBuyers, floodPart) // everything is warm
	for _, one := range w.floods() {
		for _, held := range []bool{true, false} {
			tx := check.Value(w.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
			if held {
				w.hold(tx)
			}
			var reading, writing int
			starved := func() bool { return float64(writing) < keptBesideWrites*float64(reading) }
			for round := 0; round < floodRounds || round < mostRounds && starved(); round++ {
				reading += w.besides(func(int, int) floodCall { return floodCall{method: http.MethodGet, path: "/vouchers/" + w.sold} })
				writing += w.besides(one.turn)
			}
			check.Must(t, tx.Rollback())
			t.Logf("%s, held %v: %d orders beside readings, %d beside it", one.operation, held, reading, writing)
			check.That(t, !starved(), "%s, held %v: the sale kept %d of %d", one.operation, held, writing, reading)
		}
	}
	w.conservedAll()
}

// hold locks the rows of the flooded vouchers and orders, and no other.
func (w *floodTown) hold(tx *sql.Tx) {
	lock := func(table, column string, ids ...any) {
		statement := fmt.Sprintf("UPDATE %s SET %[2]s = %[2]s WHERE %[2]s IN (?%s)", table, column, strings.Repeat(", ?", len(ids)-1))
		check.Must(w.t, check.ErrorOf(tx.ExecContext(w.t.Context(), statement, ids...)))
	}
	lock("vouchers", "id", w.sold, w.drawn, w.hot)
	lock("draws", "voucher_id", w.drawn)
	var orders []any
	for _, o := range w.orders {
		orders = append(orders, o.ID)
	}
	lock("orders", "id", orders...)
}

// prepare makes the vouchers, the orders and the users of the floods.
func (w *floodTown) prepare() {
	w.sold = w.Create(w.t, map[string]any{"stock": 400, "waitlist": true}).ID
	w.drawn = w.Create(w.t, map[string]any{"stock": 10, "allocation": "draw"}).ID
	w.hot = w.onSale(w.t, plenty).ID
	w.vouchers = append(w.vouchers, w.sold, w.hot)
	for n := range 400 {
		got := w.Insist(w.t, http.MethodPost, "/vouchers/"+w.sold+"/seckill", w.Token(w.t, fmt.Sprint("owner", n), model.RoleUser), nil)
		w.orders = append(w.orders, remote.Decode[model.Order](w.t, got))
	}
	for n := range flooding {
		var tokens []string
		for user := range usersEach {
			tokens = append(tokens, w.Token(w.t, fmt.Sprintf("flood%d-%d", n, user), model.RoleUser))
		}
		w.tokens = append(w.tokens, tokens)
	}
	w.clients = clientsFrom(w.t, "127.0.3.%d", streets, flooding)
}

// walksAll checks that each route that writes is flooded. A login writes nothing.
func (w *floodTown) walksAll() {
	var document struct {
		Paths map[string]map[string]map[string]any
	}
	check.Must(w.t, json.Unmarshal(check.Value(w.Get("/api/v1/openapi.json"))(w.t).Body, &document))
	all := w.floods()
	for path, operations := range document.Paths {
		for method, operation := range operations {
			id := fmt.Sprint(operation["operationId"])
			flooded := slices.ContainsFunc(all, func(f flood) bool { return f.operation == id })
			check.That(w.t, flooded || strings.EqualFold(method, http.MethodGet) || operation["x-least-level"] != nil || id == "login",
				"%s %s writes, and there is no flood of it", method, path)
		}
	}
}

// withDescriptors makes a program that may have so many files open, connections among them.
func withDescriptors(t *testing.T, program string, descriptors int) string {
	path := filepath.Join(t.TempDir(), "seckill")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", descriptors, program)
	check.Must(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}

// TestDrippingHeadersAreCut: a request whose header arrives byte by byte has some seconds for it.
func TestDrippingHeadersAreCut(t *testing.T) {
	t.Parallel()
	a := start(t, embeddedSettings(t))
	c := check.Value((&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(a.URL, "http://")))(t)
	defer c.Close()
	check.Value(c.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ")))(t)
	check.Eventually(t, "the connection is cut", func() bool {
		_, err := c.Write([]byte("a"))
		return err != nil
	})
}
