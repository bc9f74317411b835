package redisdb

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/redisurl"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func newClient(t *testing.T, url string, limits ...redisurl.Limits) redis.UniversalClient {
	t.Helper()
	client := check.Value(NewClient(url, nil, limits...))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func readiness(t *testing.T, url string) *Readiness {
	t.Helper()
	return NewReadiness(newClient(t, url))
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

// What each kind of client does without an answer, by constant. A server may have cut a connection idle for a minute.
func TestTheLimitsOfTheClients(t *testing.T) {
	t.Parallel()
	one := newClient(t, "redis://127.0.0.1:1").(*redis.Client).Options()
	behind := newClient(t, "redis+sentinel://127.0.0.1:1/shop/2").(*redis.Client).Options()
	all := newClient(t, "redis+cluster://127.0.0.1:1").(*redis.ClusterClient).Options()
	type limits struct {
		retries, connections, dials    int
		read, write, waits, dial, rest time.Duration
		deadline                       bool
	}
	usual := limits{
		redisRetries, defaultLimits().PoolSize, redisDials,
		budget.Call, budget.Call, budget.Call, budget.Look, budget.Survey, true,
	}
	of := func(o *redis.Options) limits {
		return limits{
			o.MaxRetries, o.PoolSize, o.DialerRetries,
			o.ReadTimeout, o.WriteTimeout, o.PoolTimeout, o.DialTimeout, o.ConnMaxIdleTime, o.ContextTimeoutEnabled,
		}
	}
	want := usual
	want.dials = 5 // nobody stands in for it
	check.Equal(t, "one server", of(one), want)
	want = usual
	want.dial = primaryTimeout
	check.Equal(t, "a primary behind Sentinels", of(behind), want)
	check.Equal(t, "the database behind Sentinels", behind.DB, 2)
	check.Equal(t, "a Cluster", limits{
		all.MaxRedirects, all.PoolSize, all.DialerRetries,
		all.ReadTimeout, all.WriteTimeout, all.PoolTimeout, all.DialTimeout, all.ConnMaxIdleTime,
		all.ContextTimeoutEnabled,
	}, usual)
	check.Equal(t, "a Cluster: retries by a node", all.MaxRetries, -1) // none
	check.Equal(t, "a Cluster: the age of what it knows", all.ClusterStateReloadInterval, budget.Look)

	given := redisurl.Limits{PoolSize: 5, Timeout: time.Minute}
	set := newClient(t, "redis://127.0.0.1:1?pool_size=3", given).(*redis.Client).Options()
	check.Equal(t, "connections as the URL says", set.PoolSize, 3)
	check.Equal(t, "waiting as the settings say", set.ReadTimeout, time.Minute)
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
			var said check.Log
			AdviseExpiry(t.Context(), newClient(t, testserver.Redis(t, tt.args...).URL()), said.Logger())
			check.Equal(t, "it says so", said.Has("lazyfree-lazy-expire yes"), tt.named)
		})
	}
}
