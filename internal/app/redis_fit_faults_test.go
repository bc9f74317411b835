//go:build faults

//part:clusters

package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"seckill/internal/redisdb"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// Whatever has a Redis' manners and cannot be sold from is refused with a sentence that says what to write.
func TestARedisThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	sentinels := testserver.RedisSentinels(t, time.Minute)
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no")
	for url, why := range map[string]string{
		"redis://" + sentinels.Sentinels[0].Addr():                                "it is a Sentinel",
		"redis://" + sentinels.Sentinels[0].Addr() + "/1":                         "it is a Sentinel",
		"redis+cluster://" + sentinels.Sentinels[0].Addr():                        "it is a Sentinel",
		"redis://" + sentinels.Replica.Addr():                                     "it is a replica",
		"redis://" + cluster.Primaries[0].Addr():                                  "write redis+cluster://",
		"redis://" + cluster.Primaries[0].Addr() + "/1":                           "write redis+cluster://",
		"redis+cluster://" + sentinels.Primary.Addr():                             "it is no Redis Cluster",
		"redis+sentinel://" + sentinels.Primary.Addr() + "/shop":                  "no Sentinel",
		strings.Replace(sentinels.URL(), "/"+testserver.SentinelPrimary, "/x", 1): "watch no primary",
	} {
		if err := inspected(t, url, model.ModeAsync, model.LockRedis); !errors.Is(err, redisdb.ErrUnfit) ||
			!strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", url, err, why)
		}
	}
	for _, url := range []string{
		sentinels.URL(), cluster.URL(), "redis+cluster://" + cluster.Primaries[2].Addr(),
		"redis://" + sentinels.Primary.Addr() + "/1",
	} {
		if err := inspected(t, url, model.ModeAsync, model.LockRedis); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
