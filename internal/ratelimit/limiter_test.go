package ratelimit

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limiter is a limiter of this instance alone.
func limiter(t *testing.T, rate model.Rate) *Limiter {
	t.Helper()
	l := New("test", 0, nil)
	check.Must(t, l.Set(rate, ""))
	return l
}

// at takes at an instant.
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
			if wait != 0 {
				t.Errorf("%v refuses after 2000", r)
			}
			continue
		}
		if taken != r.Events+1 || wait <= 0 || wait > r.Per {
			t.Fatalf("%v: refuses number %d for %s", r, taken, wait)
		}
		if early := l.at(t, "sender", now.Add(wait-wait/10)); early <= 0 {
			t.Errorf("%v: allowed before its time", r)
		}
		if late := l.at(t, "sender", now.Add(wait)); late != 0 {
			t.Errorf("%v: came back after %s and is to wait %s more", r, wait, late)
		}
		if other := l.at(t, "another", now); other != 0 {
			t.Errorf("%v: another sender waits %s", r, other)
		}
	}
}

func TestTheQuietestIsForgotten(t *testing.T) {
	t.Parallel()
	l := limiter(t, model.Rate{Events: 1, Per: time.Hour})
	now := time.Unix(1_900_000_000, 0)
	l.at(t, "busy", now)
	for i := range maxTracked + 10 {
		l.at(t, strconv.Itoa(i), now)
		if i%1000 == 0 && l.at(t, "busy", now) == 0 {
			t.Fatal("a busy sender is forgotten")
		}
	}
	if n := l.current.Load().senders.Len(); n != maxTracked {
		t.Errorf("%d senders are remembered", n)
	}
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	for _, r := range []model.Rate{{}, {Events: 5}, {Per: time.Second}, {Events: -1, Per: time.Second}} {
		l := limiter(t, r)
		for range 10 {
			if l.Take(t.Context(), "sender") != 0 || !l.Rate().Off() {
				t.Errorf("%v limits", r)
			}
		}
	}
	var none *Limiter
	var nowhere *Addresses
	if none.Take(t.Context(), "sender") != 0 || nowhere.Take(t.Context(), netip.Addr{}) != 0 {
		t.Error("no limiter limits")
	}
}

// TestChangedRate: a new rate counts from anew, the same one goes on.
func TestChangedRate(t *testing.T) {
	t.Parallel()
	l := limiter(t, model.Rate{Events: 1, Per: time.Hour})
	for range 2 {
		check.Must(t, l.Set(model.Rate{Events: 1, Per: time.Hour}, ""))
		l.Take(t.Context(), "sender")
	}
	if l.Take(t.Context(), "sender") == 0 {
		t.Error("the same rate was set again and has forgotten its senders")
	}
	check.Must(t, l.Set(model.Rate{Events: 2, Per: time.Hour}, ""))
	if l.Take(t.Context(), "sender") != 0 {
		t.Error("the new rate is not in force")
	}
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
	check.Must(t, hourly.Set(model.Rate{Events: 2, Per: time.Hour}, ""))
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
	check.Must(t, rush.Set(model.Rate{Events: 100, Per: time.Second}, ""))
	if n := allowed(t, rush, 999, func(int) string { return "192.0.2.1" }); n != 999 {
		t.Errorf("%d pass of a crowd of 999 behind one address", n)
	}
}
