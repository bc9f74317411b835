package lock

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"seckill/lock/driver"
)

// shards is what subscriptions is, for a Cluster. There unlock messages are
// sharded (SPUBLISH, SSUBSCRIBE; Redis 7) if every node can do that, and plain
// ones if not; Redisson decides in the same way, and the two kinds never meet.
// A sharded channel lives on the node of its slot, so there is one subscription
// connection per node.
type shards struct {
	cluster *redis.ClusterClient
	plain   *subscriptions

	mu      sync.Mutex
	nodes   map[string]*subscriptions // by address
	known   bool                      // whether sharded has been found out
	sharded bool
	ctx     context.Context //nolint:containedctx // the life of the goroutines
	stop    context.CancelFunc
	work    sync.WaitGroup
}

// messages is how unlock messages are sent and received.
type messages interface {
	// isSharded tells by which command they are sent.
	isSharded(ctx context.Context) bool
	// own tells how many live subscriptions of a channel are this store's;
	// -1 when those of others cannot be counted.
	own(channel string) int
	watch(channel string, wake func()) driver.Watch
	close()
}

func newMessages(client redis.UniversalClient) messages {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return newSubscriptions(client)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &shards{
		cluster: cluster, plain: newSubscriptions(client),
		nodes: make(map[string]*subscriptions), ctx: ctx, stop: stop,
	}
}

// isSharded asks once whether the Cluster knows sharded messages. While it does
// not answer, plain ones are sent and the question stays open: a waiter that
// misses one asks at intervals anyway.
func (s *shards) isSharded(ctx context.Context) bool {
	s.mu.Lock()
	known, sharded := s.known, s.sharded
	s.mu.Unlock()
	if known {
		return sharded
	}
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	err := s.cluster.Do(ctx, "pubsub", "shardnumsub").Err()
	var refused redis.Error
	if err != nil && !errors.As(err, &refused) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.sharded = true, err == nil
	return s.sharded
}

func (s *shards) own(channel string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sharded {
		return -1 // a node counts its own subscribers only
	}
	n := 0
	for _, node := range s.nodes {
		n += node.own(channel)
	}
	return n
}

// shardWatch is a watch whose node is still to be found, or was.
type shardWatch struct {
	mu    sync.Mutex
	inner driver.Watch // nil until then
	ended bool
}

func (w *shardWatch) Live() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inner != nil && w.inner.Live()
}

func (w *shardWatch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.inner != nil {
		w.inner.Stop()
	}
}

// watch finds the channel's node in the background: the caller must not wait
// for a Cluster that does not answer.
func (s *shards) watch(channel string, wake func()) driver.Watch {
	w := &shardWatch{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return w
	}
	s.work.Go(func() {
		subs := s.plain
		if s.isSharded(s.ctx) {
			node, err := s.cluster.MasterForKey(s.ctx, channel)
			if err != nil {
				return // the waiter asks at intervals
			}
			subs = s.node(node)
		}
		if subs == nil {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.ended {
			w.inner = subs.watch(channel, wake)
		}
	})
	return w
}

func (s *shards) node(client *redis.Client) *subscriptions {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil
	}
	addr := client.Options().Addr
	subs := s.nodes[addr]
	// A node that had left, and is back, has another client: that of before is closed.
	if subs != nil && subs.client != redis.UniversalClient(client) {
		s.work.Go(subs.close)
		subs = nil
	}
	if subs == nil {
		subs = newSubscriptions(client)
		subs.sharded = true
		s.nodes[addr] = subs
	}
	return subs
}

func (s *shards) close() {
	s.mu.Lock()
	s.stop() // under mu: nothing starts after it
	nodes := s.nodes
	s.mu.Unlock()
	s.work.Wait()
	s.plain.close()
	for _, node := range nodes {
		node.close()
	}
}
