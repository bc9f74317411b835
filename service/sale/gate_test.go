package sale

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/service/servicetest"
)

// Who got his lock and then finds the gate full until his time is over gives the lock back: he may come again at once.
func TestAFullGateKeepsNoLock(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.keys.Busy = "lock:order:alice"
		time.AfterFunc(500*time.Millisecond, func() {
			for range maxCommittingOne { // others come in while alice waits for her lock
				check.Must(t, check.ErrorOf(s.gate.enter(t.Context(), "v1")))
			}
			s.keys.With(func(l *servicetest.Locks) { l.Busy = "" })
		})
		_ = s.unavailable(t, "alice")
		check.Equal(t, "the lock is held", s.keys.Holds("alice"), false)
		check.Equal(t, "locks taken", s.keys.Taken.Load(), 1)
		for range maxCommittingOne {
			s.gate.leave("v1")
		}
		check.Must(t, check.ErrorOf(s.Place(t.Context(), "alice", "v1")))
		check.Equal(t, "places that are taken", len(s.gate.places), 0)
	})
}

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
