package batch_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/batch"
	"seckill/internal/workshop/check"
)

// A lane that is held up holds up no other.
func TestLanesWaitForNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lanes := batch.NewLanes(func(word string) string { return word[:1] }, func(ctx context.Context, words []string) ([]string, error) {
			var answers []string
			for _, word := range words {
				check.That(t, word[0] == words[0][0], "one run of %v", words)
				answers = append(answers, strings.ToUpper(word))
			}
			if words[0][0] == 'x' {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return answers, nil
		}, batch.Options{Writers: 1, MaxBatch: 100, MaxQueue: 100, Timeout: time.Minute})
		began := time.Now()
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				check.Is(t, "x", check.ErrorOf(lanes.Do(t.Context(), "x")), context.DeadlineExceeded)
			})
		}
		synctest.Wait()
		for range 30 {
			if answer, err := lanes.Do(t.Context(), "a"); answer != "A" || err != nil || time.Since(began) != 0 {
				t.Errorf("a: %q, %v after %v", answer, err, time.Since(began))
			}
		}
		all.Wait()
		lanes.Close(t.Context())
		check.Is(t, "after Close", check.ErrorOf(lanes.Do(t.Context(), "b")), batch.ErrClosed)
	})
}
