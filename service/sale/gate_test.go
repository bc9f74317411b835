package sale

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/lane"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// A request that has the user's lock and finds the gate full until its time is over gives the lock back: the user may try
// again at once.
func TestAFullGateKeepsNoLock(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.keys.Busy = "lock:order:alice"
		time.AfterFunc(500*time.Millisecond, func() {
			for range maxCommittingOne { // others enter while alice's request waits for its lock
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
		check.Equal(t, "places that are taken", len(s.gate.places.taken), 0)
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

// A burst is served. When one and a half times as much is asked as can be served, what is too much is refused at once, what is
// served does not wait long, and no place is left empty. When less is asked, all are served again.
func TestALastingOverloadIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const serves = 10 * time.Millisecond // with one place
		g := newGate(8, 1)
		var mu sync.Mutex
		var served, refused int
		var longest, longestRefusal time.Duration
		var requests sync.WaitGroup
		ask := func() {
			requests.Go(func() {
				began := time.Now()
				_, err := g.enter(t.Context(), "hot")
				took := time.Since(began)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					check.Equal(t, "the refusal", model.CodeOf(lane.Undone("", err)), model.CodeUnavailable)
					refused++
					longestRefusal = max(longestRefusal, took)
					return
				}
				served++
				longest = max(longest, took)
				time.AfterFunc(serves, func() { g.leave("hot") })
			})
		}
		asks := func(count int, every time.Duration) {
			served, refused, longest = 0, 0, 0
			for range count {
				ask()
				servicetest.Pass(every)
			}
			requests.Wait()
			servicetest.Pass(serves)
		}
		asks(200, 0)
		check.That(t, served == 200 && refused == 0, "a burst: %d served, %d refused", served, refused)

		const asked = 1500 // in 10 s, in which 1000 can be served
		asks(asked, 2*serves/3)
		check.That(t, served >= 1000 && served+refused == asked, "an overload: %d served, %d refused", served, refused)
		check.That(t, longest < 500*time.Millisecond && longestRefusal == 0, "who was served waited %v, who was refused %v", longest, longestRefusal)

		asks(100, serves)
		check.That(t, served == 100 && longest == 0, "afterwards: %d served, the longest wait %v", served, longest)
	})
}
