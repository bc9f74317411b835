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

	"go.uber.org/goleak"

	"seckill/internal/lane"
	"seckill/internal/workshop/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options() lane.Options {
	return lane.Options{Writers: 2, MaxBatch: 100, MaxQueue: 1000, Timeout: time.Minute}
}

// slow is a group whose runs take a time on the bubble's clock, and tells when they began with how many items.
func slow(t *testing.T, takes time.Duration, opts lane.Options) (group *lane.Group[int, int], runs func() string) {
	t.Helper()
	began := time.Now()
	var mu sync.Mutex
	var told []string
	opts.Observe = func(items int) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf("%d at %v", items, time.Since(began)))
	}
	group = lane.New(func(_ context.Context, items []int) ([]int, error) {
		<-time.After(takes)
		return items, nil
	}, opts)
	return group, func() string {
		group.Close(context.Background())
		return strings.Join(told, ", ")
	}
}

func submit(t *testing.T, group *lane.Group[int, int], items int) {
	t.Helper()
	for i := range items {
		check.Must(t, check.ErrorOf(group.Submit(t.Context(), i)))
	}
	synctest.Wait() // those that can run do
}

// TestOneWriterWhileItKeepsUp: what comes during a run goes in one batch, however many writers there may be.
func TestOneWriterWhileItKeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		group, runs := slow(t, 10*time.Millisecond, options())
		submit(t, group, 1)
		for range 9 {
			submit(t, group, 4)
			<-time.After(time.Millisecond)
		}
		check.Equal(t, "runs", runs(), "1 at 0s, 36 at 10ms")
	})
}

// TestWriterThatTakesLongIsRelieved: one other writer takes what waits behind a slow batch, until it is slow too.
func TestWriterThatTakesLongIsRelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		group, runs := slow(t, 80*time.Millisecond, options())
		submit(t, group, 1)
		submit(t, group, 2)
		<-time.After(60 * time.Millisecond)
		submit(t, group, 3) // when the first batch ends, the second has not taken long
		<-time.After(30 * time.Millisecond)
		submit(t, group, 1)
		<-time.After(time.Second)
		submit(t, group, 1)
		check.Equal(t, "runs", runs(), "1 at 0s, 2 at 50ms, 4 at 100ms, 1 at 1.09s")
	})
}

// TestFullBatchDoesNotWait: a batch that cannot grow has no reason to wait for a writer.
func TestFullBatchDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opts := options()
		opts.MaxBatch = 10
		group, runs := slow(t, 10*time.Millisecond, opts)
		submit(t, group, 1)
		submit(t, group, 9)
		submit(t, group, 2)
		check.Equal(t, "runs", runs(), "1 at 0s, 10 at 0s, 1 at 10ms")
	})
}

// TestManyWritersServeEverybody: whatever the writers do, each item runs once, and its caller gets the answer to it.
func TestManyWritersServeEverybody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var items atomic.Int64
		opts := options()
		opts.MaxBatch, opts.Writers = 7, 3
		group := lane.New(func(_ context.Context, batch []int) ([]int, error) {
			items.Add(int64(len(batch)))
			<-time.After(time.Duration(len(batch)*17%130) * time.Millisecond) // also longer than a writer has patience
			answers := make([]int, len(batch))
			for i, item := range batch {
				answers[i] = item * item
			}
			return answers, nil
		}, opts)
		var wg sync.WaitGroup
		for i := range 600 {
			<-time.After(time.Duration(i%5) * time.Millisecond)
			wg.Go(func() {
				check.Equal(t, "the answer to an item", check.Value(group.Do(t.Context(), i))(t), i*i)
			})
		}
		wg.Wait()
		group.Close(t.Context())
		check.Equal(t, "items that ran", items.Load(), 600)
	})
}

func TestCallerThatLeavesBeforeTheRunIsDroppedAndToldSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		opts := options()
		opts.Writers = 1
		group := lane.New(func(_ context.Context, items []string) ([]string, error) {
			seen = append(seen, items...)
			<-time.After(time.Second)
			return items, nil
		}, opts)
		first := check.Value(group.Submit(t.Context(), "first"))(t)
		synctest.Wait()
		leaving, cancel := context.WithCancel(t.Context())
		second := check.Value(group.Submit(leaving, "second"))(t)
		cancel()
		check.Is(t, "Wait after leaving", check.ErrorOf(second.Wait(leaving)), context.Canceled)
		answer, err := first.Wait(t.Context())
		check.That(t, err == nil && answer == "first", "first = %q, %v", answer, err)
		check.Is(t, "second", check.ErrorOf(second.Wait(t.Context())), lane.ErrNotRun)
		group.Close(t.Context())
		check.That(t, len(seen) == 1, "ran %v, want the first only", seen)
	})
}

func TestCallerThatLeavesDuringTheRunCanStillLearnTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		group := lane.New(func(ctx context.Context, items []string) ([]string, error) {
			<-time.After(time.Second)
			return items, ctx.Err()
		}, options())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		ticket := check.Value(group.Submit(ctx, "late"))(t)
		check.Is(t, "Wait", check.ErrorOf(ticket.Wait(ctx)), context.DeadlineExceeded)
		answer, err := ticket.Wait(t.Context())
		check.That(t, err == nil && answer == "late", "Wait again = %q, %v; want the answer", answer, err)
		group.Close(t.Context())
	})
}

func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	started := make(chan struct{}, 1)
	opts := options()
	opts.Writers, opts.MaxBatch, opts.MaxQueue = 1, 1, 2
	group := lane.New(func(_ context.Context, items []int) ([]int, error) {
		started <- struct{}{}
		<-release
		return items, nil
	}, opts)
	check.Must(t, check.ErrorOf(group.Submit(t.Context(), 0)))
	<-started
	for i := range 2 {
		_, err := group.Submit(t.Context(), i)
		check.Need(t, err == nil, "item %d: %v", i, err)
	}
	check.Is(t, "Submit beyond the bound", check.ErrorOf(group.Submit(t.Context(), 3)), lane.ErrFull)
	go func() {
		for range started { // let the rest run
		}
	}()
	close(release)
	group.Close(t.Context())
	group.Close(t.Context())
	close(started)
	check.Is(t, "Submit after Close", check.ErrorOf(group.Submit(t.Context(), 4)), lane.ErrClosed)
}

func TestFailedBatchesFailTheirItemsOnly(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, run := range map[string]lane.Run[int, int]{
		"error":       func(context.Context, []int) ([]int, error) { return nil, broken },
		"panic":       func(context.Context, []int) ([]int, error) { panic("broken") },
		"few answers": func(context.Context, []int) ([]int, error) { return []int{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := lane.New(run, options())
			defer group.Close(context.Background())
			for range 3 { // the writers survive
				if _, err := group.Do(t.Context(), 1); err == nil {
					t.Error("Do succeeded")
				}
			}
		})
	}
}

func TestCloseInAHurryCancelsTheRunsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		group := lane.New(func(ctx context.Context, _ []int) ([]int, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, options())
		ticket := check.Value(group.Submit(t.Context(), 1))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		group.Close(ctx)
		took := time.Since(began)
		check.That(t, took == time.Second, "Close took %v, want until its context ended", took)
		check.Is(t, "the item got", check.ErrorOf(ticket.Wait(t.Context())), context.Canceled)
	})
}

// keyed groups words by their first letter: a run takes a second, one of "x" until its context ends.
func keyed(t *testing.T, runs *atomic.Int64, opts lane.Options) func(ctx context.Context, word string) (string, error) {
	t.Helper()
	k := lane.NewKeyed(func(word string) string { return word[:1] },
		func(ctx context.Context, words []string) ([]string, error) {
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

// An item of a chain has its answer when a later lane is done with it; who waits sees nothing of the first one.
func TestChainAnswersWhenALaterLaneIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		later, runs := slow(t, time.Second, options())
		key := func(int) string { return "" }
		first := lane.NewKeyed(key, func(_ context.Context, items []int) ([]int, error) { return items, nil }, options())
		first.Chain(func(answer int, finish func()) {
			ticket, err := later.Submit(t.Context(), answer)
			if err != nil || answer == 7 {
				finish()
				return
			}
			ticket.Then(finish)
		})
		began := time.Now()
		for _, item := range []int{8, 7} {
			want := map[int]time.Duration{8: time.Second}[item]
			ticket := check.Value(first.Submit(t.Context(), item))(t)
			got, err := ticket.Wait(t.Context())
			check.That(t, got == item && err == nil && time.Since(began) == want, "%d: %d, %v after %v", item, got, err, time.Since(began))
			called := false
			ticket.Then(func() { called = true })
			check.That(t, called, "what comes after the answer of %d is not called", item)
			began = time.Now()
		}
		first.Close(t.Context())
		_ = runs()
	})
}

func TestKeysShareNoRunAndWaitForNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		do := keyed(t, &runs, lane.Options{MaxBatch: 100, MaxQueue: 100, Timeout: time.Minute})
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := do(t.Context(), "x"); !errors.Is(err, context.DeadlineExceeded) ||
				time.Since(began) != time.Minute {
				t.Errorf("x: %v after %v", err, time.Since(began))
			}
		})
		for i := range 50 {
			for _, key := range []string{"a", "b"} {
				all.Go(func() {
					word := fmt.Sprint(key, i)
					got, err := do(t.Context(), word)
					check.That(t, err == nil && got == strings.ToUpper(word) && time.Since(began) <= 2*time.Second,
						"%s: %q, %v after %v", word, got, err, time.Since(began))
				})
			}
		}
		all.Wait()
		// One run of x; of a and b one or two, because the first may begin before the last is there.
		n := runs.Load()
		check.That(t, n >= 3 && n <= 5, "%d runs", n)
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
				_, err := do(ctx, word)
				check.That(t, errors.Is(err, want), "%s: %v, want %v", word, err, want)
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
