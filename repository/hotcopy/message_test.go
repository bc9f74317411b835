package hotcopy_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/ratelimit"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
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

// What was used before counts, is forgiven beyond the quota, and all is forgotten once the quota is whole again.
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

// A request that was given up, or a stop, does not keep the news of what it had committed back.
func TestNewsOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	url := testserver.SharedRedis(t)
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()

	t.Run("of a voucher", func(t *testing.T) {
		t.Parallel()
		changes, id := hotcopy.NewVoucherChanges(openRedis(t, url)), newID(t)
		told := listen(t, func(ctx context.Context, told func(string), ready func()) {
			changes.Watch(ctx, told, func(returned string) { told("a unit of " + returned) }, ready, func() {})
		})
		check.Must(t, changes.Announce(gone, id))
		told.await(t, id)
		check.Must(t, changes.AnnounceReturn(gone, id))
		told.await(t, "a unit of "+id)
	})
	t.Run("of a limit", func(t *testing.T) {
		t.Parallel()
		limits, deployment := hotcopy.NewLimits(openRedis(t, url)), newID(t)
		told := listen(t, limits.Watch)
		check.Must(t, limits.Announce(gone, deployment))
		told.await(t, deployment)
	})
}

// An instance knows at once that it hears nothing, whether the server is dead or only silent, and that it hears again.
func TestDeafInstancesKnow(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*testserver.Server) (back func()){
		"dead":   func(s *testserver.Server) func() { s.Kill(); return s.Start },
		"silent": func(s *testserver.Server) func() { s.Pause(); return s.Resume },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			client := openRedis(t, server.URL())
			changes, id := hotcopy.NewVoucherChanges(client), newID(t)
			deaf := make(chan struct{}, 1000)
			told := listen(t, func(ctx context.Context, told func(string), ready func()) {
				heard := func() { told("again"); ready() }
				changes.Watch(ctx, told, told, heard, func() { deaf <- struct{}{} })
			})
			told.await(t, "again")
			<-deaf // before it was subscribed
			check.Eventually(t, "it has asked three times, where nothing was to be heard", func() bool {
				_, calls, _ := strings.Cut(client.Info(t.Context(), "commandstats").Val(), "cmdstat_ping:calls=")
				return calls >= "3"
			})
			check.Equal(t, "times it was deaf, though the server has answered", len(deaf), 0)
			back := away(server)
			check.Receive(t, "that nothing is heard", deaf)
			back()
			told.await(t, "again")
			check.Must(t, changes.Announce(t.Context(), id))
			told.await(t, id)
		})
	}
}

// A hot copy tells by itself of units that may be for sale again.
func TestCopiesTellOfReturnedUnits(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		changes := hotcopy.NewVoucherChanges(s.client)
		told := listen(t, func(ctx context.Context, told func(string), ready func()) {
			changes.Watch(ctx, func(string) {}, told, ready, func() {})
		})
		var last model.Reservation
		for n := range s.v.Stock {
			last = s.buy(fmt.Sprint("user", n))
		}
		s.release(last)
		told.await(t, s.v.ID)
		s.release(s.buy("bob"))
		told.await(t, s.v.ID)
		s.rebuild(s.epoch+1, s.epoch, nil, nil)
		told.await(t, s.v.ID)
		s.release(s.buy("carol")) // of units that are left, nobody has to be told
		end := newID(t)
		check.Must(t, changes.AnnounceReturn(t.Context(), end))
		for news := ""; news != end; {
			if news = check.Receive(t, "the end", told); news == s.v.ID {
				t.Error("told of a unit though units were left")
			}
		}
	})
}

// news is what a subscription was told, in order.
type news chan string

// listen watches until the end of the test, and returns once it is subscribed.
func listen(t *testing.T, watch func(ctx context.Context, told func(string), ready func())) news {
	t.Helper()
	told, ready := make(news, 1000), make(chan struct{}, 10)
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { watch(ctx, func(message string) { told <- message }, func() { ready <- struct{}{} }) })
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	<-ready
	return told
}

// await passes over what other tests announce.
func (n news) await(t *testing.T, message string) {
	t.Helper()
	for check.Receive(t, "news of "+message, n) != message {
		continue
	}
}
