package handler

import (
	"strconv"
	"testing"
	"time"
)

// TestRetryAfterIsTrue: a request after the wait is served, an earlier one is not.
func TestRetryAfterIsTrue(t *testing.T) {
	t.Parallel()
	for _, r := range []Rate{{1, time.Second}, {20, time.Second}, {3, time.Hour}, {1000, time.Minute}, {1_000_000_000, time.Second}} {
		l, err := newLimiter(r)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1_900_000_000, 0)
		var wait time.Duration
		for taken := 0; wait == 0; taken++ {
			if taken > r.Events || taken > 2000 {
				break
			}
			wait = l.take("sender", now)
		}
		if r.Events > 2000 {
			if wait != 0 {
				t.Errorf("%v refuses after 2000", r)
			}
			continue
		}
		if wait <= 0 || wait > r.Per {
			t.Fatalf("%v: wait %s", r, wait)
		}
		if early := l.take("sender", now.Add(wait-wait/10)); early <= 0 {
			t.Errorf("%v: served before its time", r)
		}
		if late := l.take("sender", now.Add(wait+time.Microsecond)); late != 0 {
			t.Errorf("%v: came back after %s and is to wait %s more", r, wait, late)
		}
		if other := l.take("another", now); other != 0 {
			t.Errorf("%v: another sender waits %s", r, other)
		}
	}
}

func TestLimiterForgetsTheQuietest(t *testing.T) {
	t.Parallel()
	l, err := newLimiter(Rate{1, time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_900_000_000, 0)
	l.take("busy", now)
	for i := range maxTracked + 10 {
		l.take(strconv.Itoa(i), now)
		if i%1000 == 0 && l.take("busy", now) == 0 {
			t.Fatal("a busy sender is forgotten")
		}
	}
	if n := l.buckets.Len(); n != maxTracked {
		t.Errorf("%d senders are remembered", n)
	}
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	for _, r := range []Rate{{}, {5, 0}, {0, time.Second}, {-1, time.Second}} {
		l, err := newLimiter(r)
		if err != nil || !l.off() || l.take("sender", time.Now()) != 0 {
			t.Errorf("%v limits: %v", r, err)
		}
	}
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64", "": "", "unknown": "unknown",
	} {
		if got := network(address); got != want {
			t.Errorf("network(%q) = %q, want %q", address, got, want)
		}
	}
}
