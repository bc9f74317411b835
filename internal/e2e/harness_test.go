package e2e_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"testing"
	"time"

	"seckill/config"
	command "seckill/internal/app"
	"seckill/internal/testserver"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestMain(m *testing.M) { testserver.Main(m) }

const secret = "a secret of the tests, 32 bytes or more"

// settings are variables of the environment.
type settings map[string]string

// with returns a copy with further settings, which win.
func (s settings) with(more settings) settings {
	all := maps.Clone(s)
	maps.Copy(all, more)
	return all
}

func (s settings) environ() []string {
	var environ []string
	for name, value := range s {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// onServers is a deployment of its own on the real servers the tests share:
// a fresh schema, and users no other test has.
func onServers(t *testing.T) settings {
	t.Helper()
	return settings{
		"SECKILL_DATABASE_DSN": testserver.Schema(t),
		"SECKILL_REDIS_URL":    testserver.SharedRedis(t),
		"SECKILL_JWT_SECRET":   secret,
		"SECKILL_HTTP_ADDR":    "127.0.0.1:0",
		"SECKILL_OPS_ADDR":     "127.0.0.1:0",
		"SECKILL_RATE_USER":    "0",
		"SECKILL_RATE_ADDR":    "0", // all come from 127.0.0.1
	}
}

// embeddedSettings is a deployment without any server.
func embeddedSettings(t *testing.T) settings {
	t.Helper()
	return settings{
		"SECKILL_DATA_DIR":   t.TempDir(),
		"SECKILL_JWT_SECRET": secret,
		"SECKILL_HTTP_ADDR":  "127.0.0.1:0",
		"SECKILL_OPS_ADDR":   "127.0.0.1:0",
		"SECKILL_RATE_USER":  "0",
		"SECKILL_RATE_ADDR":  "0",
	}
}

// app is the program under test, seen through HTTP.
type app struct {
	url, ops string
	client   *http.Client
	tokens   *token.Authority
	// prefix makes users unique among the tests that share a Redis, where a
	// user's lock has the same name in every deployment.
	prefix string
}

// begin starts an instance in this process.
func begin(t *testing.T, s settings) (*command.Instance, error) {
	t.Helper()
	cfg, err := config.Load(s.environ())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})
	return command.Start(t.Context(), cfg, slog.New(log))
}

// start runs an instance in this process until the test ends.
func start(t *testing.T, s settings) *app {
	t.Helper()
	instance, err := begin(t, s)
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(t, instance.BaseURL(), instance.OpsURL())
	t.Cleanup(func() {
		a.client.CloseIdleConnections()
		now, cancel := context.WithCancel(context.Background())
		cancel() // nobody has to notice
		if err := instance.Stop(now); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return a
}

func newApp(t testing.TB, url, ops string) *app {
	t.Helper()
	tokens, err := token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill")
	if err != nil {
		t.Fatal(err)
	}
	return &app{url: url, ops: ops, client: newClient(t), tokens: tokens, prefix: t.Name()[:4] + strconv.FormatInt(time.Now().UnixNano(), 36) + ":"}
}

func (a *app) user(n int) string { return a.prefix + strconv.Itoa(n) }

// token signs a token for a user.
func (a *app) token(t testing.TB, subject string, role model.Role) string {
	t.Helper()
	signed, err := a.tokens.Issue(token.Claims{Subject: subject, Role: role}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func (a *app) admin(t testing.TB) string {
	t.Helper()
	return a.token(t, "admin", model.RoleAdmin)
}

// call makes one request of the API, path beginning behind /api/v1, and fails
// the test when there is no answer.
func (a *app) call(t testing.TB, method, path, token string, body any, headers ...string) answer {
	t.Helper()
	got, err := send(a.client, method, a.url+"/api/v1"+path, token, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

// insist is call for a request that may be told to come again.
func (a *app) insist(t testing.TB, method, path, token string, body any) answer {
	t.Helper()
	return insist(t, method+" "+path, func(int) (answer, error) {
		return send(a.client, method, a.url+"/api/v1"+path, token, body)
	})
}

// onSale creates a voucher that is on sale now.
func (a *app) onSale(t testing.TB, stock int) model.Voucher {
	t.Helper()
	return a.divided(t, stock, 1)
}

// undivided creates a voucher on sale in one piece, whatever SHARDS says: for tests that look at its row or its keys.
func (a *app) undivided(t testing.TB, stock int) model.Voucher {
	t.Helper()
	return a.create(t, map[string]any{"stock": stock})
}

// divided creates a voucher on sale in some parts; SHARDS divides all.
func (a *app) divided(t testing.TB, stock, shards int) model.Voucher {
	t.Helper()
	return a.create(t, map[string]any{"stock": stock, "shards": check.Count(t, "SHARDS", shards, shards)})
}

// create creates a voucher; the fields given win over those of one on sale.
func (a *app) create(t testing.TB, fields map[string]any) model.Voucher {
	t.Helper()
	body := map[string]any{
		"title": "Coffee for two", "price": 1000, "face_value": 2500, "stock": 10,
		"begin_at": time.Now().Add(-time.Hour).UTC(), "end_at": time.Now().Add(time.Hour).UTC(),
	}
	maps.Copy(body, fields)
	got := a.insist(t, http.MethodPost, "/admin/vouchers", a.admin(t), body)
	if got.status != http.StatusCreated {
		t.Fatalf("create voucher: %d %s", got.status, got.body)
	}
	return decode[model.Voucher](t, got)
}

// audit asks for the conservation check.
func (a *app) audit(t testing.TB, voucherID string) model.Audit {
	t.Helper()
	got := a.insist(t, http.MethodGet, "/admin/vouchers/"+voucherID+"/audit", a.admin(t), nil)
	if got.status != http.StatusOK {
		t.Fatalf("audit: %d %s", got.status, got.body)
	}
	return decode[model.Audit](t, got)
}

// rows lists every order of a voucher, by user.
func (a *app) rows(t testing.TB, voucherID string) map[string]model.Order {
	t.Helper()
	rows := map[string]model.Order{}
	for _, order := range a.orders(t, voucherID) {
		if other, twice := rows[order.UserID]; twice {
			t.Errorf("user %s has two orders: %s and %s", order.UserID, order.ID, other.ID)
		}
		rows[order.UserID] = order
	}
	return rows
}

// orders lists every order of a voucher that the database knows, by id.
func (a *app) orders(t testing.TB, voucherID string) map[string]model.Order {
	t.Helper()
	orders := map[string]model.Order{}
	for cursor := ""; ; {
		got := a.insist(t, http.MethodGet, "/admin/vouchers/"+voucherID+"/orders?limit=100&cursor="+cursor, a.admin(t), nil)
		if got.status != http.StatusOK {
			t.Fatalf("orders: %d %s", got.status, got.body)
		}
		page := decode[model.OrderPage](t, got)
		for _, order := range page.Items {
			orders[order.ID] = order
		}
		if cursor = page.NextCursor; cursor == "" {
			return orders
		}
	}
}
