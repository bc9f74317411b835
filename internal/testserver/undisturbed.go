package testserver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"seckill/internal/poll"
)

const (
	// undisturbedTries: a machine that stands still in each of so many attempts is not one to measure time on.
	undisturbedTries = 5
	// gapTick is how often it is seen that the machine runs.
	gapTick = 10 * time.Millisecond
	// standstill is how much a Stopwatch counts at the most of a time in which the machine stood still. stopwatchTick is
	// so much less that a machine that is only slow is measured in full.
	standstill    = 250 * time.Millisecond
	stopwatchTick = standstill / 5
)

// Undisturbed is for a bound of time. It repeats an attempt that failed while this process stood still for longer than gap,
// because such a failure shows nothing: the bound is promised for a machine that runs. A failure on a machine that ran
// fails the test at once. Each attempt needs names of its own. gap is what the bound has to spare.
func Undisturbed(t testing.TB, gap time.Duration, attempt func() error) {
	t.Helper()
	if err := undisturbed(gap, watchGaps, attempt, t.Logf); err != nil {
		t.Fatal(err)
	}
}

func undisturbed(gap time.Duration, watch func() (longest func() time.Duration), attempt func() error, logf func(string, ...any)) error {
	for range undisturbedTries {
		longest := watch()
		err := attempt()
		stood := longest()
		if err == nil {
			return nil
		}
		if stood <= gap {
			return fmt.Errorf("%w (and the machine ran: it stood still for %v at the most)", err, stood)
		}
		logf("again, because the machine stood still for %v: %v", stood, err)
	}
	return fmt.Errorf("the machine stood still for more than %v in each of %d attempts", gap, undisturbedTries)
}

// watchGaps watches that time passes in small steps, until it is asked for the longest one.
func watchGaps() (longest func() time.Duration) {
	var gap time.Duration
	end := watch(gapTick, func(step time.Duration) { gap = max(gap, step) })
	return func() time.Duration {
		end()
		return gap
	}
}

// Stopwatch measures how long something takes while this process runs: each time in which it stands still counts as a
// quarter of a second at the most. It is for a bound of something that cannot be done again.
func Stopwatch() (took func() time.Duration) { return stopwatch(stopwatchTick) }

func stopwatch(tick time.Duration) (took func() time.Duration) {
	var ran time.Duration
	end := watch(tick, func(step time.Duration) { ran += min(step, standstill) })
	return func() time.Duration {
		end()
		return ran
	}
}

// watch looks at each tick how much time has passed, and once more in the end.
func watch(tick time.Duration, passed func(step time.Duration)) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	last := time.Now()
	look := func() {
		now := time.Now()
		passed(now.Sub(last))
		last = now
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		poll.Every(ctx, tick, look)
	}()
	return func() {
		cancel()
		<-done
		look()
	}
}
