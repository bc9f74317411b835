package backoff_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seckill/internal/backoff"
	"seckill/internal/workshop/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }

func policy() backoff.Policy {
	return backoff.Policy{Free: 3, First: time.Second, Longest: 30 * time.Second, Forget: time.Minute}
}

// Nothing grows beyond the longest wait, however often something fails, and a wait that is too long at first is cut.
func TestDoubled(t *testing.T) {
	t.Parallel()
	for times, want := range map[int]time.Duration{-1: 3, 0: 3, 1: 6, 2: 12, 3: 20, 4: 20, 1 << 40: 20} {
		check.Equal(t, fmt.Sprintf("3 ns doubled %d times", times), backoff.Doubled(3, 20, times), want)
	}
	check.Equal(t, "a first wait beyond the longest one", backoff.Doubled(30, 20, 0), 20)
}

func failures(t *testing.T, size int) (*backoff.Failures, *clock) {
	t.Helper()
	c := &clock{time.Unix(1_000_000, 0)}
	return backoff.New(policy(), size, c.now), c
}

func TestWaitsGrowAndAreBounded(t *testing.T) {
	t.Parallel()
	f, c := failures(t, 10)
	var waits []time.Duration
	for range 12 {
		f.Begin("a")
		waits = append(waits, f.Wait("a"))
		c.pass(f.Wait("a"))
		check.Need(t, f.Wait("a") == 0, "it waits on when the wait has passed")
	}
	const s = time.Second
	want := []time.Duration{0, 0, 0, s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s, 30 * s, 30 * s}
	check.That(t, slices.Equal(waits, want), "waits: %v, want %v", waits, want)
	check.That(t, f.Wait("b") == 0 && f.Clean("b"), "another key waits, too")
}

// Hundreds of failures count as a few: after Longest the key may try, and minutes later they are forgotten.
func TestNobodyWaitsForGood(t *testing.T) {
	t.Parallel()
	f, c := failures(t, 10)
	for range 1000 {
		f.Begin("a")
	}
	check.That(t, f.Wait("a") == 30*time.Second, "Wait = %s after a thousand failures", f.Wait("a"))
	c.pass(30 * time.Second)
	check.That(t, f.Wait("a") == 0, "it waits longer than it was told")
	c.pass(8 * time.Minute)
	check.That(t, !f.Clean("a"), "nine failures are forgotten in eight and a half minutes")
	c.pass(time.Minute)
	check.That(t, f.Clean("a"), "they are never forgotten")
	if f.Begin("a"); f.Wait("a") != 0 {
		t.Error("one failure is free again")
	}
}

func TestWhatIsTakenBackDoesNotCount(t *testing.T) {
	t.Parallel()
	f, c := failures(t, 10)
	for range 100 {
		f.TakeBack(f.Begin("a"))
	}
	check.That(t, f.Wait("a") == 0 && f.Clean("a"), "successes made it wait")
	// Many at once are as many failures until each has turned out well.
	var begun []backoff.Attempt
	for range 5 {
		begun = append(begun, f.Begin("a"))
	}
	check.That(t, f.Wait("a") == 2*time.Second, "Wait = %s with five under way", f.Wait("a"))
	for _, attempt := range begun {
		f.TakeBack(attempt)
	}
	check.That(t, f.Wait("a") == 0 && f.Clean("a"), "Wait = %s when all have turned out well", f.Wait("a"))
	// One that turns out well ends no wait that another one began.
	for range 3 {
		f.Begin("b")
	}
	good := f.Begin("b")
	c.pass(time.Second)
	f.Begin("b")
	f.TakeBack(good)
	check.That(t, f.Wait("b") == 2*time.Second, "Wait = %s", f.Wait("b"))
}

func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	f, _ := failures(t, 10)
	for range 9 {
		f.Begin("victim")
	}
	for n := range 9 {
		f.Begin(fmt.Sprint(n))
	}
	check.That(t, f.Wait("victim") == 30*time.Second, "it was forgotten while there was room")
	f.Begin("9")
	check.That(t, f.Wait("victim") == 0, "eleven keys are remembered, and ten were meant")
}
