//part:engines

package e2e_test

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/api"
	command "seckill/internal/app"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// engines are the servers of one deployment: folders of `make deps-engines`, or none for what the system has.
type engines struct {
	database, redis, nats string
	hostile               bool // the database's global settings are testserver.Hostile
}

// TestEngines calls every route of the OpenAPI document, the console's pages and every periodic job on the servers of
// deployments/README.md, in a shop without an order and in a full one. A new route needs no entry here.
func TestEngines(t *testing.T) { //nolint:tparallel // one after the other: each has three servers
	t.Parallel()
	all := []engines{{hostile: true}}
	if check.Faults {
		all = append(all,
			engines{database: "mysql-8.0", redis: "redis-8", nats: "nats-2.10"},
			engines{database: "mysql-9", redis: "valkey-8", hostile: true},
			engines{database: "mariadb-11.4", redis: "redis-8"},
			engines{database: "mariadb-11.8", redis: "valkey-8", nats: "nats-2.10", hostile: true},
		)
	}
	modes := []model.OrderMode{model.ModeAsync, model.ModeSync}
	for _, e := range all {
		for _, mode := range modes[:check.Count(t, "MODES", 1, len(modes))] {
			name := strings.Trim(strings.Join([]string{e.database, e.redis, e.nats, string(mode)}, " "), " ")
			t.Run(name, func(t *testing.T) { e.serve(t, mode) })
		}
	}
}

func home(engine string) testserver.Home {
	if engine == "" {
		return ""
	}
	return testserver.Engine(engine)
}

func (e engines) serve(t *testing.T, mode model.OrderMode) {
	database, queue := home(e.database).MariaDB(t), home(e.nats).NATS(t)
	if e.hostile {
		admin := check.Value(sql.Open("mysql", database.AdminDSN("")))(t)
		testserver.Hostile(t, admin)
		check.Must(t, admin.Close())
	}
	stream, provider := newStream(), openTill(t)
	s := onServers(t).with(provider.settings()).with(settings{
		"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema), "SECKILL_REDIS_URL": home(e.redis).Redis(t).URL(),
		"SECKILL_NATS_URL": queue.URL(), "SECKILL_EVENTS": stream, "SECKILL_ORDER_MODE": string(mode), "SECKILL_CONSOLE": "on",
		"SECKILL_CURRENCY": "EUR", "SECKILL_PAYMENT_WINDOW": "7m", "SECKILL_CORS_ORIGINS": strings.Join(origins(), ","),
	})
	said := &check.Log{}
	log := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	instance := check.Value(command.Start(context.Background(), check.Value(config.Load(s.environ()))(t), log))(t)
	a := newApp(t, instance.BaseURL(), instance.OpsURL())
	defer func() {
		a.Client.CloseIdleConnections()
		halt(instance)
		refusedByServers(t, said.String())
	}()
	provider.tells(t, a)

	soon := a.Create(t, map[string]any{"begin_at": "2030-01-01T00:00:00Z", "end_at": "2030-01-02T00:00:00Z"})
	a.asksEverything(t, readDocument(t, a), soon.ID, "none.none")
	paid := a.moneyMoves(t, provider)
	for name, test := range map[string]func(*testing.T, shop){
		"every route": checkAnswersAreAsDocumented, "orders": checkOrders, "expiry": checkExpiry, "returned unit": checkReturnedUnit, "draw": checkDrawnAtTheEnd, "beacon": checkDrawnWithABeacon,
		"waitlist": checkWaitlist, "cool-down": checkCooldown, "groups": checkWhoMayBuy, "stock": checkStockChanges,
	} {
		t.Run(name, func(t *testing.T) { test(t, shop{newApp(t, a.URL, a.ops), mode, false}) })
	}
	a.asksEverything(t, readDocument(t, a), paid.VoucherID, paid.ID)
	a.readsConsole(t, s)
	readEvents(t, s["SECKILL_NATS_URL"], stream, func(told map[string][]string) bool { return len(told[paid.ID]) >= 3 })
}

// asksEverything has an administrator read all that the document says can be read, of one voucher and one order.
func (a *app) asksEverything(t *testing.T, doc *document, voucherID, orderID string) {
	t.Helper()
	for _, r := range doc.routes(func(r route) bool { return r.method == http.MethodGet }) {
		id := voucherID
		if strings.Contains(r.path, "/orders/{id}") {
			id = orderID
		}
		got := remote.Insist(t, r.path, func(int) (api.Answer, error) {
			return api.Send(t.Context(), a.Client, r.method, a.URL+concrete(r.path, id), a.Admin(t), nil)
		})
		doc.check(t, r.method, r.path, got)
		check.That(t, got.Status < http.StatusInternalServerError, "GET %s: %d %s", r.path, got.Status, got.Body)
	}
}

// moneyMoves pays an order and uses its code, and has the money of another one brought back.
func (a *app) moneyMoves(t *testing.T, provider *till) (used model.Order) {
	voucher := a.Create(t, map[string]any{"stock": 3, "withdrawal": "1h"})
	for n, next := range []string{"/admin/redemptions", "/admin/orders/{id}/refund", "/orders/{id}/withdraw"} {
		order := a.buys(t, voucher.ID, a.user(n))
		provider.approve(t, a.pays(t, order))
		a.reaches(t, order, model.OrderPaid)
		detail := remote.Decode[model.OrderDetail](t,
			a.Insist(t, http.MethodGet, "/admin/orders/"+order.ID, a.Admin(t), nil))
		body, token := any(nil), a.Admin(t)
		switch n {
		case 0:
			body, used = map[string]string{"code": detail.Code}, order
		case 2:
			token = a.as(t, order.UserID)
		}
		got := a.Insist(t, http.MethodPost, concrete(next, order.ID), token, body)
		check.That(t, got.Status < http.StatusMultipleChoices, "%s: %d %s", next, got.Status, got.Body)
	}
	a.back(t, 2)
	return used
}

func (a *app) readsConsole(t *testing.T, s settings) {
	operate(t, s, rightPassword+"\n", "admin", "create", "--username", "engines")
	token, _ := a.session(t, "engines", rightPassword)
	link := regexp.MustCompile(`(?:href|hx-get)="(/console[^"#]*)"`)
	read := map[string]bool{}
	for next := []string{"/console"}; len(next) > 0; next = next[1:] {
		path := strings.ReplaceAll(next[0], "&amp;", "&")
		if read[path] || strings.HasPrefix(path, "/console/static/") {
			continue
		}
		read[path] = true
		got := remote.Insist(t, path, func(int) (api.Answer, error) {
			return api.Send(t.Context(), a.Client, http.MethodGet, a.URL+path, "", nil,
				"Cookie: seckill-console="+token)
		})
		check.That(t, got.Status < http.StatusInternalServerError, "%s: %d %.300s", path, got.Status, got.Body)
		for _, found := range link.FindAllStringSubmatch(string(got.Body), -1) {
			next = append(next, found[1])
		}
	}
	check.That(t, len(read) > 20, "only %d pages were found: %v", len(read), read)
}

// refusedByServers fails for what a server refused unseen, but for transactions that meet (1205, 1213, 1020).
func refusedByServers(t *testing.T, said string) {
	refusal, meeting := regexp.MustCompile(`Error \d+|\bERR |WRONGTYPE|NOSCRIPT|err_code|panic`),
		regexp.MustCompile(`Error (1205|1213|1020)\b`)
	for line := range strings.Lines(said) {
		if refusal.MatchString(line) && !meeting.MatchString(line) {
			t.Errorf("a server has refused something: %s", line)
			return // it comes again and again
		}
	}
}
