package hotcopy

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
)

func readiness(t *testing.T, url string) *Readiness {
	t.Helper()
	client := check.Value(NewClient(url, nil))(t)
	t.Cleanup(func() { _ = client.Close() })
	return NewReadiness(client)
}

// asked asks as a load balancer does, which waits a second, and no longer than that.
func asked(t *testing.T, r *Readiness) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return r.Probe(ctx)
}

// A Cluster is ready while one of its primaries takes writes.
func TestAClusterIsReadyWhileAPrimaryIs(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no")
	r := readiness(t, cluster.URL())
	check.Eventually(t, "it is ready", func() bool { return asked(t, r) == nil })
	spots, err := Spots(t.Context(), r.client, func(n int) string { return fmt.Sprint("{", n, "}") })
	if err != nil || len(spots) != len(cluster.Primaries) {
		t.Errorf("the primaries are at %v, %v", spots, err)
	}
	cluster.Primaries[0].Kill()
	check.Eventually(t, "it is ready with two primaries", func() bool { return asked(t, r) == nil })
	cluster.Primaries[1].Pause()
	cluster.Primaries[2].Pause()
	check.Eventually(t, "it is not ready when none answers", func() bool { return asked(t, r) != nil })
	cluster.Primaries[1].Resume()
	cluster.Primaries[2].Resume()
	check.Eventually(t, "it is ready again", func() bool { return asked(t, r) == nil })
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
