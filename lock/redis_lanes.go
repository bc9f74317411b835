package lock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// topologyTimeout bounds asking a Cluster for its nodes, where that was not done before.
const topologyTimeout = time.Second

// lane is the batcher of the calls about a key. In a Cluster each node has one, so that
// a node that does not answer holds up only the locks that lie on it.
func (b *batcher) lane(ctx context.Context, key string) *batcher {
	cluster, ok := b.client.(*redis.ClusterClient)
	if !ok {
		return b
	}
	ctx, cancel := context.WithTimeout(ctx, topologyTimeout)
	defer cancel()
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return b
	}
	address := node.Options().Addr
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return b // which refuses
	}
	lane := b.lanes[address]
	if lane != nil && b.replicas != nil && lane.client != redis.UniversalClient(node) {
		b.work.Go(lane.close) // the node had left, and is back with another client
		lane = nil
	}
	if lane == nil {
		lane = newBatcher(b.client)
		lane.pipelines, lane.timeout = b.pipelines, b.timeout
		if b.replicas != nil { // which a connection to this very node tells
			lane.client, lane.replicas = node, &replicas{want: b.replicas.want}
		}
		if b.lanes == nil {
			b.lanes = make(map[string]*batcher)
		}
		b.lanes[address] = lane
	}
	return lane
}

// do makes one call; its answer is in the call.
func (s *redisLocks) do(ctx context.Context, c *call) {
	s.calls.lane(ctx, c.words[0]).do(ctx, c)
}

// direct makes calls past the queues; their answers are in the calls.
func (s *redisLocks) direct(ctx context.Context, calls []*call) {
	lanes := make(map[*batcher][]*call)
	for _, c := range calls {
		lane := s.calls.lane(ctx, c.words[0])
		lanes[lane] = append(lanes[lane], c)
	}
	var made sync.WaitGroup
	for lane, part := range lanes {
		made.Go(func() {
			if err := lane.direct(ctx, part); err != nil {
				for _, c := range part {
					c.answer.err = err
				}
			}
		})
	}
	made.Wait()
}
