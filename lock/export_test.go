package lock

import (
	"context"
	"time"

	"seckill/lock/driver"
)

// Waiting tells tests how many wait in line for a lock.
func Waiting(c *Client, name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	if q := c.queues[name]; q != nil {
		for w := q.head; w != nil; w = w.next {
			n++
		}
	}
	return n
}

// DefaultProbe is how often a waiter asks although messages arrive, for tests.
const DefaultProbe = defaultProbe

// WaitingFor tells tests how many wait in line for a lock of several parts.
func WaitingFor(q *Quorum) int {
	in, key := q.where()
	in.mu.Lock()
	defer in.mu.Unlock()
	if l := in.byKey[key]; l != nil {
		return len(l.waiting)
	}
	return 0
}

// Lines tells tests how many lines there are where one waits for a quorum.
func Lines(q *Quorum) int {
	in, _ := q.where()
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.byKey)
}

// Pending tells tests how many calls wait for a place in a pipeline.
func Pending(s driver.Store) int {
	calls := s.(*redisStore).calls
	calls.mu.Lock()
	defer calls.mu.Unlock()
	return len(calls.pending)
}

// Sweep has tests delete rows as the sweeper does.
func Sweep(ctx context.Context, s *MySQLStore, age time.Duration) (int64, error) {
	return s.sweep(ctx, age)
}

// DefaultCallTimeout bounds a call of a store, for tests.
const DefaultCallTimeout = defaultCallTimeout

// CallTimeoutOf tells tests what bounds a call.
func CallTimeoutOf(s driver.Store) time.Duration { return s.(*redisStore).calls.timeout }

// StatementTimeoutOf tells tests what bounds a statement.
func StatementTimeoutOf(s *MySQLStore) time.Duration { return s.timeout }

// CutBy adds the cause for which a context has ended to the error of a call, for tests.
var CutBy = cutBy

// Recount has replicas counted anew at the next acquisition, for tests.
func Recount(s driver.Store) {
	r := s.(*redisStore).synced.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = time.Time{}
}

// Online counts replicas, for tests.
var Online = online
