package e2e_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"seckill/config"
	command "seckill/internal/app"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // dozens of instances are in this process: to collect garbage as usual took a tenth of its time
	testserver.Main(m)
}

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
		"SECKILL_DRAIN_GRACE":  "1s", // long enough to see it
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
	remote.Service

	ops string
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
		a.Client.CloseIdleConnections()
		halt(instance)
	})
	return a
}

// halt stops an instance at once: no load balancer has to notice.
func halt(instance *command.Instance) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	instance.Stop(now)
}

func newApp(t testing.TB, url, ops string) *app {
	t.Helper()
	return &app{
		Service: remote.Service{URL: url, Client: remote.Client(t, "", 4000), Tokens: check.Value(remote.Authority(secret))(t)},
		ops:     ops, prefix: t.Name()[:4] + strconv.FormatInt(time.Now().UnixNano(), 36) + ":",
	}
}

func (a *app) user(n int) string { return a.prefix + strconv.Itoa(n) }

// onSale creates a voucher that is on sale now.
func (a *app) onSale(t testing.TB, stock int) model.Voucher {
	t.Helper()
	return a.Create(t, map[string]any{"stock": stock})
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
		got := a.Insist(t, http.MethodGet, "/admin/vouchers/"+voucherID+"/orders?limit=100&cursor="+cursor, a.Admin(t), nil)
		if got.Status != http.StatusOK {
			t.Fatalf("orders: %d %s", got.Status, got.Body)
		}
		page := remote.Decode[model.OrderPage](t, got)
		for _, order := range page.Items {
			orders[order.ID] = order
		}
		if cursor = page.NextCursor; cursor == "" {
			return orders
		}
	}
}
