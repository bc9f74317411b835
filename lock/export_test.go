package lock

import (
	"context"
	"time"
)

// Waiting returns how many wait for a lock.
func Waiting(c *Client, name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[name]; q != nil {
		return len(q.waiting)
	}
	return 0
}

// DefaultProbe is how often a waiter asks although messages arrive, for tests.
const DefaultProbe = defaultProbe

// WaitingFor returns how many wait for a lock of several parts.
func WaitingFor(q *Quorum) int {
	client, key := q.where()
	return Waiting(client, key)
}

// Queues returns how many queues there are where one waits for a quorum.
func Queues(q *Quorum) int {
	client, _ := q.where()
	client.mu.Lock()
	defer client.mu.Unlock()
	return len(client.queues)
}

// Pending tells tests how many calls wait for a place in a pipeline.
func Pending(s Store) int {
	calls := s.(*redisStore).first.calls
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
func CallTimeoutOf(s Store) time.Duration { return s.(*redisStore).timeout }

// StatementTimeoutOf tells tests what bounds a statement.
func StatementTimeoutOf(s *MySQLStore) time.Duration { return s.timeout }

// CutBy adds the cause for which a context has ended to the error of a call, for tests.
var CutBy = cutBy

// Recount has replicas counted anew at the next acquisition, for tests.
func Recount(s Store) {
	r := s.(*redisStore).first.synced.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = time.Time{}
}

// Online counts replicas, for tests.
var Online = online
