//part:locks

package lock_test

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"seckill/lock"
)

// hold is one lease in the model.
type hold struct {
	owner int
	lease *lock.Lease
	lost  bool
}

// machine compares locks with what a lock is: at most one owner, a count of
// holds, tokens that grow.
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

// TestModel drives real stores with random sequences and compares every answer
// with the model's.
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
