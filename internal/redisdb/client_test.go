package redisdb_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/redisdb"
	"seckill/internal/workshop/check"
)

// A connection that waits for work for longer than a minute may have been cut by its server, and is not used.
func TestConnectionsRestAMinute(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"one": "redis://127.0.0.1:9", "Cluster": "redis+cluster://127.0.0.1:9", "Sentinel": "redis+sentinel://127.0.0.1:9/primary/0",
	} {
		client := check.Value(redisdb.NewClient(url, nil))(t)
		var rest time.Duration
		switch client := client.(type) {
		case *redis.Client:
			rest = client.Options().ConnMaxIdleTime
		case *redis.ClusterClient:
			rest = client.Options().ConnMaxIdleTime
		}
		check.That(t, 0 < rest && rest <= time.Minute, "%s: a connection rests for %s", name, rest)
		check.Must(t, client.Close())
	}
}
