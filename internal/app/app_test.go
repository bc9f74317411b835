package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/internal/redisdb"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func realDatabase(t *testing.T) []string {
	t.Helper()
	return []string{
		"SECKILL_DATABASE_DSN=" + testserver.Schema(t),
		"SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more",
	}
}

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

// Without its queue an instance can keep no promise: when the client library gives up, it ends, in every role.
func TestInstanceEndsWithoutItsQueue(t *testing.T) {
	t.Parallel()
	for _, role := range []config.Role{config.RoleAPI, config.RoleWorker, config.RoleAll} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			proxy := testserver.NewProxy(t, strings.TrimPrefix(testserver.SharedNATS(t), "nats://"), nil)
			instance := start(t, io.Discard, append(realDatabase(t), "SECKILL_ORDER_MODE=async",
				"SECKILL_ROLE="+string(role),
				"SECKILL_REDIS_URL="+testserver.SharedRedis(t), "SECKILL_NATS_URL=nats://"+proxy.Addr())...)
			defer stopNow(instance)
			proxy.Say(t, "-ERR 'nobody knows this one'\r\n")
			err := check.Receive(t, "the end of the instance", instance.Failed())
			check.That(t, err != nil && strings.Contains(err.Error(), "queue"), "it ends with %v", err)
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

// Of the instances on one database one has the simulator and its ledger. A second start says so; a stop frees it.
func TestOneInstanceHasTheSimulator(t *testing.T) {
	t.Parallel()
	settings := append(realDatabase(t), "SECKILL_REDIS_URL="+testserver.SharedRedis(t),
		"SECKILL_CODE_KEY=a key of codes in tests, 32 bytes or more",
		"SECKILL_WEBHOOK_SECRETS=a secret of webhooks of 24 bytes or more")
	open := func(setting string, warns bool) *Instance {
		var log check.Log
		instance := start(t, &log, append(settings, setting)...)
		warned := strings.Contains(log.String(), "SECKILL_PAYMENT_URL to the other")
		check.That(t, warned == warns, "%s: warned %t, want %t", setting, warned, warns)
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

func rights(t *testing.T) []string {
	t.Helper()
	text := check.Value(os.ReadFile("../../deployments/README.md"))(t)
	line := regexp.MustCompile(`(?m)^ACL SETUSER seckill on >PASSWORD (.*)$`).FindSubmatch(text)
	check.Need(t, line != nil, "deployments/README.md has no ACL line")
	return strings.Fields(string(line[1]))
}

func inspected(t *testing.T, url string, mode model.OrderMode, locks model.LockMode) error {
	t.Helper()
	client := check.Value(redisdb.NewClient(url, nil))(t)
	defer client.Close()
	i := newInstance(config.Config{RedisURL: url, OrderMode: mode, LockMode: locks, LockSynced: config.AllReplicas},
		slog.New(slog.DiscardHandler))
	return i.inspectRedis(t.Context(), client)
}

// allow adds a user with these rights to a Redis, and returns the URL.
func allow(t *testing.T, server *testserver.Server, user string, rights []string) string {
	t.Helper()
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	args := []any{"acl", "setuser", user, "reset", "on", ">password1"}
	for _, right := range rights {
		args = append(args, right)
	}
	check.Must(t, admin.Do(t.Context(), args...).Err())
	return "redis://" + user + ":password1@" + server.Addr() + "/0"
}

// The documented line suffices in every mode and leaves nothing behind. Without any of its rights the start fails.
func TestTheRightsInRedis(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, "--repl-diskless-sync-delay", "0")
	testserver.Redis(t, "--replicaof", "127.0.0.1", strconv.Itoa(server.Port()))
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	check.Eventually(t, "a replica follows", func() bool {
		return strings.Contains(admin.Info(t.Context(), "replication").Val(), "state=online")
	})
	all := rights(t)
	url := allow(t, server, "seckill", all)
	for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
		for _, locks := range []model.LockMode{model.LockRedis, model.LockSetNX, model.LockMySQL} {
			err := inspected(t, url, mode, locks)
			check.That(t, err == nil, "%s, %s: %v", mode, locks, err)
		}
	}
	for _, key := range admin.Keys(t.Context(), "*").Val() {
		if ttl := admin.PTTL(t.Context(), key).Val(); ttl < 0 && key != "seckill:v1:canary" {
			t.Errorf("%s is left behind", key)
		}
	}
	// Not of one server, or not missed at the start.
	elsewhere := []string{
		"+ping", "+select", "+unsubscribe", "+ssubscribe", "+sunsubscribe", "+spublish", "+cluster|slots", "+asking",
		"+config|get",
		"~lock_latch:*", "~lock_channel:*", "~setnx:lock:order:*", "&lock_channel:*",
	}
	for n, right := range all {
		if slices.Contains(elsewhere, right) {
			continue
		}
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			less := allow(t, server, fmt.Sprint("less", n), slices.Concat(all[:n], all[n+1:]))
			check.Is(t, "without it", inspected(t, less, model.ModeAsync, model.LockRedis), redisdb.ErrRights)
		})
	}
}

// A Redis that is not what its URL says is refused with a sentence that says what to write.
func TestAPlainRedisIsNoOther(t *testing.T) {
	t.Parallel()
	host := check.Value(url.Parse(testserver.SharedRedis(t)))(t).Host
	for text, why := range map[string]string{"redis+cluster://" + host: "it is no Redis Cluster", "redis+sentinel://" + host + "/shop": "no Sentinel"} {
		if err := inspected(t, text, model.ModeAsync, model.LockRedis); !errors.Is(err, redisdb.ErrUnfit) ||
			!strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", text, err, why)
		}
	}
}
