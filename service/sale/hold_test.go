package sale

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/service/servicetest"
)

// Whoever owns the lock gives it back once; who has handed it over gives nothing back, and never had one lost.
func TestTheOwnerOfALockAloneReleasesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := servicetest.NewLocks()
		first := &hold{locks: locks, metrics: telemetry.New(prometheus.NewRegistry()), log: slog.New(slog.DiscardHandler), userID: "alice"}
		first.release(t.Context())
		check.Equal(t, "given back before it was taken", locks.Released.Load(), 0)
		locks.Lost = true
		check.Must(t, first.take(t.Context(), 0))
		check.That(t, first.taken() && first.lost() != nil, "taken %v, lost %v", first.taken(), first.lost())
		second := first.handOver()
		first.release(t.Context())
		check.That(t, !first.taken() && first.lost() == nil && second.taken() && locks.Holds("alice"), "after the handover: %+v, %+v", first, second)
		second.release(t.Context())
		second.release(t.Context())
		check.Equal(t, "given back in the end", locks.Released.Load(), 1)
	})
}
