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
	ctx, cancel := context.WithCancel(context.Background())
	var gap time.Duration
	last := time.Now()
	look := func() {
		now := time.Now()
		gap, last = max(gap, now.Sub(last)), now
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		poll.Every(ctx, gapTick, look)
	}()
	return func() time.Duration {
		cancel()
		<-done
		look()
		return gap
	}
}
