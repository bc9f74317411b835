package redisdb

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/redisurl"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func readiness(t *testing.T, url string) *Readiness {
	t.Helper()
	client := check.Value(NewClient(url, nil))(t)
	t.Cleanup(func() { _ = client.Close() })
	return NewReadiness(client)
}

// asked asks as a load balancer does, until the probe itself gives a server up.
func asked(t *testing.T, r *Readiness) error {
	t.Helper()
	return r.Probe(check.Context(t))
}

// A server that takes no writes is not ready, at once; behind Sentinels it has some time for a failover.
func TestAServerThatTakesNoWritesIsNotReady(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	r := readiness(t, server.URL())
	check.Eventually(t, "it is ready", func() bool { return asked(t, r) == nil })
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	check.Must(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	check.Eventually(t, "a full Redis is not ready", func() bool { return asked(t, r) != nil })
	r.mu.Lock()
	r.elected, r.well = true, time.Now()
	r.mu.Unlock()
	check.Eventually(t, "it is while Sentinels may find another", func() bool { return asked(t, r) == nil })
	r.mu.Lock()
	r.well = time.Now().Add(-rideOut)
	r.mu.Unlock()
	check.Eventually(t, "and not for ever", func() bool { return asked(t, r) != nil })
}

// What every kind of client does when a server does not answer, in the words of the constants.
func TestTheLimitsOfTheClients(t *testing.T) {
	t.Parallel()
	one := check.Value(NewClient("redis://127.0.0.1:1", nil))(t).(*redis.Client)
	defer one.Close()
	behind := check.Value(NewClient("redis+sentinel://127.0.0.1:1/shop/2", nil))(t).(*redis.Client)
	defer behind.Close()
	for name, client := range map[string]*redis.Client{"one server": one, "a primary behind Sentinels": behind} {
		o := client.Options()
		check.Equal(t, name+": retries", o.MaxRetries, redisRetries)
		check.Equal(t, name+": connections", o.PoolSize, defaultLimits().PoolSize)
		check.Equal(t, name+": waiting to read", o.ReadTimeout, budget.Call)
		check.Equal(t, name+": waiting to write", o.WriteTimeout, budget.Call)
		check.Equal(t, name+": waiting for a connection", o.PoolTimeout, budget.Call)
		check.Equal(t, name+": the caller's deadline counts", o.ContextTimeoutEnabled, true)
	}
	check.Equal(t, "the database behind Sentinels", behind.Options().DB, 2)
	check.Equal(t, "dials of one server", one.Options().DialerRetries, 5) // nobody stands in for it
	check.Equal(t, "dials behind Sentinels", behind.Options().DialerRetries, redisDials)
	check.Equal(t, "a dial of one server", one.Options().DialTimeout, budget.Look)
	check.Equal(t, "a dial behind Sentinels", behind.Options().DialTimeout, primaryTimeout)

	set := check.Value(NewClient("redis://127.0.0.1:1?pool_size=3", nil, redisurl.Limits{PoolSize: 5, Timeout: time.Minute}))(t).(*redis.Client)
	defer set.Close()
	check.Equal(t, "connections as the URL says", set.Options().PoolSize, 3)
	check.Equal(t, "waiting as the settings say", set.Options().ReadTimeout, time.Minute)

	all := check.Value(NewClient("redis+cluster://127.0.0.1:1", nil))(t).(*redis.ClusterClient)
	defer all.Close()
	o := all.Options()
	check.Equal(t, "a Cluster: redirects and retries", o.MaxRedirects, redisRetries)
	check.Equal(t, "a Cluster: retries by a node", o.MaxRetries, -1) // none
	check.Equal(t, "a Cluster: connections to a node", o.PoolSize, defaultLimits().PoolSize)
	check.Equal(t, "a Cluster: dials", o.DialerRetries, redisDials)
	check.Equal(t, "a Cluster: waiting to read", o.ReadTimeout, budget.Call)
	check.Equal(t, "a Cluster: the age of what it knows", o.ClusterStateReloadInterval, budget.Look)
	check.Equal(t, "a Cluster: the caller's deadline counts", o.ContextTimeoutEnabled, true)
}

func TestMain(m *testing.M) { testserver.Main(m) }

// A Redis that would stop while a sale expires is named; one that does not, or does not tell, is not.
func TestARedisThatStopsToExpireIsNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args  []string
		named bool
	}{
		"as shipped": {nil, false},
		"off":        {[]string{"--lazyfree-lazy-expire", "no"}, true},
		"silent":     {[]string{"--lazyfree-lazy-expire", "no", "--rename-command", "CONFIG", "none"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := check.Value(NewClient(testserver.Redis(t, tt.args...).URL(), nil))(t)
			defer client.Close()
			var said bytes.Buffer
			AdviseExpiry(t.Context(), client, slog.New(slog.NewTextHandler(&said, nil)))
			if named := strings.Contains(said.String(), "lazyfree-lazy-expire yes"); named != tt.named {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}
