package ratelimit

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func limiter(t *testing.T, rate model.Rate) *Limiter {
	t.Helper()
	l := New("test", 0, nil)
	l.Set(rate, "")
	return l
}

func (l *Limiter) at(t *testing.T, key string, now time.Time) time.Duration {
	t.Helper()
	return l.take(t.Context(), l.current.Load(), key, now)
}

// TestTheWaitIsTrue: an event after the wait is allowed, an earlier one is not.
func TestTheWaitIsTrue(t *testing.T) {
	t.Parallel()
	for _, r := range []model.Rate{
		{Events: 1, Per: time.Second},
		{Events: 20, Per: time.Second},
		{Events: 3, Per: time.Hour},
		{Events: 1000, Per: time.Minute},
		{Events: 1_000_000_000, Per: time.Second},
	} {
		l := limiter(t, r)
		now := time.Unix(1_900_000_000, 0)
		var wait time.Duration
		taken := 0
		for ; wait == 0 && taken <= 2000; taken++ {
			wait = l.at(t, "sender", now)
		}
		if r.Events > 2000 {
			check.That(t, wait == 0, "%v refuses after 2000", r)
			continue
		}
		check.Need(t, taken == r.Events+1 && wait > 0 && wait <= r.Per, "%v: refuses number %d for %s", r, taken, wait)
		early := l.at(t, "sender", now.Add(wait-wait/10))
		check.That(t, early > 0, "%v: allowed before its time", r)
		late := l.at(t, "sender", now.Add(wait))
		check.That(t, late == 0, "%v: came back after %s and is to wait %s more", r, wait, late)
		other := l.at(t, "another", now)
		check.That(t, other == 0, "%v: another sender waits %s", r, other)
	}
}

func TestTheQuietestIsForgotten(t *testing.T) {
	t.Parallel()
	l := limiter(t, model.Rate{Events: 1, Per: time.Hour})
	now := time.Unix(1_900_000_000, 0)
	l.at(t, "busy", now)
	for i := range maxTracked + 10 {
		l.at(t, strconv.Itoa(i), now)
		check.Need(t, i%1000 != 0 || l.at(t, "busy", now) != 0, "a busy sender is forgotten")
	}
	n := l.current.Load().senders.Len()
	check.That(t, n == maxTracked, "%d senders are remembered", n)
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	for _, r := range []model.Rate{{}, {Events: 5}, {Per: time.Second}, {Events: -1, Per: time.Second}} {
		l := limiter(t, r)
		for range 10 {
			check.That(t, l.Take(t.Context(), "sender") == 0 && l.Rate().Off(), "%v limits", r)
		}
	}
	check.That(t, NewAddresses(nil).Take(t.Context(), netip.Addr{}) == 0, "addresses are limited before a rate is set")
}

// TestChangedRate: a new rate counts from anew, the same one goes on.
func TestChangedRate(t *testing.T) {
	t.Parallel()
	l := limiter(t, model.Rate{Events: 1, Per: time.Hour})
	for range 2 {
		l.Set(model.Rate{Events: 1, Per: time.Hour}, "")
		l.Take(t.Context(), "sender")
	}
	check.That(t, l.Take(t.Context(), "sender") != 0, "the same rate was set again and has forgotten its senders")
	l.Set(model.Rate{Events: 2, Per: time.Hour}, "")
	check.That(t, l.Take(t.Context(), "sender") == 0, "the new rate is not in force")
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := Network(netip.MustParseAddr(address)); got != want {
			t.Errorf("Network(%q) = %q, want %q", address, got, want)
		}
	}
	if got := Network(netip.Addr{}); got != "invalid IP" {
		t.Errorf("no address is %q", got)
	}
}

// allowed counts what a limit lets pass of n requests, each from the next address.
func allowed(t *testing.T, a *Addresses, n int, address func(i int) string) (passed int) {
	t.Helper()
	for i := range n {
		if a.Take(t.Context(), netip.MustParseAddr(address(i))) == 0 {
			passed++
		}
	}
	return passed
}

// TestAddresses: a /64 has one limit, a /48 sixteen times as much, and a crowd behind one address may come at once.
func TestAddresses(t *testing.T) {
	t.Parallel()
	hourly := NewAddresses(nil)
	hourly.Set(model.Rate{Events: 2, Per: time.Hour}, "")
	if n := allowed(t, hourly, 10, func(i int) string { return "2001:db8::" + strconv.Itoa(i) }); n != 2 {
		t.Errorf("%d pass from one /64", n)
	}
	if n := allowed(t, hourly, 99, func(i int) string { return "2001:db8:7:" + strconv.Itoa(i) + "::1" }); n != 2*site {
		t.Errorf("%d pass from one /48", n)
	}
	if n := allowed(t, hourly, 10, func(i int) string { return "192.0.2." + strconv.Itoa(i) }); n != 10 {
		t.Errorf("%d pass from ten IPv4 addresses", n)
	}
	rush := NewAddresses(nil)
	rush.Set(model.Rate{Events: 100, Per: time.Second}, "")
	if n := allowed(t, rush, 999, func(int) string { return "192.0.2.1" }); n != 999 {
		t.Errorf("%d pass of a crowd of 999 behind one address", n)
	}
}

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

// sharing is a limiter of one instance, which shares what take keeps.
func sharing(
	t *testing.T, rate model.Rate, take func(context.Context, []Ask) ([]Verdict, error),
) (*Limiter, *check.Log) {
	t.Helper()
	log := &check.Log{}
	shared := NewShared(take, prometheus.NewRegistry(), log.Logger())
	t.Cleanup(func() { shared.Close(context.Background()) })
	l := New("test", 0, shared)
	l.Set(rate, "scope")
	return l, log
}

// pass counts what instances let pass of n requests of one sender, by turns.
func pass(t *testing.T, n int, list ...*Limiter) (passed int) {
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
			b, list := &table{idle: map[string]int64{}}, make([]*Limiter, tt.instances)
			for i := range list {
				list[i], _ = sharing(t, model.Rate{Events: tt.events, Per: 24 * time.Hour}, b.take)
			}
			n := pass(t, 5*tt.events, list...)
			check.That(t, n >= tt.events && n <= tt.most, "%d instances let %d pass with %d a day", tt.instances, n,
				tt.events)
		})
	}
}

// TestTheFirstRequestsAskNobody: a quarter of the quota, and every refusal, costs no call, in each sale anew.
func TestTheFirstRequestsAskNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &table{idle: map[string]int64{}}
		l, _ := sharing(t, model.Rate{Events: 20, Per: time.Second}, b.take)
		for _, step := range []struct {
			rest                  time.Duration
			requests, pass, asked int
		}{{0, 5, 5, 0}, {0, 1, 1, 1}, {0, 14, 14, 15}, {0, 1000, 0, 15}, {time.Second, 5, 5, 15}} {
			<-time.After(step.rest)
			passed := pass(t, step.requests, l)
			check.That(t, passed == step.pass && b.asked <= step.asked && (b.asked > 0) == (step.asked > 0),
				"%+v: %d pass, %d asked", step, passed, b.asked)
		}
	})
}

// TestAwayMeansAlone: without answers the instance limits alone, tries once a second, and then shares again.
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
				b := &table{fails: fails, idle: map[string]int64{}}
				l, log := sharing(t, model.Rate{Events: 7, Per: time.Hour}, b.take)
				began := time.Now()
				check.Equal(t, "pass with 7 an hour", pass(t, 50, l), 7)
				took := time.Since(began)
				check.That(t, took <= budget.Glance, "50 requests waited %s", took)
				check.That(t, log.Has("this instance alone"), "the log says %s", log.String())
				b.mu.Lock()
				b.fails = nil
				b.mu.Unlock()
				<-time.After(2 * budget.Look)
				for range 5 { // other senders
					l.Take(t.Context(), "another")
				}
				check.That(t, b.asked == 5 && log.Has("all instances again"),
					"asked %d times after it was well again; the log says %s", b.asked, log.String())
			})
		})
	}
}

// told is what the instances share, as the test tells it, and what it was asked.
type told struct {
	mu      sync.Mutex
	verdict Verdict
	away    error
	asked   []Ask
}

func (s *told) take(_ context.Context, asks []Ask) ([]Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return nil, s.away
	}
	s.asked = append(s.asked, asks...)
	verdicts := make([]Verdict, len(asks))
	for i := range verdicts {
		verdicts[i] = s.verdict
	}
	return verdicts, nil
}

func (s *told) says(verdict Verdict, away error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdict, s.away = verdict, away
}

// beside runs a test of one limiter, which asks for every event, beside what the instances share.
func beside(t *testing.T, test func(t *testing.T, l *Limiter, s *told)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &told{}
		l, _ := sharing(t, model.Rate{Events: smallest - 1, Per: time.Hour}, s.take)
		test(t, l, s)
	})
}

// TestWhatIsRefusedIsNotCounted: a sender who waits as told, and loses each turn to others, has used no quota.
func TestWhatIsRefusedIsNotCounted(t *testing.T) {
	t.Parallel()
	beside(t, func(t *testing.T, l *Limiter, s *told) {
		s.says(Verdict{Wait: time.Second}, nil)
		for range 2 * smallest {
			check.Equal(t, "the wait", l.Take(t.Context(), "sender"), time.Second)
			<-time.After(time.Second)
			synctest.Wait()
		}
		s.says(Verdict{}, nil)
		check.Equal(t, "the wait once its turn has come", l.Take(t.Context(), "sender"), 0)
	})
}

// TestAnOutageIsReported: what an instance let pass while nothing was shared counts for all instances afterwards.
func TestAnOutageIsReported(t *testing.T) {
	t.Parallel()
	beside(t, func(t *testing.T, l *Limiter, s *told) {
		s.says(Verdict{}, errors.New("connection refused"))
		for range 4 {
			check.Equal(t, "the wait during the outage", l.Take(t.Context(), "sender"), 0)
		}
		s.says(Verdict{}, nil)
		<-time.After(2 * budget.Look)
		synctest.Wait()
		check.Equal(t, "the wait after it", l.Take(t.Context(), "sender"), 0)
		check.That(t, len(s.asked) == 1 && s.asked[0].Used == 4,
			"asked %+v, want one question that reports 4 events", s.asked)
		check.Equal(t, "the next wait", l.Take(t.Context(), "sender"), 0)
		check.Equal(t, "what the next question reports", s.asked[1].Used, 0)
	})
}

// TestWhoHangsUpSaysNothingOfRedis: a client that is gone is limited as any other, and the next one asks.
func TestWhoHangsUpSaysNothingOfRedis(t *testing.T) {
	t.Parallel()
	beside(t, func(t *testing.T, l *Limiter, s *told) {
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		check.Equal(t, "the wait of who is gone", l.Take(gone, "sender"), 0)
		check.Equal(t, "the next one's", l.Take(t.Context(), "another"), 0)
		check.Equal(t, "questions", len(s.asked), 2)
	})
}

// TestAnotherRateIsCountedByItself: shared counts of the old rate say nothing about a new one of another weight.
func TestAnotherRateIsCountedByItself(t *testing.T) {
	t.Parallel()
	beside(t, func(t *testing.T, l *Limiter, s *told) {
		l.Take(t.Context(), "sender")
		l.Set(model.Rate{Events: smallest - 2, Per: time.Hour}, "scope")
		l.Take(t.Context(), "sender")
		check.That(t, len(s.asked) == 2 && s.asked[0].Key != s.asked[1].Key, "asked %+v, want two names", s.asked)
	})
}

// TestBrake: an address that has heard a thousand refusals hears the next a second later, and another address does not.
func TestBrake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		brake := NewBrake()
		flood, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		held := brake.Hold
		for n := range 1000 {
			if d := held(t.Context(), flood); d > 0 {
				t.Fatalf("refusal %d was held back for %v", n, d)
			}
		}
		const connections, length = 500, 10 * time.Second
		var heard atomic.Int64
		ctx, stop := context.WithTimeout(t.Context(), length)
		defer stop()
		var all sync.WaitGroup
		for range connections {
			all.Go(func() {
				for ctx.Err() == nil {
					brake.Hold(ctx, flood)
					heard.Add(1)
					<-time.After(time.Millisecond) // until its next refusal
				}
			})
		}
		<-time.After(length / 2)
		if d := held(t.Context(), other); d > 0 {
			t.Errorf("another address was held back for %v", d)
		}
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, leave)
		if d := held(gone, flood); d > time.Millisecond {
			t.Errorf("a client that had left was held back for %v", d)
		}
		all.Wait()
		// 500 a second that are held back, and 100 that are not.
		if n := heard.Load(); n > 6500 || n < 5000 {
			t.Errorf("%d refusals within %v on %d connections", n, length, connections)
		}
	})
}

// TestBrakeIsBounded: a flood from everywhere is refused at once instead of kept.
func TestBrakeIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		brake := NewBrake()
		address := netip.MustParseAddr("192.0.2.1")
		for range 1000 {
			brake.Hold(t.Context(), address)
		}
		var late atomic.Int64
		var all sync.WaitGroup
		for range 5000 {
			all.Go(func() {
				if brake.Hold(t.Context(), address) == budget.Look {
					late.Add(1)
				}
			})
		}
		all.Wait()
		check.Equal(t, "refusals held back at once", late.Load(), 2000)
	})
}
