package budget_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
)

// Requests of the same tenth of a second end together, none too early, and what derives from them ends with them. A
// hang-up ends what a request has made its own.
func TestDeadlinesAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bounds := budget.NewDeadlines(budget.Look)
		client, hangUp := context.WithCancel(t.Context())
		began := time.Now()
		first := bounds.Bound(client)
		<-time.After(2 * budget.Blink)
		second := bounds.Bound(t.Context())
		<-time.After(budget.Blink)
		third := bounds.Bound(t.Context())
		check.That(t, first.Done() == second.Done() && second.Done() != third.Done(), "they are not shared by time")
		derived, done := context.WithCancel(first)
		defer done()
		own, finished := budget.Own(first)
		defer finished()
		hangUp()
		<-own.Done()
		check.Is(t, "a request of which the client hung up", own.Err(), context.Canceled)
		check.Is(t, "where it waits for nobody", first.Err(), nil)
		<-derived.Done()
		end, _ := second.Deadline()
		for _, ctx := range []context.Context{first, second, derived} {
			check.Is(t, "its time is over", ctx.Err(), context.DeadlineExceeded)
		}
		check.That(t, time.Now().Equal(end) && end.Sub(began) == budget.Look+2*budget.Blink, "after %v, to end at %v", time.Since(began), end)
		<-third.Done()
		check.Equal(t, "a later one", time.Since(began), budget.Look+5*budget.Blink)
	})
}
