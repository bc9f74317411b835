package lock

import (
	"context"
	"time"
)

func Waiting(c *Client, name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[name]; q != nil {
		return len(q.waiting)
	}
	return 0
}

func Live(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live)
}

const DefaultProbe = defaultProbe

func WaitingFor(q *Quorum) int {
	client, key := q.where()
	return Waiting(client, key)
}

func Queues(q *Quorum) int {
	client, _ := q.where()
	client.mu.Lock()
	defer client.mu.Unlock()
	return len(client.queues)
}

func Pending(s Store) int {
	calls := s.(*redisStore).first.calls
	calls.mu.Lock()
	defer calls.mu.Unlock()
	return len(calls.pending)
}

func Sweep(ctx context.Context, s *MySQLStore, age time.Duration) (int64, error) {
	return s.sweep(ctx, age)
}

const DefaultCallTimeout = defaultCallTimeout

func CallTimeoutOf(s Store) time.Duration { return s.(*redisStore).timeout }

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

var Online = online
