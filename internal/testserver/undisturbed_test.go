package testserver

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/poll"
	"seckill/internal/workshop/check"
)

// TestUndisturbed: an attempt is repeated only when the machine stood still in it.
func TestUndisturbed(t *testing.T) {
	t.Parallel()
	errLate := errors.New("late")
	for name, c := range map[string]struct {
		stood    []time.Duration // in each attempt, all of which but the last fail
		attempts int
		fails    bool
	}{
		"succeeds at once":           {[]time.Duration{time.Hour}, 1, false},
		"fails on a running machine": {[]time.Duration{0, 0}, 1, true},
		"stood still once":           {[]time.Duration{time.Hour, 0}, 2, false},
		"stands still for ever":      {slices.Repeat([]time.Duration{time.Hour}, 2*undisturbedTries), undisturbedTries, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := 0
			err := undisturbed(time.Second,
				func() func() time.Duration { return func() time.Duration { return c.stood[made-1] } },
				func() error {
					if made++; made < len(c.stood) {
						return errLate
					}
					return nil
				}, t.Logf)
			if made != c.attempts || c.fails != (err != nil) {
				t.Errorf("%d attempts, %v, want %d, failed %v", made, err, c.attempts, c.fails)
			}
		})
	}
}

// TestWatchGaps: a machine that runs is seen at each tick.
func TestWatchGaps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		longest := watchGaps()
		poll.Pause(t.Context(), time.Minute)
		if gap := longest(); gap != gapTick {
			t.Errorf("a gap of %v, want %v", gap, gapTick)
		}
	})
}

// TestStopwatch: a machine that runs is measured in full, and of one that stands still between two looks only a moment.
func TestStopwatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ tick, want time.Duration }{
		"runs":         {stopwatchTick, time.Minute},
		"stands still": {time.Hour, standstill},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				took := stopwatch(c.tick)
				poll.Pause(t.Context(), time.Minute)
				check.Equal(t, "it took", took(), c.want)
			})
		})
	}
}
