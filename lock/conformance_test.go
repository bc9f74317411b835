//part:locks

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// subject is one kind of lock under the conformance suite.
type subject struct {
	name string
	// process returns what a new process would make: locks by name, sharing nothing in memory with those of other calls.
	process func(t *testing.T) func(name string) lock.Locker
	// gone are the ways to take the lock behind everybody's back.
	gone []func(t *testing.T, name string)
}

func subjects(t *testing.T) []subject {
	t.Helper()
	var list []subject
	for _, k := range kinds(t) {
		process := func(t *testing.T) func(string) lock.Locker {
			t.Helper()
			locks := newLocks(t, k.open())
			return func(name string) lock.Locker { return locks.Mutex(name) }
		}
		list = append(list, subject{k.name, process, []func(*testing.T, string){k.expire, k.remove}})
	}
	shared := dial(t, testserver.SharedRedis(t))
	part := func(name string, i int) string { return fmt.Sprint(name, " on instance ", i) }
	for name, join := range joins() {
		process := func(t *testing.T) func(string) lock.Locker {
			t.Helper()
			locks := []*lock.Client{locksOn(t, shared), locksOn(t, shared), locksOn(t, shared)}
			return func(name string) lock.Locker {
				var parts []lock.Locker
				for i, l := range locks {
					parts = append(parts, l.Mutex(part(name, i)))
				}
				return join(parts...)
			}
		}
		remove := func(t *testing.T, name string) {
			t.Helper()
			for i := range 3 {
				shared.Del(t.Context(), part(name, i))
			}
		}
		list = append(list, subject{name, process, []func(*testing.T, string){remove}})
	}
	return list
}

// TestConformance is what every lock must do, whatever it is made of. What it does in time, TestTime tries.
func TestConformance(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, s subject, name string){
		"exclusion and tokens": conformExclusion,
		"re-entry":             conformReentry,
		"try and wait":         conformTry,
		"deadline and cancel":  conformContext,
		"loss":                 conformLoss,
		"close":                conformClose,
	}
	for _, s := range subjects(t) {
		for what, run := range cases {
			t.Run(s.name+"/"+what, func(t *testing.T) {
				t.Parallel()
				run(t, s, nameOf(t))
			})
		}
	}
}

func conformExclusion(t *testing.T, s subject, name string) {
	processes := []lock.Locker{s.process(t)(name), s.process(t)(name)}
	n, last := 0, int64(0) // the race detector watches: only the lock guards them
	var inside atomic.Int32
	const workers, times = 6, 4
	check.Volley(workers, func(i int) {
		for range times {
			use(t, processes[i%2], func(lease *lock.Lease) {
				check.Equal(t, "holders", inside.Add(1), 1)
				n++
				wantLater(t, lease.Token(), last)
				last = lease.Token()
				inside.Add(-1)
			})
		}
	})
	check.Equal(t, "turns", n, workers*times)
}

func conformReentry(t *testing.T, s subject, name string) {
	l := s.process(t)(name)
	outer := mustLock(t, t.Context(), l)
	inner := mustLock(t, outer.Context(), l)
	check.Equal(t, "the token of a re-entry", inner.Token(), outer.Token())
	// A sibling that was handed the context is the same owner; one that was handed a detached one is not.
	mustUnlock(t, got(t, "sibling", begin(outer.Context(), l)))
	check.Is(t, "detached", check.ErrorOf(l.TryLock(lock.Detach(inner.Context()))), lock.ErrHeld)
	mustUnlock(t, inner)
	if inner.Context().Err() == nil || outer.Context().Err() != nil {
		t.Error("the inner lease's context must end, the outer one's not")
	}
	wantBusy(t, "after the inner unlock", l)
	mustUnlock(t, outer)
	cycle(t, l)
	check.Is(t, "a second unlock", outer.Unlock(), lock.ErrNotHeld)
	check.Is(t, "extended after its unlock", outer.Extend(t.Context(), calm), lock.ErrNotHeld)
}

func conformTry(t *testing.T, s subject, name string) {
	one, two := s.process(t)(name), s.process(t)(name)
	lease := mustLock(t, t.Context(), one)
	for _, l := range []lock.Locker{one, two} {
		wantBusy(t, "try", l)
		check.Is(t, "no wait", check.ErrorOf(l.Lock(t.Context(), lock.Wait(0))), lock.ErrTimeout)
		check.Is(t, "a wait", check.ErrorOf(l.Lock(t.Context(), lock.Wait(check.Soon))), lock.ErrTimeout)
	}
	waiter := begin(t.Context(), two)
	mustUnlock(t, lease)
	mustUnlock(t, got(t, "the waiter", waiter))
}

func conformContext(t *testing.T, s subject, name string) {
	one, two := s.process(t)(name), s.process(t)(name)
	lease := mustLock(t, t.Context(), one)
	gone := errors.New("the client hung up")
	for _, l := range []lock.Locker{one, two} {
		check.Is(t, "deadline", check.ErrorOf(l.Lock(check.Expiring(t))), context.DeadlineExceeded)
		ctx, hangUp := context.WithCancelCause(t.Context())
		time.AfterFunc(check.Soon, func() { hangUp(gone) })
		check.Is(t, "cancel", check.ErrorOf(l.Lock(ctx)), gone)
		check.Is(t, "canceled before", check.ErrorOf(l.Lock(ctx)), gone)
	}
	mustUnlock(t, lease)
	// Nothing of the failed attempts is in the way.
	cycle(t, two)
}

func conformLoss(t *testing.T, s subject, name string) {
	for i, end := range s.gone {
		name := fmt.Sprint(name, i)
		l, other := s.process(t)(name), s.process(t)(name)
		lease := mustLock(t, t.Context(), l)
		end(t, name)
		check.Is(t, "the extension of what is gone", lease.Extend(t.Context(), calm), lock.ErrLost)
		wantLost(t, lease)

		lease = mustLock(t, t.Context(), l)
		end(t, name)
		next := mustLock(t, t.Context(), other)
		wantLater(t, next.Token(), lease.Token())
		check.Is(t, "the unlock of what another has", lease.Unlock(), lock.ErrLost)
		wantBusy(t, "after that", l)
		mustUnlock(t, next)

		outer := mustLock(t, t.Context(), l)
		end(t, name)
		if _, err := l.Lock(outer.Context(), lock.Wait(0)); err == nil {
			t.Error("a re-entry took a lock that had been lost in between")
		}
		_ = outer.Unlock()
	}
}

func conformClose(t *testing.T, s subject, name string) {
	waiting := s.process(t)(name)
	var lease *lock.Lease
	t.Run("holder", func(inner *testing.T) {
		lease = mustLock(inner, t.Context(), s.process(inner)(name))
	}) // its clients are closed here
	check.Is(t, "the cause", context.Cause(lease.Context()), lock.ErrClosed)
	mustUnlock(t, lease)
	cycle(t, waiting)
}

// hold is one lease in the model.
type hold struct {
	owner int
	lease *lock.Lease
	lost  bool
}

// machine compares locks with what a lock is: at most one owner, a count of holds, tokens that grow.
type machine struct {
	locks  []*lock.Client // two processes
	name   string
	owners []context.Context // by owner: nil, or what it got with its first lease
	holds  []hold
	token  int64
}

// owner returns who has the lock, and how often; -1 for nobody.
func (m *machine) owner() (who, holds int) {
	who = -1
	for _, h := range m.holds {
		if !h.lost {
			who = h.owner
			holds++
		}
	}
	return who, holds
}

// process is where an owner lives.
func (m *machine) process(owner int) *lock.Client { return m.locks[owner%len(m.locks)] }

func (m *machine) acquire(t *rapid.T) {
	owner := rapid.IntRange(0, len(m.owners)-1).Draw(t, "owner")
	who, holds := m.owner()
	ctx := context.Background()
	if holds > 0 && who == owner {
		ctx = m.owners[owner]
	}
	lease, err := m.process(owner).Mutex(m.name).TryLock(ctx)
	switch {
	case who == -1 || who == owner:
		if err != nil {
			t.Fatalf("owner %d, the lock is with %d: %v", owner, who, err)
		}
		if who == -1 && lease.Token() <= m.token || who == owner && lease.Token() != m.token {
			t.Fatalf("token %d after %d, owner before %d", lease.Token(), m.token, who)
		}
		m.token = lease.Token()
		m.owners[owner] = context.WithoutCancel(lease.Context()) //nolint:fatcontext // one per owner
		m.holds = append(m.holds, hold{owner: owner, lease: lease})
	case !errors.Is(err, lock.ErrHeld):
		t.Fatalf("owner %d got a lock that is with %d: %v", owner, who, err)
	}
}

func (m *machine) release(t *rapid.T) {
	if len(m.holds) == 0 {
		t.Skip("nothing is held")
	}
	i := rapid.IntRange(0, len(m.holds)-1).Draw(t, "hold")
	h := m.holds[i]
	m.holds = append(m.holds[:i], m.holds[i+1:]...)
	err := h.lease.Unlock()
	if h.lost != errors.Is(err, lock.ErrLost) || !h.lost && err != nil {
		t.Fatalf("unlock, lost %v: %v", h.lost, err)
	}
	if h.lease.Context().Err() == nil {
		t.Fatal("the context of a lease lives on after its unlock")
	}
	if err := h.lease.Unlock(); !errors.Is(err, lock.ErrNotHeld) {
		t.Fatalf("a second unlock: %v", err)
	}
}

func (m *machine) force(t *rapid.T) {
	_, holds := m.owner()
	was, err := m.locks[0].ForceUnlock(context.Background(), m.name)
	if err != nil || was != (holds > 0) {
		t.Fatalf("forced %v with %d holds: %v", was, holds, err)
	}
	for i := range m.holds {
		m.holds[i].lost = true
	}
}

func (m *machine) extend(t *rapid.T) {
	if len(m.holds) == 0 {
		t.Skip("nothing is held")
	}
	h := m.holds[rapid.IntRange(0, len(m.holds)-1).Draw(t, "hold")]
	err := h.lease.Extend(context.Background(), calm)
	if h.lost != errors.Is(err, lock.ErrLost) || !h.lost && err != nil {
		t.Fatalf("extend, lost %v: %v", h.lost, err)
	}
}

// check asks the lock itself: a stranger gets it if and only if nobody has it.
func (m *machine) check(t *rapid.T) {
	who, _ := m.owner()
	lease, err := m.locks[1].Mutex(m.name).TryLock(context.Background())
	if who != -1 {
		if !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("a stranger got a lock that is with %d: %v", who, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("nobody has the lock: %v", err)
	}
	m.token = lease.Token()
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
}

// TestModel drives real stores with random sequences and compares every answer with the model's.
func TestModel(t *testing.T) {
	t.Parallel()
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			locks := []*lock.Client{newLocks(t, k.open()), newLocks(t, k.open())}
			again := 1
			if k.forgets { // it is quick
				again = 20
			}
			for range again {
				rapid.Check(t, func(r *rapid.T) {
					m := &machine{locks: locks, name: nameOf(t), owners: make([]context.Context, 4)}
					r.Repeat(map[string]func(*rapid.T){
						"acquire": m.acquire, "release": m.release, "force": m.force, "extend": m.extend, "": m.check,
					})
					for _, h := range m.holds {
						_ = h.lease.Unlock()
					}
				})
			}
		})
	}
}
