//go:build faults

//part:siege

package siege_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/model"
)

const (
	// flooding is on how many connections a route is flooded, and usersEach how many users take turns on each.
	flooding, usersEach = 100, 20
	// keptBesideWrites is what a flood of writes leaves another sale at least, of what a flood of readings leaves it.
	keptBesideWrites = 0.7
	// floodBuyers buy at once meanwhile. A part lasts floodPart, and of each kind there are floodRounds, by turns: up to mostRounds
	// while all of them together are too few, because a busy machine gives one part more than the other.
	floodBuyers = 16
	floodPart   = 500 * time.Millisecond
	floodRounds = 3
	mostRounds  = 20
)

// writes is what the floods of writes work with.
type writes struct {
	*town

	sold, drawn, hot string // vouchers: sold out with a waitlist, with a draw, and one that sells
	orders           []model.Order
	hooks            *payment.Signatures
	next             atomic.Int64
	clients          []*http.Client
	tokens           [][]string // of the users on each connection
}

// request makes the request of a connection's turn.
type request func(n int, turn int64) (method, path, token string, body any, headers []string)

// flood is of one operation.
type flood struct {
	operation string
	do        request
}

// floods are of all that writes, but for administrators'.
func (w *writes) floods() []flood {
	plain := func(method, path string, body any) request {
		return func(n int, turn int64) (string, string, string, any, []string) {
			return method, path, w.tokens[n][turn%usersEach], body, nil
		}
	}
	order := func(what string) request {
		return func(int, int64) (string, string, string, any, []string) {
			o := w.orders[w.next.Add(1)%int64(len(w.orders))]
			return http.MethodPost, "/orders/" + o.ID + "/" + what, w.Token(w.t, o.UserID, model.RoleUser), nil, nil
		}
	}
	return []flood{
		{"seckill", plain(http.MethodPost, "/vouchers/"+w.hot+"/seckill", nil)},
		{"seckill", plain(http.MethodPost, "/vouchers/"+w.drawn+"/seckill", nil)}, // an entry
		{"join-waitlist", plain(http.MethodPost, "/vouchers/"+w.sold+"/waitlist", nil)},
		{"leave-waitlist", plain(http.MethodDelete, "/vouchers/"+w.hot+"/waitlist", nil)}, // by who has no place
		{"leave-waitlist", func(n int, turn int64) (string, string, string, any, []string) { // half of them have one
			return []string{http.MethodPost, http.MethodDelete}[turn%2], "/vouchers/" + w.sold + "/waitlist", w.tokens[n][turn/2%usersEach], nil, nil
		}},
		{"payment-webhook", func(int, int64) (string, string, string, any, []string) {
			turn := w.next.Add(1)
			o := w.orders[turn%int64(len(w.orders))]
			body := fmt.Sprintf(`{"type":"payment.succeeded","data":{"payment_id":"none","order_id":%q,"amount":1000,"currency":"CNY"}}`, o.ID)
			var headers []string
			for name, values := range check.Value(w.hooks.Sign(fmt.Sprint("msg", turn), time.Now(), []byte(body)))(w.t) {
				headers = append(headers, name+": "+values[0])
			}
			return http.MethodPost, "/webhooks/payments", "", body, headers
		}},
		{"pay-order", order("pay")},
		{"cancel-order", order("cancel")},
		{"register", func(int, int64) (string, string, string, any, []string) {
			return http.MethodPost, "/auth/register", "", fmt.Sprintf(`{"username":"u%d","password":"a long password"}`, w.next.Add(1)), nil
		}},
		{"changePassword", plain(http.MethodPost, "/auth/password", `{"current":"a long password","new":"another password"}`)},
	}
}

// besides is how many orders another sale accepts in one part, beside a flood.
func (w *writes) besides(do request) (sold int) {
	ctx, stop := context.WithCancel(w.t.Context())
	var connections sync.WaitGroup
	var begun atomic.Int64
	for n := range flooding {
		connections.Go(func() {
			for turn := int64(0); ctx.Err() == nil; turn++ {
				method, path, token, body, headers := do(n, turn)
				if turn == 0 {
					begun.Add(1)
				}
				_, err := api.Send(ctx, w.clients[n%len(w.clients)], method, w.URL+"/api/v1"+path, token, body, headers...)
				if err != nil && ctx.Err() == nil {
					w.t.Errorf("%s %s: %v", method, path, err)
					return
				}
			}
		})
	}
	check.Eventually(w.t, "the flood has begun", func() bool { return begun.Load() == flooding })
	before := w.crowd.yes.Load()
	w.crowd.closed(w.t.Context(), floodBuyers, floodPart)
	stop()
	connections.Wait()
	return int(w.crowd.yes.Load() - before)
}

// TestNoWriteStarvesASale floods each route that writes, except for administrators', with its rows locked by another program and not. Another
// voucher's sale keeps most of what the same flood of readings of the voucher leaves it.
//
//nolint:paralleltest // what it measures is not for a machine that is busy with other tests
func TestNoWriteStarvesASale(t *testing.T) {
	const hookSecret = "a secret of the provider's webhooks"
	w := &writes{town: build(t, "sync", "SECKILL_PAYMENT_SIMULATOR=on", "SECKILL_DATA_DIR="+t.TempDir(), "SECKILL_CODE_KEY="+secret, "SECKILL_WEBHOOK_SECRETS="+hookSecret)}
	w.hooks = check.Value(payment.NewSignatures([]string{hookSecret}))(t)
	w.crowd = w.newCrowd()
	w.prepare()
	db := check.Value(sql.Open("mysql", w.dsn))(t)
	defer db.Close()
	all := w.floods()
	w.walksAll(all)
	read := func(n int, _ int64) (string, string, string, any, []string) {
		return http.MethodGet, "/vouchers/" + w.sold, "", nil, nil
	}
	w.crowd.closed(t.Context(), floodBuyers, floodPart) // everything is warm
	for _, one := range all {
		for _, held := range []bool{true, false} {
			tx := check.Value(db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(t)
			if held {
				w.hold(tx)
			}
			var reading, writing int
			starved := func() bool { return float64(writing) < keptBesideWrites*float64(reading) }
			for round := 0; round < floodRounds || round < mostRounds && starved(); round++ {
				reading += w.besides(read)
				writing += w.besides(one.do)
			}
			check.Must(t, tx.Rollback())
			t.Logf("%s, held %v: %d orders beside readings, %d beside it", one.operation, held, reading, writing)
			if starved() {
				t.Errorf("%s, held %v: the sale kept %.2f", one.operation, held, float64(writing)/float64(reading))
			}
		}
	}
	w.conserved()
}

// hold locks the rows of the flooded vouchers and orders, and no other.
func (w *writes) hold(tx *sql.Tx) {
	lock := func(table, column string, ids ...any) {
		statement := fmt.Sprintf("UPDATE %s SET %[2]s = %[2]s WHERE %[2]s IN (?%s)", table, column, strings.Repeat(", ?", len(ids)-1))
		check.Must(w.t, check.ErrorOf(tx.ExecContext(w.t.Context(), statement, ids...)))
	}
	lock("vouchers", "id", w.sold, w.drawn, w.hot)
	lock("draws", "voucher_id", w.drawn)
	orders := make([]any, len(w.orders))
	for i, o := range w.orders {
		orders[i] = o.ID
	}
	lock("orders", "id", orders...)
}

// prepare makes the vouchers, the orders and the users of the floods.
func (w *writes) prepare() {
	w.sold = w.Create(w.t, map[string]any{"stock": 400, "waitlist": true}).ID
	w.drawn = w.Create(w.t, map[string]any{"stock": 10, "allocation": "draw"}).ID
	w.hot = w.Create(w.t, map[string]any{"stock": stock}).ID
	w.vouchers = append(w.vouchers, w.sold, w.hot)
	for n := range 400 {
		got := w.Insist(w.t, http.MethodPost, "/vouchers/"+w.sold+"/seckill", w.Token(w.t, fmt.Sprint("owner", n), model.RoleUser), nil)
		var o model.Order
		check.Must(w.t, json.Unmarshal(got.Body, &o))
		w.orders = append(w.orders, o)
	}
	for n := range flooding {
		var tokens []string
		for user := range usersEach {
			tokens = append(tokens, w.Token(w.t, fmt.Sprintf("flood%d-%d", n, user), model.RoleUser))
		}
		w.tokens = append(w.tokens, tokens)
	}
	for n := range streets {
		client := clientFrom(fmt.Sprintf("127.0.3.%d", n+1), flooding)
		w.t.Cleanup(client.CloseIdleConnections)
		w.clients = append(w.clients, client)
	}
}

// walksAll checks that each route that writes is flooded. A login writes nothing.
func (w *writes) walksAll(all []flood) {
	var document struct {
		Paths map[string]map[string]map[string]any
	}
	check.Must(w.t, json.Unmarshal(check.Value(w.Get("/api/v1/openapi.json"))(w.t).Body, &document))
	for path, operations := range document.Paths {
		for method, operation := range operations {
			id := fmt.Sprint(operation["operationId"])
			flooded := slices.ContainsFunc(all, func(f flood) bool { return f.operation == id })
			if flooded || strings.EqualFold(method, http.MethodGet) || operation["x-least-level"] != nil || id == "login" {
				continue
			}
			w.t.Errorf("%s %s writes, and there is no flood of it", method, path)
		}
	}
}
