package lock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

type memoryStore struct {
	mu      sync.Mutex
	locks   map[string]*memoryLock
	watches map[string]map[*memoryWatch]struct{}
	token   int64 // one counter for all names: it grows from holder to holder of each
	sweepAt int   // locks in the map at which the expired ones are dropped
}

var _ Passer = (*memoryStore)(nil)

type memoryLock struct {
	holder string
	token  int64
	until  time.Time // on the monotonic clock
}

// firstSweep is the number of locks from which on expired ones are looked for.
const firstSweep = 1024

// NewMemoryStore keeps locks in memory, for a service that runs alone and for tests. It excludes no other process.
func NewMemoryStore() Store {
	return &memoryStore{
		locks:   map[string]*memoryLock{},
		watches: map[string]map[*memoryWatch]struct{}{},
		sweepAt: firstSweep,
	}
}

func (s *memoryStore) Acquire(ctx context.Context, r Request) (Grant, error) {
	if err := ctx.Err(); err != nil {
		return Grant{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	held := s.live(r.Name, now)
	switch {
	case held != nil && held.holder == r.Holder:
		held.extend(now, r)
		held.token = max(held.token, r.Token)
		s.token = max(s.token, held.token)
		return Grant{State: StateHeld, Token: held.token}, nil
	case r.Holds > 1:
		return Grant{State: StateLost}, nil
	case held != nil:
		return Grant{State: StateBusy, Remaining: held.until.Sub(now)}, nil
	default:
		return Grant{State: StateHeld, Token: s.grant(r, now)}, nil
	}
}

func (s *memoryStore) Renew(ctx context.Context, rs []Request) []error {
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]error{err}, len(rs))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	errs := make([]error, len(rs))
	for i, r := range rs {
		held := s.live(r.Name, now)
		if held == nil || held.holder != r.Holder {
			errs[i] = ErrLost
			continue
		}
		held.extend(now, r)
	}
	return errs
}

// Release does nothing more for an abandoned acquisition: nothing arrives late in one process.
func (s *memoryStore) Release(ctx context.Context, r Request) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.live(r.Name, time.Now())
	if held == nil || held.holder != r.Holder {
		return false, nil
	}
	if r.Holds == 0 {
		s.free(r.Name)
	}
	return true, nil
}

func (s *memoryStore) ForceRelease(ctx context.Context, name string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live(name, time.Now()) == nil {
		return false, nil
	}
	s.free(name)
	return true, nil
}

func (s *memoryStore) Holder(_ context.Context, name string) (string, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if held := s.live(name, now); held != nil {
		return held.holder, held.until.Sub(now), nil
	}
	return "", 0, nil
}

// Pass frees the lock if a client of another process waits, so that nobody is starved.
func (s *memoryStore) Pass(ctx context.Context, from, to Request) (Passed, error) {
	if err := ctx.Err(); err != nil {
		return Passed{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	held := s.live(from.Name, now)
	if held == nil || held.holder != from.Holder {
		return Passed{}, nil
	}
	if len(s.watches[from.Name]) > 1 {
		s.free(from.Name)
		return Passed{Was: true}, nil
	}
	return Passed{Was: true, Held: true, Token: s.grant(to, now)}, nil
}

func (s *memoryStore) Watch(_ context.Context, name string, wake func()) Watch {
	w := &memoryWatch{store: s, name: name, wake: wake}
	s.mu.Lock()
	if s.watches[name] == nil {
		s.watches[name] = map[*memoryWatch]struct{}{}
	}
	s.watches[name][w] = struct{}{}
	s.mu.Unlock()
	wake() // from now on it is live, and what came before is not missed
	return w
}

func (s *memoryStore) Close() error { return nil }

func (s *memoryStore) live(name string, now time.Time) *memoryLock {
	held := s.locks[name]
	if held == nil || !now.Before(held.until) {
		return nil
	}
	return held
}

func (s *memoryStore) grant(r Request, now time.Time) int64 {
	if len(s.locks) >= s.sweepAt {
		maps.DeleteFunc(s.locks, func(name string, _ *memoryLock) bool { return s.live(name, now) == nil })
		s.sweepAt = max(firstSweep, 2*len(s.locks))
	}
	s.token = max(s.token+1, r.Token)
	s.locks[r.Name] = &memoryLock{holder: r.Holder, token: s.token, until: now.Add(r.Lease)}
	return s.token
}

func (s *memoryStore) free(name string) {
	delete(s.locks, name)
	for w := range s.watches[name] {
		w.wake()
	}
}

func (l *memoryLock) extend(now time.Time, r Request) {
	if until := now.Add(r.Lease); r.Exact || until.After(l.until) {
		l.until = until
	}
}

type memoryWatch struct {
	store *memoryStore
	name  string
	wake  func()
}

// Live: nothing can come between the store and those who watch it.
func (w *memoryWatch) Live() bool { return true }

func (w *memoryWatch) Stop() {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	delete(w.store.watches[w.name], w)
	if len(w.store.watches[w.name]) == 0 {
		delete(w.store.watches, w.name)
	}
}
