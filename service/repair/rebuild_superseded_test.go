package repair

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// A rebuild that waits for the queue may wait for minutes. It ends within a few signs of life when another one has
// superseded it, and does not keep its place from vouchers that are closed.
func TestASupersededRebuildEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	onStage(t, func(t *testing.T, s *stage) {
		s.publish(s.admit("o1", "u1")) // nobody takes it
		ctx, enough := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Rebuilder.rebuild(ctx, "v1", model.AnyEpoch, place{}) }()
		<-time.After(2 * heartbeat)
		synctest.Wait()
		check.Equal(t, "rebuilds that have ended before", len(ended), 0)
		s.mu.Lock()
		s.record.Epoch++
		s.mu.Unlock()
		<-time.After(2 * heartbeat)
		synctest.Wait()
		check.Equal(t, "rebuilds that have ended", len(ended), 1)
		enough()
		check.Is(t, "its end", <-ended, model.ErrSuperseded)
	})
}
