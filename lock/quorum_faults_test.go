//go:build faults

//part:locks

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// trio is three independent instances of a test's own.
type trio struct {
	t       *testing.T
	servers []*testserver.Server
	direct  []*redis.Client
}

func newTrio(t *testing.T, args ...string) *trio {
	t.Helper()
	tr := &trio{t: t}
	for range 3 {
		s := testserver.Redis(t, args...)
		tr.servers, tr.direct = append(tr.servers, s), append(tr.direct, dial(t, s.URL()))
	}
	return tr
}

// parts makes what one process would: clients of its own.
func (tr *trio) parts(opts ...lock.RedisOption) (parts []lock.Locker) {
	tr.t.Helper()
	for _, s := range tr.servers {
		parts = append(parts, newLocks(tr.t, redisStore(dial(tr.t, s.URL()), opts...)).Mutex("k"))
	}
	return parts
}

// noOrphans waits until nobody has the lock on the instances from that one on.
func (tr *trio) noOrphans(from int) {
	tr.t.Helper()
	for i, client := range tr.direct[from:] {
		check.Eventually(tr.t, fmt.Sprintf("no orphan on instance %d", from+i), func() bool {
			n, err := client.Exists(context.Background(), "k").Result()
			return err == nil && n == 0
		})
	}
}

// letGo unlocks, but does not wait for an instance that does not answer. It returns what the unlock said.
func (tr *trio) letGo(lease *lock.Lease) error {
	tr.t.Helper()
	ctx, enough := context.WithCancel(tr.t.Context())
	defer enough()
	said := make(chan error, 1)
	go func() { said <- lease.UnlockContext(ctx) }()
	tr.noOrphans(1)
	enough()
	return check.Receive(tr.t, "the unlock", said)
}

// TestQuorumFaultsOnServers is TestQuorumFaults with three Redis servers. What times out there is canceled here.
func TestQuorumFaultsOnServers(t *testing.T) {
	t.Parallel()
	faults := map[string]struct {
		strike, mend func(*testserver.Server)
		answers      bool // the instance still answers, as an empty one
	}{
		"killed":  {strike: (*testserver.Server).Kill, mend: (*testserver.Server).Start},
		"stopped": {strike: (*testserver.Server).Pause, mend: (*testserver.Server).Resume},
		"restarted empty": {strike: func(s *testserver.Server) {
			s.Kill()
			s.ClearData()
			s.Start()
		}, mend: func(*testserver.Server) {}, answers: true},
	}
	for what, f := range faults {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t, "--appendonly", "no")
			one, two := tr.parts(), tr.parts()
			for _, p := range [][]lock.Locker{one, two} {
				mustUnlock(t, mustLock(t, t.Context(), lock.All(p...)))
			}
			lease := mustLock(t, t.Context(), lock.Majority(one...))
			f.strike(tr.servers[0])
			check.Is(t, "a second holder", check.ErrorOf(lock.Majority(two...).TryLock(t.Context())), lock.ErrHeld)
			check.Is(t, "the lease", context.Cause(lease.Context()), nil)
			if err := tr.letGo(lease); errors.Is(err, lock.ErrLost) {
				t.Errorf("unlock: %v", err)
			}
			_ = tr.letGo(mustLock(t, t.Context(), lock.Majority(two...)))
			if !f.answers {
				if _, err := lock.All(one...).TryLock(check.Expiring(t)); err == nil || errors.Is(err, lock.ErrHeld) {
					t.Errorf("all, one %s: %v", what, err)
				}
				f.strike(tr.servers[1])
				if _, err := lock.Majority(one...).Lock(check.Expiring(t)); err == nil || errors.Is(err, lock.ErrTimeout) {
					t.Errorf("majority, two %s: %v", what, err)
				}
				tr.noOrphans(2)
				f.mend(tr.servers[1])
			}
			f.mend(tr.servers[0])
			tr.noOrphans(0)
			mustUnlock(t, mustLock(t, t.Context(), lock.All(two...)))
		})
	}
}

// giveUpAfter is when a call to an instance that is stopped is given up: two callers that have one part each of the other
// two wait for it. A call that a slow machine makes late is given up too, and made again.
const giveUpAfter = 300 * time.Millisecond

// TestQuorumExclusion: four processes on three instances while these are killed and stopped in turn: never two at
// once, and always one more. A restarted instance keeps its data, as Redlock demands (or it must stay away for a lease).
func TestQuorumExclusion(t *testing.T) {
	t.Parallel()
	tr := newTrio(t, "--appendonly", "yes", "--appendfsync", "always")
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var processes sync.WaitGroup
	var turns atomic.Int64
	n, last := 0, int64(0) // the race detector watches
	for range 4 {
		q := lock.Majority(tr.parts(lock.CallTimeout(giveUpAfter))...)
		processes.Go(func() {
			for ctx.Err() == nil {
				lease, err := take(ctx, q)
				if err != nil {
					continue // an instance is gone, and says so
				}
				n++
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				turns.Add(1)
				ctx, cancel := context.WithTimeout(context.Background(), check.Soon)
				_ = lease.UnlockContext(ctx) // what is not answered goes on in the background
				cancel()
			}
		})
	}
	more := func(what string) {
		t.Helper()
		before := turns.Load()
		check.Eventually(t, what, func() bool { return turns.Load() > before })
	}
	for i := range check.Count(t, "ROUNDS", 6, 12) {
		s := tr.servers[i%3]
		strike, mend := s.Pause, s.Resume
		if i%2 == 1 {
			strike, mend = s.Kill, s.Start
		}
		strike()
		more("a majority of two goes on")
		mend()
		more("all go on")
	}
	enough()
	processes.Wait()
	t.Logf("%d acquisitions", n)
	tr.noOrphans(0)
}
