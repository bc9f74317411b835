package hotcopy_test

import (
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/ratelimit"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/repository/hotcopy"
)

// hourly is one event of a quota of so many an hour.
func hourly(t *testing.T, events, used int64) ratelimit.Ask {
	t.Helper()
	emission := time.Hour / time.Duration(events)
	return ratelimit.Ask{Key: newID(t), Emission: emission, Capacity: emission * time.Duration(events), Used: used}
}

func takeOne(t *testing.T, limits *hotcopy.Limits, ask ratelimit.Ask) ratelimit.Verdict {
	t.Helper()
	verdicts := check.Value(limits.Take(t.Context(), []ratelimit.Ask{ask}))(t)
	return verdicts[0]
}

// Whatever arrives at once, through whichever client, the limit is exact.
func TestLimitIsExact(t *testing.T) {
	t.Parallel()
	url := testserver.SharedRedis(t)
	clients := []*hotcopy.Limits{hotcopy.NewLimits(openRedis(t, url)), hotcopy.NewLimits(openRedis(t, url))}
	ask := hourly(t, 7, 0)
	var allowed atomic.Int64
	check.Volley(40, func(i int) {
		if takeOne(t, clients[i%2], ask).Wait == 0 {
			allowed.Add(1)
		}
	})
	if n := allowed.Load(); n != 7 {
		t.Errorf("%d are allowed of 7 an hour", n)
	}
	last := takeOne(t, clients[0], ask)
	if last.Wait < ask.Emission-time.Minute || last.Wait > ask.Emission || last.Left != 0 {
		t.Errorf("then %+v, with one every %s", last, ask.Emission)
	}
}

// What was used before counts, is forgiven beyond the quota, and all is forgotten once
// the quota is whole again.
func TestLimitCountsWhatWasUsedBefore(t *testing.T) {
	t.Parallel()
	client := openRedis(t, testserver.SharedRedis(t))
	limits := hotcopy.NewLimits(client)
	ask := hourly(t, 10, 5)
	if v := takeOne(t, limits, ask); v.Wait != 0 || v.Left != 4 {
		t.Errorf("after five of ten: %+v", v)
	}
	ask.Used = 1000
	if v := takeOne(t, limits, ask); v.Wait <= 0 || v.Wait > ask.Emission || v.Left != 0 {
		t.Errorf("after a thousand: %+v", v)
	}
	ttl := client.PTTL(t.Context(), "seckill:v1:limit:"+ask.Key).Val()
	if ttl < time.Hour-time.Minute || ttl > time.Hour+time.Second {
		t.Errorf("a full quota of an hour is kept for %s", ttl)
	}
}

// Many senders share a call, and a Redis that has forgotten the script is told again.
func TestLimitsShareACall(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	client := openRedis(t, server.URL())
	limits := hotcopy.NewLimits(client)
	one, two := hourly(t, 1, 0), hourly(t, 2, 0)
	for round, want := range [][3]bool{{true, true, true}, {false, false, false}} {
		check.Must(t, client.ScriptFlush(t.Context()).Err())
		verdicts := check.Value(limits.Take(t.Context(), []ratelimit.Ask{one, two, two}))(t)
		for i, v := range verdicts {
			if (v.Wait == 0) != want[i] {
				t.Errorf("round %d, ask %d: %+v", round, i, v)
			}
		}
	}
	server.Kill()
	if _, err := limits.Take(t.Context(), []ratelimit.Ask{one}); err == nil {
		t.Error("a Redis that is away has answered")
	}
}
