package app

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// realDatabase are the settings of instances on a database of the test.
func realDatabase(t *testing.T) []string {
	t.Helper()
	return []string{"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more"}
}

// start starts an instance on free ports, with a data directory of its own.
func start(t *testing.T, log io.Writer, settings ...string) *Instance {
	t.Helper()
	cfg := check.Value(config.Load(append([]string{
		"SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0", "SECKILL_DATA_DIR=" + t.TempDir(),
	}, settings...)))(t)
	return check.Value(Start(t.Context(), cfg, slog.New(slog.NewTextHandler(log, nil))))(t)
}

// stopNow stops an instance without the grace in which others notice.
func stopNow(instance *Instance) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	instance.Stop(now)
}

// Without its connection to the queue an instance can keep no promise: when the
// client library has given it up, the instance ends, in every role.
func TestInstanceEndsWithoutItsQueue(t *testing.T) {
	t.Parallel()
	for _, role := range []config.Role{config.RoleAPI, config.RoleWorker, config.RoleAll} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			proxy := testserver.NewProxy(t, strings.TrimPrefix(testserver.SharedNATS(t), "nats://"), nil)
			instance := start(t, io.Discard, append(realDatabase(t), "SECKILL_ORDER_MODE=async", "SECKILL_ROLE="+string(role),
				"SECKILL_REDIS_URL="+testserver.SharedRedis(t), "SECKILL_NATS_URL=nats://"+proxy.Addr())...)
			defer stopNow(instance)
			proxy.Say(t, "-ERR 'nobody knows this one'\r\n")
			if err := check.Receive(t, "the end of the instance", instance.Failed()); err == nil || !strings.Contains(err.Error(), "queue") {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// With an embedded Redis beside a real database there is one instance, and it expires orders in sync too.
func TestExpiryInSyncWithAnEmbeddedRedis(t *testing.T) {
	t.Parallel()
	settings := realDatabase(t)
	instance := start(t, io.Discard, settings...)
	defer stopNow(instance)
	db := check.Value(sql.Open("mysql", strings.TrimPrefix(settings[0], "SECKILL_DATABASE_DSN=")))(t)
	defer db.Close()
	for _, statement := range []string{
		"SET sql_mode = ''",
		"INSERT INTO vouchers (id, title, price, currency, stock, remaining, begin_at, end_at) " +
			"VALUES ('v', 'v', 1, 'CNY', 1, 0, '2020-01-01', '2030-01-01')",
		"INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, expires_at, unpaid_at) " +
			"VALUES ('o.v', 'v', 'u', 'unpaid', 1, 'CNY', '2020-01-01', '2020-01-01', '2020-01-01')",
	} {
		db.SetMaxOpenConns(1) // sql_mode is of a connection
		check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
	}
	check.Eventually(t, "the order expires", func() bool {
		var status string
		return db.QueryRowContext(t.Context(), "SELECT status FROM orders").Scan(&status) == nil && status == "expired"
	})
}

// Of several instances on one database one has the simulator, and with it the ledger; the start of a second one says
// what to set. When the first has stopped, another one has it.
func TestOneInstanceHasTheSimulator(t *testing.T) {
	t.Parallel()
	settings := append(realDatabase(t), "SECKILL_REDIS_URL="+testserver.SharedRedis(t),
		"SECKILL_CODE_KEY=a key of codes in tests, 32 bytes or more", "SECKILL_WEBHOOK_SECRETS=a secret of webhooks of 24 bytes or more")
	open := func(setting string, warns bool) *Instance {
		var log check.Log
		instance := start(t, &log, append(settings, setting)...)
		if warned := strings.Contains(log.String(), "SECKILL_PAYMENT_URL to the other"); warned != warns {
			t.Errorf("%s: warned %t, want %t", setting, warned, warns)
		}
		return instance
	}
	const simulator = "SECKILL_PAYMENT_SIMULATOR=on"
	first := open(simulator, false)
	second := open(simulator, true)
	sharing := open("SECKILL_PAYMENT_URL=http://127.0.0.1:9", false)
	for _, instance := range []*Instance{first, second} {
		stopNow(instance)
	}
	next := open(simulator, false)
	stopNow(next)
	stopNow(sharing)
}

// Whoever forgets the payments hears of it at the start, and not from the first buyer: one line names the settings.
func TestAStartWithoutPaymentsSaysSo(t *testing.T) {
	t.Parallel()
	for setting, lines := range map[string]int{
		"SECKILL_PAYMENT_SIMULATOR=off":          1,
		"SECKILL_PAYMENT_SIMULATOR=on":           0,
		"SECKILL_PAYMENT_URL=http://127.0.0.1:9": 0,
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			var log check.Log
			stopNow(start(t, &log, setting, "SECKILL_WEBHOOK_SECRETS=a secret of webhooks of 24 bytes or more"))
			warned := 0
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "level=WARN") && strings.Contains(line, "SECKILL_PAYMENT_URL") &&
					strings.Contains(line, "SECKILL_PAYMENT_SIMULATOR=on") {
					warned++
				}
			}
			check.Equal(t, "lines", warned, lines)
		})
	}
}
