package app

import (
	"errors"
	"fmt"
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

// rights are the words of the ACL line in deployments/README.md, behind the password.
func rights(t *testing.T) []string {
	t.Helper()
	text := check.Value(os.ReadFile("../../deployments/README.md"))(t)
	line := regexp.MustCompile(`(?m)^ACL SETUSER seckill on >PASSWORD (.*)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("deployments/README.md has no ACL line")
	}
	return strings.Fields(string(line[1]))
}

// inspected is what the start says of a Redis.
func inspected(t *testing.T, url string, mode model.OrderMode, locks model.LockMode) error {
	t.Helper()
	client := check.Value(redisdb.NewClient(url, nil))(t)
	defer client.Close()
	i := newInstance(config.Config{RedisURL: url, OrderMode: mode, LockMode: locks, LockSynced: config.AllReplicas}, slog.New(slog.DiscardHandler))
	return i.inspectRedis(t.Context(), client)
}

// allow gives a Redis a user who may do so much, and returns the URL.
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

// The documented line is enough, in every mode, and leaves nothing behind; without any of its rights the start is
// refused.
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
			if err := inspected(t, url, mode, locks); err != nil {
				t.Errorf("%s, %s: %v", mode, locks, err)
			}
		}
	}
	for _, key := range admin.Keys(t.Context(), "*").Val() {
		if ttl := admin.PTTL(t.Context(), key).Val(); ttl < 0 && key != "seckill:v1:canary" {
			t.Errorf("%s is left behind", key)
		}
	}
	// Not of one server, or not missed at the start.
	elsewhere := []string{
		"+ping", "+select", "+unsubscribe", "+ssubscribe", "+sunsubscribe", "+spublish", "+cluster|slots", "+asking", "+config|get",
		"~lock_latch:*", "~lock_channel:*", "~setnx:lock:order:*", "&lock_channel:*",
	}
	for n, right := range all {
		if slices.Contains(elsewhere, right) {
			continue
		}
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			less := allow(t, server, fmt.Sprint("less", n), slices.Concat(all[:n], all[n+1:]))
			if err := inspected(t, less, model.ModeAsync, model.LockRedis); !errors.Is(err, redisdb.ErrRights) {
				t.Errorf("without it: %v", err)
			}
		})
	}
}

// A Redis that is not what its URL says is refused with a sentence that says what to write.
func TestAPlainRedisIsNoOther(t *testing.T) {
	t.Parallel()
	host := check.Value(url.Parse(testserver.SharedRedis(t)))(t).Host
	for text, why := range map[string]string{"redis+cluster://" + host: "it is no Redis Cluster", "redis+sentinel://" + host + "/shop": "no Sentinel"} {
		if err := inspected(t, text, model.ModeAsync, model.LockRedis); !errors.Is(err, redisdb.ErrUnfit) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", text, err, why)
		}
	}
}
