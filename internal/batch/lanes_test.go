package batch_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/batch"
)

// A lane that is held up holds up no other.
func TestLanesWaitForNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lanes := batch.NewLanes(func(word string) string { return word[:1] }, func(ctx context.Context, words []string) ([]string, error) {
			var answers []string
			for _, word := range words {
				if word[0] != words[0][0] {
					t.Errorf("one run of %v", words)
				}
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
				if _, err := lanes.Do(t.Context(), "x"); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("x: %v", err)
				}
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
		if _, err := lanes.Do(t.Context(), "b"); !errors.Is(err, batch.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
