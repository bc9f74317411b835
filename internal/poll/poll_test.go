package poll_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/poll"
	"seckill/internal/workshop/check"
)

func TestEveryLooksAtEachTickUntilTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		looks := 0
		poll.Every(ctx, time.Second, func() { looks++ })
		check.That(t, looks == 3, "%d looks in 3.5 s, want 3", looks)
	})
}

func TestUntilLooksAtOnceAndEndsWithItsReason(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		look func(n int) (bool, error)
		want error
		took time.Duration
	}{
		"done at once":  {func(int) (bool, error) { return true, nil }, nil, 0},
		"done later":    {func(n int) (bool, error) { return n == 3, nil }, nil, 2 * time.Second},
		"fails":         {func(n int) (bool, error) { return n == 2, broken }, broken, 0},
		"never is done": {func(int) (bool, error) { return false, nil }, context.DeadlineExceeded, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began, looks := time.Now(), 0
				err := poll.Until(ctx, time.Second, func() (bool, error) { looks++; return test.look(looks) })
				check.That(t, errors.Is(err, test.want) && time.Since(began) == test.took,
					"it returns %v after %v, want %v after %v", err, time.Since(began), test.want, test.took)
			})
		})
	}
}

func TestInsistReturnsWhatFailedAndNotThatTimeIsUp(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		do       func(ctx context.Context, n int) (bool, error)
		want     error
		attempts int
		took     time.Duration
	}{
		"done at once":      {func(context.Context, int) (bool, error) { return true, nil }, nil, 1, 0},
		"done at the third": {func(_ context.Context, n int) (bool, error) { return n == 3, nil }, nil, 3, 3 * time.Second},
		"done, and failed":  {func(context.Context, int) (bool, error) { return true, broken }, broken, 1, 0},
		"never done":        {func(context.Context, int) (bool, error) { return false, broken }, broken, 4, 10 * time.Second},
		"the end of its time": {func(ctx context.Context, n int) (bool, error) {
			if n == 1 {
				return false, broken
			}
			<-ctx.Done()
			return false, ctx.Err()
		}, broken, 2, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began, attempts := time.Now(), 0
				err := poll.Insist(ctx, time.Second, 4*time.Second,
					func() (bool, error) { attempts++; return test.do(ctx, attempts) })
				check.Is(t, "it returns", err, test.want)
				check.That(t, attempts == test.attempts && time.Since(began) == test.took, "%d attempts in %v",
					attempts, time.Since(began))
			})
		})
	}
}
