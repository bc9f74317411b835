package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// AllReplicas is, for Synced, as many as are connected.
	AllReplicas = -1

	// defaultSyncTimeout is how long replicas have to confirm an acquisition (Redisson's
	// slavesSyncTimeout): many times what a healthy one takes.
	defaultSyncTimeout = time.Second
	// countEvery is how often a primary is asked for its replicas: one that has just
	// connected is waited for a second later.
	countEvery = time.Second
	// maxLag is when a replica that is silent counts no more, as Redis'
	// min-replicas-max-lag has it: one that hangs must not stop all locks until its
	// connection is given up (repl-timeout, 60 s).
	maxLag = 10 * time.Second
	// redirects and redirectPause bound how long the owner of a slot that moves is looked for.
	redirects     = 5
	redirectPause = 50 * time.Millisecond
)

// Synced makes an acquisition wait until n replicas have it, or AllReplicas (Redisson's
// default), so that a promotion does not forget it (WAIT; 1 s at most, less with a shorter
// CallTimeout). One that they do not confirm is given back: ErrUnsynced. Renewals and
// re-entries are not confirmed. Default: 0, none.
//
// AllReplicas is 0 where none is connected, as on a primary that is cut off from all of
// them: only a number holds then. AllReplicas needs the right to INFO, both to WAIT.
func Synced(n int) RedisOption {
	return func(s *redisLocks) { s.replicas = max(n, AllReplicas) }
}

// replicas are those of one server, and how many of them are to confirm what is written.
type replicas struct {
	want int // as Synced says

	mu    sync.Mutex
	count int // when last asked
	asked time.Time
}

// needed tells how many are to confirm. After an error nothing may be sent.
func (r *replicas) needed(ctx context.Context, client redis.UniversalClient) (int, error) {
	if r == nil {
		return 0, nil
	}
	r.mu.Lock()
	count, age := r.count, time.Since(r.asked)
	r.mu.Unlock()
	if age < countEvery {
		return count, nil
	}
	return r.recount(ctx, client)
}

// recount asks the server for its replicas, and whether it lets them be waited for: after an
// acquisition it would be too late to hear that it does not.
func (r *replicas) recount(ctx context.Context, client redis.UniversalClient) (int, error) {
	count, err := r.want, error(nil)
	if r.want < 0 {
		var text string
		text, err = client.Info(ctx, "replication").Result()
		count = online(text)
	}
	if err == nil && count > 0 {
		err = client.Do(ctx, "wait", 0, 0).Err()
	}
	if err != nil {
		return 0, fmt.Errorf("%w: ask for replicas: %w", ErrNotSent, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count, r.asked = count, time.Now()
	return count, nil
}

// online counts the replicas that follow, in what INFO says. One that still gets its first copy
// does not, and confirms nothing.
func online(info string) (n int) {
	for line := range strings.Lines(info) {
		_, replica, _ := strings.Cut(strings.TrimSpace(line), ":")
		says := strings.Split(replica, ",")
		lag := slices.IndexFunc(says, func(word string) bool { return strings.HasPrefix(word, "lag=") })
		if lag < 0 || !slices.Contains(says, "state=online") {
			continue
		}
		if seconds, err := strconv.Atoi(says[lag][len("lag="):]); err == nil && time.Duration(seconds)*time.Second <= maxLag {
			n++
		}
	}
	return n
}

// enough tells whether the answer to a WAIT is as many as needed. Replicas that have left
// since they were counted are not.
func (r *replicas) enough(ctx context.Context, client redis.UniversalClient, wait *redis.Cmd, need int) bool {
	confirmed, err := wait.Int()
	if err == nil && confirmed < need && r.want < 0 {
		need, err = r.recount(ctx, client)
	}
	return err == nil && confirmed >= need
}

// syncTimeout is shorter than whatever ends the call.
func (b *batcher) syncTimeout() time.Duration {
	limit := min(defaultSyncTimeout, b.timeout/2)
	if one, ok := b.client.(*redis.Client); ok && one.Options().ReadTimeout > 0 {
		limit = min(limit, one.Options().ReadTimeout/2)
	}
	return limit
}

// take makes a call that acquires a lock. In a Cluster what is to be confirmed goes to a
// node directly, and redirections are minded here.
func (s *redisLocks) take(ctx context.Context, c *call) {
	if s.synced == nil {
		s.do(ctx, c)
		return
	}
	s.synced.lane(ctx, c.words[0]).do(ctx, c)
	cluster, ok := s.synced.client.(*redis.ClusterClient)
	for n := 0; ok && c.answer.err != nil; n++ {
		cluster.ReloadState(ctx) // in the background
		if n == redirects || !redirected(c.answer.err) || !sleep(ctx, redirectPause) {
			return
		}
		again := newCall(c.terms, c.words[:c.keys], c.words[c.keys:c.all]...)
		s.synced.lane(ctx, c.words[0]).do(ctx, again)
		c.answer, c.alone = again.answer, true
	}
}

func redirected(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && (redis.HasErrorPrefix(answer, "MOVED") || redis.HasErrorPrefix(answer, "ASK"))
}
