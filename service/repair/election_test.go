package repair

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/service/servicetest"
)

// Work ends when its lock is lost: another instance may have been elected by then.
func TestWorkEndsWithItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := servicetest.NewLocks()
		locks.Lost = true
		e := election{locks: locks, name: "work", log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		ended := 0
		running.Go(func() {
			e.run(ctx, func(ctx context.Context) {
				<-ctx.Done()
				ended++
			})
		})
		<-time.After(electionPause / 2)
		synctest.Wait()
		check.Equal(t, "works that have ended", ended, 1)
		stop()
		running.Wait()
	})
}
