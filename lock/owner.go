package lock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
)

type ownerKey struct{}

// owner is what holds locks: every goroutine with the context of a lease, because work is handed on.
type owner struct {
	mu     sync.Mutex
	slots  []*slot
	room   [1]*slot          // for slots: most owners use one lock
	fences map[string]*fence // by Quorum.key: of the fenced locks of several parts that it holds
}

// fence is the token of a lock of several parts. Every re-entry has the same one.
type fence struct {
	token int64
	refs  int
}

func (o *owner) fence(key string, get func() (int64, error)) (int64, error) {
	o.mu.Lock()
	if f := o.fences[key]; f != nil {
		f.refs++
		o.mu.Unlock()
		return f.token, nil
	}
	o.mu.Unlock()
	token, err := get()
	if err != nil {
		return 0, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fences == nil {
		o.fences = make(map[string]*fence, 1)
	}
	o.fences[key] = &fence{token, 1}
	return token, nil
}

func (o *owner) unfence(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f := o.fences[key]; f != nil {
		if f.refs--; f.refs == 0 {
			delete(o.fences, key)
		}
	}
}

// slot is one owner's share in a lock. Changes take turns: two goroutines of an owner must not acquire at once.
type slot struct {
	owner *owner
	lock  Mutex
	turn  chan struct{} // a mutex that can be waited for with a context
	held  *holding      // nil when the owner does not hold the lock
	refs  int           // guarded by owner.mu
}

var errTurn = fmt.Errorf("%w: another call of its owner asks for it", ErrHeld)

func (s *slot) take(ctx context.Context, a attempt) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-a.budget():
		if a.try {
			return errTurn
		}
		return ErrTimeout
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *slot) give() { <-s.turn }

// withOwner returns the owner that travels in ctx, or sends a new one along.
func withOwner(ctx context.Context) (context.Context, *owner) {
	if o, _ := ctx.Value(ownerKey{}).(*owner); o != nil {
		return ctx, o
	}
	o := &owner{}
	o.slots = o.room[:0]
	return context.WithValue(ctx, ownerKey{}, o), o
}

// Detach returns a context that belongs to no owner. A goroutine that is started with it competes for the locks its
// parent holds, rather than sharing them. Cancellation, deadline and values stay as they are.
func Detach(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownerKey{}, (*owner)(nil))
}

// slot returns the owner's slot for a lock. Each call needs a drop.
func (o *owner) slot(m Mutex) *slot {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.find(m)
	if s == nil {
		s = &slot{owner: o, lock: m, turn: make(chan struct{}, 1)}
		o.slots = append(o.slots, s)
	}
	s.refs++
	return s
}

// find returns the slot for a lock, if there is one. Under o.mu.
func (o *owner) find(m Mutex) *slot {
	if i := slices.IndexFunc(o.slots, func(s *slot) bool { return s.lock == m }); i >= 0 {
		return o.slots[i]
	}
	return nil
}

func (s *slot) drop() {
	o := s.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.refs--; s.refs == 0 {
		o.slots = slices.DeleteFunc(o.slots, func(other *slot) bool { return other == s })
	}
}

// holds reports whether the owner has a lock, or is about to.
func (o *owner) holds(m *Mutex) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.find(*m) != nil
}

// newUUID returns a random (version 4) UUID, as Redisson's client ids are.
func newUUID() string { return uuidOf(4, 0) }

// clientID begins the names of a client's holders: a UUID, of version 4 as Redisson's. Where leases are bounded it is
// of version 8, and its last eight digits are the bound in milliseconds, for every client to see.
func clientID(s settings) string {
	if s.longest == 0 {
		return newUUID()
	}
	return uuidOf(8, uint32(s.longest.Milliseconds())) //nolint:gosec // bounded
}

func uuidOf(version byte, last uint32) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	if version == 8 {
		binary.BigEndian.PutUint32(b[12:], last)
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
