package ratelimit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// table keeps quotas as the storage in Redis does, and counts what it is asked.
type table struct {
	mu    sync.Mutex
	asked int
	idle  map[string]int64
	fails func(ctx context.Context) error
}

func (b *table) take(ctx context.Context, asks []Ask) ([]Verdict, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		if err := b.fails(ctx); err != nil {
			return nil, err
		}
	}
	verdicts := make([]Verdict, len(asks))
	for i, ask := range asks {
		b.asked++
		now := time.Now().UnixNano()
		q := quota{emission: ask.Emission, capacity: ask.Capacity}
		idle := min(max(b.idle[ask.Key], now)+ask.Used*int64(ask.Emission), now+int64(ask.Capacity))
		idle, wait := q.take(idle, now)
		b.idle[ask.Key] = idle
		verdicts[i] = Verdict{Wait: wait, Left: (now + int64(ask.Capacity) - idle) / int64(ask.Emission)}
	}
	return verdicts, nil
}

// instances are limiters that share a table.
func (b *table) instances(t *testing.T, n int, rate model.Rate) []*Limiter {
	t.Helper()
	b.idle = map[string]int64{}
	list := make([]*Limiter, n)
	for i := range list {
		var log check.Log
		shared := NewShared(b.take, prometheus.NewRegistry(), log.Logger())
		t.Cleanup(func() { shared.Close(context.Background()) })
		list[i] = New("test", 0, shared)
		check.Must(t, list[i].Set(rate, "scope"))
	}
	return list
}

// pass counts what instances let pass of n requests of one sender, by turns.
func pass(t *testing.T, list []*Limiter, n int) (passed int) {
	t.Helper()
	for i := range n {
		if list[i%len(list)].Take(t.Context(), "sender") == 0 {
			passed++
		}
	}
	return passed
}

// TestInstancesShareALimit: small ones are exact, larger ones nearly so.
func TestInstancesShareALimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ events, instances, most int }{{1, 2, 1}, {7, 3, 7}, {100, 2, 104}, {1000, 2, 1040}, {1000, 4, 1100}} {
		synctest.Test(t, func(t *testing.T) {
			list := (&table{}).instances(t, tt.instances, model.Rate{Events: tt.events, Per: 24 * time.Hour})
			if n := pass(t, list, 5*tt.events); n < tt.events || n > tt.most {
				t.Errorf("%d instances let %d pass with %d a day", tt.instances, n, tt.events)
			}
		})
	}
}

// TestAfterAQuietTimeNobodyIsAsked: a buyer of the last sale asks nobody in the next one.
func TestAfterAQuietTimeNobodyIsAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &table{}
		list := b.instances(t, 1, model.Rate{Events: 20, Per: time.Second})
		pass(t, list, 10)
		asked := b.asked
		<-time.After(time.Second)
		if n := pass(t, list, 5); n != 5 || b.asked != asked || asked == 0 {
			t.Errorf("%d of 5 pass; asked %d times, then %d", n, asked, b.asked)
		}
	})
}

// TestTheFirstRequestsAskNobody: a quarter of the quota costs no call, and neither does what is refused.
func TestTheFirstRequestsAskNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &table{}
		list := b.instances(t, 1, model.Rate{Events: 20, Per: time.Hour})
		if pass(t, list, 5); b.asked != 0 {
			t.Errorf("five of twenty requests asked %d times", b.asked)
		}
		if pass(t, list, 1); b.asked != 1 {
			t.Errorf("the sixth asked %d times", b.asked)
		}
		pass(t, list, 20)
		asked := b.asked
		if n := pass(t, list, 1000); n != 0 || b.asked != asked {
			t.Errorf("of 1000 requests beyond the limit %d passed, and %d asked", n, b.asked-asked)
		}
	})
}

// TestAwayMeansAlone: while nothing answers, one request a second tries it, the
// instance limits by itself, and goes back to sharing.
func TestAwayMeansAlone(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(ctx context.Context) error{
		"refuses": func(context.Context) error { return errors.New("refused") },
		"silent": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &table{fails: fails}
				var log check.Log
				b.idle = map[string]int64{}
				shared := NewShared(b.take, prometheus.NewRegistry(), log.Logger())
				defer shared.Close(context.Background())
				l := New("test", 0, shared)
				check.Must(t, l.Set(model.Rate{Events: 7, Per: time.Hour}, "scope"))
				began := time.Now()
				if n := pass(t, []*Limiter{l}, 50); n != 7 {
					t.Errorf("%d pass with 7 an hour", n)
				}
				if took := time.Since(began); took > budget.Glance {
					t.Errorf("50 requests waited %s", took)
				}
				if !log.Has("this instance alone") {
					t.Errorf("the log says %s", log.String())
				}
				b.mu.Lock()
				b.fails = nil
				b.mu.Unlock()
				<-time.After(2 * budget.Look)
				for range 5 { // other senders
					l.Take(t.Context(), "another")
				}
				if b.asked != 5 || !log.Has("all instances again") {
					t.Errorf("asked %d times after it was well again; the log says %s", b.asked, log.String())
				}
			})
		})
	}
}
