package lane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/lane"
	"seckill/internal/workshop/check"
)

// keyed groups words by their first letter: a run takes a second, one of "x" until its
// context ends.
func keyed(t *testing.T, runs *atomic.Int64, opts lane.Options) func(ctx context.Context, word string) (string, error) {
	t.Helper()
	k := lane.NewKeyed(func(word string) string { return word[:1] }, func(ctx context.Context, words []string) ([]string, error) {
		runs.Add(1)
		var answers []string
		for _, word := range words {
			check.That(t, word[0] == words[0][0], "one run of %v", words)
			answers = append(answers, strings.ToUpper(word))
		}
		if words[0][0] == 'x' {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		<-time.After(time.Second)
		return answers, nil
	}, opts)
	t.Cleanup(func() {
		k.Close(context.Background())
		check.Is(t, "after Close", check.ErrorOf(k.Do(t.Context(), "a")), lane.ErrClosed)
	})
	return k.Do
}

func TestKeysShareNoRunAndWaitForNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		do := keyed(t, &runs, lane.Options{MaxBatch: 100, MaxQueue: 100, Timeout: time.Minute})
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := do(t.Context(), "x"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
				t.Errorf("x: %v after %v", err, time.Since(began))
			}
		})
		for i := range 50 {
			for _, key := range []string{"a", "b"} {
				all.Go(func() {
					word := fmt.Sprint(key, i)
					got, err := do(t.Context(), word)
					check.That(t, err == nil && got == strings.ToUpper(word) && time.Since(began) <= 2*time.Second, "%s: %q, %v after %v", word, got, err, time.Since(began))
				})
			}
		}
		all.Wait()
		if n := runs.Load(); n < 3 || n > 5 { // one of x; of a and b one or two, as the first may begin before the last is there
			t.Errorf("%d runs", n)
		}
		if _, err := do(t.Context(), "a"); err != nil { // its writer had ended
			t.Error(err)
		}
	})
}

func TestEachKeyHasItsBoundAndDropsWhoLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		do := keyed(t, &runs, lane.Options{MaxBatch: 100, MaxQueue: 2, Timeout: time.Minute})
		var all sync.WaitGroup
		put := func(ctx context.Context, word string, want error) {
			all.Go(func() {
				if _, err := do(ctx, word); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", word, err, want)
				}
			})
			synctest.Wait()
		}
		leaving, leave := context.WithCancel(t.Context())
		put(t.Context(), "a-runs", nil)
		put(t.Context(), "a-waits", nil)
		put(leaving, "a-leaves", context.Canceled)
		put(t.Context(), "a-is-too-many", lane.ErrFull)
		put(t.Context(), "b-has-its-own", nil)
		leave()
		all.Wait()
		check.Equal(t, "runs", runs.Load(), 3)
	})
}

// TestTotalBoundsTheRunsOfAllKeys: a key whose turn has not come gathers its items.
func TestTotalBoundsTheRunsOfAllKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		do := keyed(t, &runs, lane.Options{Total: 2, MaxBatch: 100, MaxQueue: 100, Timeout: time.Minute})
		began := time.Now()
		var all sync.WaitGroup
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			all.Go(func() { _, _ = do(t.Context(), key) })
			synctest.Wait()
		}
		all.Go(func() { _, _ = do(t.Context(), "e2") })
		synctest.Wait()
		check.Equal(t, "runs at once", runs.Load(), 2)
		all.Wait()
		check.Equal(t, "runs", runs.Load(), 5)
		check.Equal(t, "time", time.Since(began), 3*time.Second)
	})
}
