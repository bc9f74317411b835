package lock_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// pair is a primary with a replica behind a line of its own.
type pair struct {
	primary, replica *testserver.Server
	line             *testserver.Line
	now              *redis.Client // whoever is primary
}

func newPair(t *testing.T) *pair {
	t.Helper()
	// Redis would wait 5 s for more replicas before it sends a copy.
	args := []string{"--appendonly", "no", "--repl-diskless-sync-delay", "0"}
	p := &pair{primary: testserver.Redis(t, args...), replica: testserver.Redis(t, args...)}
	p.line = testserver.NewLine(t, p.primary.Addr())
	p.now = dial(t, p.primary.URL())
	p.follow(t)
	return p
}

// follow makes the replica one, of a primary that is as new.
func (p *pair) follow(t *testing.T) {
	t.Helper()
	replica := dial(t, p.replica.URL())
	host, port, _ := strings.Cut(p.line.Addr(), ":")
	check.Must(t, replica.ReplicaOf(t.Context(), host, port).Err())
	check.Eventually(t, "the replica follows", func() bool {
		return strings.Contains(p.now.Info(t.Context(), "replication").Val(), "state=online") && p.now.Do(t.Context(), "wait", 1, 1).Val() == int64(1)
	})
}

// freeze swallows what the primary says to its replica, and what that acknowledges, from now on.
func (p *pair) freeze() { p.line.Hole() }

// promote makes the replica the primary.
func (p *pair) promote(t *testing.T) {
	t.Helper()
	p.now = dial(t, p.replica.URL())
	check.Eventually(t, "the promotion", func() bool {
		return p.now.ReplicaOf(t.Context(), "NO", "ONE").Err() == nil &&
			strings.Contains(p.now.Info(t.Context(), "replication").Val(), "role:master")
	})
}

func synced(t testing.TB, client redis.UniversalClient, n int) *lock.Client {
	t.Helper()
	return newLocks(t, redisStore(client, lock.Synced(n)), onlyMessages()...)
}

// TestSynced: an acquisition counts when the replica has it, also one that is handed over, and otherwise it is given back.
// Guards: enough in send; Unsynced in Client.got, and in settle.
func TestSynced(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	replica := dial(t, p.replica.URL())
	for what, locks := range map[string]*lock.Client{"all": synced(t, p.now, lock.AllReplicas), "one": synced(t, p.now, 1)} {
		m := locks.Mutex(what)
		first := mustLock(t, t.Context(), m)
		check.Equal(t, "the replica has it", replica.Exists(t.Context(), what).Val(), 1)
		next := begin(t.Context(), m)
		check.Eventually(t, "one waits, and hears", func() bool {
			return lock.Waiting(locks, what) == 1 && subscribed(t, p.now, what) == 1
		})
		mustUnlock(t, first)
		second := got(t, "the next", next)
		holder, _, err := locks.Holder(t.Context(), what)
		check.Must(t, err)
		check.Equal(t, "the replica has the next one", replica.HExists(t.Context(), what, holder).Val(), true)
		mustUnlock(t, second)
	}
	check.Is(t, "two of one", check.ErrorOf(synced(t, p.now, 2).Mutex("two").TryLock(t.Context())), lock.ErrUnsynced)
	single := synced(t, dial(t, testserver.SharedRedis(t)), lock.AllReplicas)
	mustUnlock(t, mustLock(t, t.Context(), single.Mutex(nameOf(t)))) // a server without replicas needs none

	all := synced(t, p.now, lock.AllReplicas)
	held := mustLock(t, t.Context(), all.Mutex("handed over"))
	next := begin(t.Context(), all.Mutex("handed over"))
	check.Eventually(t, "one waits, and hears", func() bool {
		return lock.Waiting(all, "handed over") == 1 && subscribed(t, p.now, "handed over") == 1
	})
	p.freeze()
	mustUnlock(t, held)
	check.Is(t, "handed over, and not confirmed", check.Receive(t, "the next", next).err, lock.ErrUnsynced)
	check.Is(t, "not confirmed", check.ErrorOf(all.Mutex("k").TryLock(t.Context())), lock.ErrUnsynced)
	for _, name := range []string{"two", "handed over", "k"} {
		check.Eventually(t, name+" is given back", func() bool { return p.now.Exists(t.Context(), name).Val() == 0 })
	}
}

// TestSlowCountOfReplicas: who asks alone does not wait long, and asks again in the queue. Guard: ErrNotSent in alone.
func TestSlowCountOfReplicas(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := redisStore(dial(t, b.url()), lock.Synced(lock.AllReplicas))
	m := newLocks(t, store).Mutex(b.name)
	for range 20 { // by then an answer was swift
		mustUnlock(t, mustLock(t, t.Context(), m))
	}
	b.line.Slow(check.Soon)
	lock.Recount(store)
	mustUnlock(t, mustLock(t, t.Context(), m))
}

// TestOnline: a replica that gets its first copy, or is silent, is not waited for. Guards: state, lag.
func TestOnline(t *testing.T) {
	t.Parallel()
	check.Equal(t, "replicas", lock.Online("# Replication\r\nrole:master\r\nconnected_slaves:4\r\n"+
		"slave0:ip=::1,port=1,state=online,offset=14,lag=0\r\nslave1:ip=10.0.0.1,port=2,state=online,offset=14,lag=10\r\n"+
		"slave2:ip=10.0.0.2,port=3,state=online,offset=14,lag=11\r\nslave3:ip=10.0.0.3,port=4,state=wait_bgsave,offset=0,lag=0\r\n"), 2)
}
