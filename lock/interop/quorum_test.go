//go:build interop

//part:interop

package interop_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// parts are both sides of a test on three independent Redis servers.
type parts struct {
	servers [3]*testserver.Server
	looks   [3]both // one server each; they share the JVM
	java    *java
}

func setupParts(t testing.TB) parts {
	t.Helper()
	var p parts
	var urls []string
	for i := range p.servers {
		p.servers[i] = testserver.Redis(t, "--appendonly", "no")
		urls = append(urls, p.servers[i].URL())
	}
	p.java = startJava(t, quiet, urls...)
	for i, url := range urls {
		client := dial(t, url)
		p.looks[i] = both{redis: client, locks: locksOn(t, client, quiet), java: p.java}
	}
	return p
}

// lock is the Go lock of all three parts, as compose makes it of them.
func (p parts) lock(compose func(...lock.Locker) *lock.Quorum, name string) *lock.Quorum {
	var mutexes []lock.Locker
	for _, b := range p.looks {
		mutexes = append(mutexes, b.locks.Mutex(name))
	}
	return compose(mutexes...)
}

// wantHeld checks that a lock is held once on at least so many of the servers that run, by one holder each; 0: on none.
func (p parts) wantHeld(t testing.TB, name string, least int) {
	t.Helper()
	what := "the servers that hold " + name
	check.Eventually(t, what, func() bool { // those beyond the majority may still be under way
		held := 0
		for _, b := range p.looks {
			fields, err := b.redis.HGetAll(t.Context(), name).Result()
			if err != nil && !down(err) {
				t.Fatal(err)
			}
			if len(fields) > 1 {
				t.Fatalf("%s is held by %v", name, fields)
			}
			held += len(fields)
		}
		return held >= least && (held > 0) == (least > 0)
	})
}

// down says whether a server could not be reached, as opposed to having answered with an error.
func down(err error) bool {
	var answer redis.Error
	return err != nil && !errors.As(err, &answer)
}

// quorums are the composed locks of both sides that are the same lock.
var quorums = []struct {
	name, java string
	compose    func(...lock.Locker) *lock.Quorum
	least      int // parts that are held at least
}{
	{"MultiLock", "multi", lock.All, 3},
	{"RedLock", "red", lock.Majority, 2},
}

func TestQuorumsExcludeAndWake(t *testing.T) {
	t.Parallel()
	for _, q := range quorums {
		t.Run(q.name, func(t *testing.T) {
			t.Parallel()
			p := setupParts(t)
			name := "lock:order:42"
			channel := "redisson_lock__channel:{" + name + "}"
			m := p.lock(q.compose, name)
			java := p.java.thread("composed")

			java.begin(t, "lock", q.java, name, -1).want(t, "")
			p.wantHeld(t, name, q.least)
			check.Is(t, "TryLock", check.ErrorOf(m.TryLock(t.Context())), lock.ErrHeld)
			p.wantHeld(t, name, q.least)
			waiting := begin(t, m, lock.Wait(check.Deadline))
			for _, b := range p.looks {
				b.waitForWaiters(t, channel, 1)
			}
			java.begin(t, "unlock", q.java, name).want(t, "")
			lease := waiting.lease(t)
			p.wantHeld(t, name, q.least)

			java.begin(t, "try", q.java, name, 0, -1).want(t, "false")
			p.wantHeld(t, name, q.least)
			order := java.begin(t, "try", q.java, name, check.Deadline.Milliseconds(), -1)
			p.looks[0].waitForWaiters(t, channel, 1) // Redisson waits for one part after the other
			mustUnlock(t, lease)
			order.want(t, "true")
			p.wantHeld(t, name, q.least)
			java.begin(t, "unlock", q.java, name).want(t, "")
			p.wantHeld(t, name, 0)
		})
	}
}

// TestRedLockSurvivesOneServer: with one of three servers gone both sides still have the lock, and still exclude
// each other.
func TestRedLockSurvivesOneServer(t *testing.T) {
	t.Parallel()
	p := setupParts(t)
	name := name(t)
	m := p.lock(lock.Majority, name)
	java := p.java.thread("composed")
	p.servers[2].Kill()
	// What may still be undone there is then undone at once, and the clients close without waiting for it.
	t.Cleanup(p.servers[2].Start)

	java.begin(t, "try", "red", name, check.Deadline.Milliseconds(), -1).want(t, "true")
	p.wantHeld(t, name, 2)
	if lease, err := m.TryLock(t.Context()); err == nil {
		t.Fatalf("TryLock while Java holds two of two servers gave the lease %v", lease.Name())
	}
	java.begin(t, "unlock", "red", name).want(t, "")
	p.wantHeld(t, name, 0)

	lease := mustLock(t, m)
	p.wantHeld(t, name, 2)
	java.begin(t, "try", "red", name, 0, -1).want(t, "false")
	p.wantHeld(t, name, 2)
	mustUnlock(t, lease)
	p.wantHeld(t, name, 0)
}

// TestMultiLockNeedsAll: one part held by the other side alone keeps the composed lock from being taken, and leaves
// nothing held on the other parts.
func TestMultiLockNeedsAll(t *testing.T) {
	t.Parallel()
	p := setupParts(t)
	name := name(t)
	m := p.lock(lock.All, name)
	java := p.java.thread("single")
	java.lock(t, name) // the first server's only
	check.Is(t, "TryLock", check.ErrorOf(m.TryLock(t.Context())), lock.ErrHeld)
	p.looks[0].wantHolds(t, name, 1)
	// The answer came as soon as one part was refused; the others are given back behind it.
	for _, b := range p.looks[1:] {
		check.Eventually(t, name+" is given back", func() bool { return len(b.holds(t, name)) == 0 })
	}
	java.unlock(t, name)

	single := mustLock(t, p.looks[2].locks.Mutex(name))
	java.begin(t, "try", "multi", name, 0, -1).want(t, "false")
	p.looks[0].wantHolds(t, name, 0)
	p.looks[1].wantHolds(t, name, 0)
	p.looks[2].wantHolds(t, name, 1)
	mustUnlock(t, single)
	mustUnlock(t, mustLock(t, m))
	p.wantHeld(t, name, 0)
}
