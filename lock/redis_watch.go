package lock

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

const (
	// subscribeTimeout bounds connecting and subscribing, and how long a subscription may leave a ping unanswered.
	subscribeTimeout = defaultCallTimeout
	// subscriptionPing is after how long a silence a ping is sent, and the longest pause before a new connection (1 s).
	subscriptionPing = subscribeTimeout / 2
)

// subscriptions shares one connection among a store's watches. Its goroutines use it: a watcher never waits for them.
type subscriptions struct {
	client  redis.UniversalClient
	sharded bool // one node of a Cluster, with sharded channels

	mu      sync.Mutex
	entries map[string]*channel
	kick    bell // the wanted channels changed
	running bool
	ctx     context.Context //nolint:containedctx // the life of the goroutines
	stop    context.CancelFunc
	work    sync.WaitGroup
}

type channel struct {
	name     string
	live     atomic.Bool
	watchers map[*channelWatch]struct{} // guarded by subscriptions.mu
}

type channelWatch struct {
	subs *subscriptions
	ch   *channel
	wake func()
}

func newSubscriptions(client redis.UniversalClient) *subscriptions {
	ctx, stop := context.WithCancel(context.Background())
	return &subscriptions{
		client: client, entries: make(map[string]*channel),
		kick: newBell(), ctx: ctx, stop: stop,
	}
}

func (s *subscriptions) own(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.entries[name]; ch != nil && ch.live.Load() {
		return 1
	}
	return 0
}

func (s *subscriptions) watch(name string, wake func()) Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.entries[name]
	if ch == nil {
		ch = &channel{name: name, watchers: make(map[*channelWatch]struct{}, 1)}
		s.entries[name] = ch
		s.changed()
	}
	w := &channelWatch{subs: s, ch: ch, wake: wake}
	ch.watchers[w] = struct{}{}
	return w
}

// changed starts the goroutine or wakes it. Under s.mu.
func (s *subscriptions) changed() {
	if s.ctx.Err() != nil {
		return
	}
	if !s.running {
		s.running = true
		s.work.Go(s.run)
	}
	s.kick.ring()
}

func (w *channelWatch) Live() bool { return w.ch.live.Load() }

func (w *channelWatch) Stop() {
	s := w.subs
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(w.ch.watchers, w)
	if len(w.ch.watchers) == 0 && s.entries[w.ch.name] == w.ch {
		delete(s.entries, w.ch.name)
		s.changed()
	}
}

// run keeps a connection as long as the store lives, from the first watch on.
func (s *subscriptions) run() {
	pause := backoff{shortest: moment, longest: subscriptionPing}
	for s.ctx.Err() == nil {
		if len(s.watched()) == 0 {
			select {
			case <-s.kick:
			case <-s.ctx.Done():
			}
			continue
		}
		if s.session() {
			pause.next = 0
		}
		s.down()
		pause.sleep(s.ctx)
	}
}

func (s *subscriptions) watched() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.entries))
}

// differ makes have the watched channels, and returns the names to subscribe and to unsubscribe. A channel that is
// watched anew is another one: only a later confirmation makes it live, and wakes who missed a message in between.
func (s *subscriptions) differ(have map[string]*channel) (more, less []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, ch := range s.entries {
		if have[name] != ch {
			have[name] = ch
			more = append(more, name)
		}
	}
	for name := range have {
		if s.entries[name] == nil {
			delete(have, name)
			less = append(less, name)
		}
	}
	return more, less
}

// tell applies an event to a channel, and wakes its watchers if event returns true.
func (s *subscriptions) tell(name string, event func(*channel) bool) {
	s.mu.Lock()
	var wakes []func()
	if ch := s.entries[name]; ch != nil && event(ch) {
		for w := range ch.watchers {
			wakes = append(wakes, w.wake)
		}
	}
	s.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// down wakes all watchers of channels that were live: no messages arrive now.
func (s *subscriptions) down() {
	for _, name := range s.watched() {
		s.tell(name, func(ch *channel) bool { return ch.live.Swap(false) })
	}
}

func (s *subscriptions) close() {
	s.mu.Lock()
	s.stop() // under mu: nothing starts after it
	s.mu.Unlock()
	s.work.Wait()
}

// session lives as long as one connection. It reports whether anything came: nothing does if Redis refuses.
func (s *subscriptions) session() bool {
	conn := s.client.Subscribe(s.ctx)
	have := make(map[string]*channel)
	if s.adjust(conn, have) != nil {
		_ = conn.Close()
		return false
	}
	heard := make(chan bool, 1)
	s.work.Go(func() { heard <- s.receive(conn) })
	for {
		select {
		case <-s.kick:
			if s.adjust(conn, have) == nil {
				continue
			}
		case useful := <-heard:
			_ = conn.Close()
			return useful
		case <-s.ctx.Done():
		}
		_ = conn.Close() // ends receive
		return <-heard
	}
}

// adjust makes the connection's channels (have) those that are watched. After an error the connection is useless.
func (s *subscriptions) adjust(conn *redis.PubSub, have map[string]*channel) error {
	ctx, cancel := context.WithTimeout(s.ctx, subscribeTimeout)
	defer cancel()
	more, less := s.differ(have)
	if err := s.send(ctx, more, conn.Subscribe, conn.SSubscribe); err != nil {
		return err
	}
	return s.send(ctx, less, conn.Unsubscribe, conn.SUnsubscribe)
}

// send subscribes or unsubscribes: plain channels at once, sharded ones singly, as their slots may differ.
func (s *subscriptions) send(
	ctx context.Context, names []string, plain, sharded func(context.Context, ...string) error,
) error {
	if !s.sharded && len(names) > 0 { // no names would be all of them
		return plain(ctx, names...)
	}
	for _, name := range names {
		if err := sharded(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// receive hands messages to the watchers until the connection breaks or is silent. It reports whether any came.
func (s *subscriptions) receive(conn *redis.PubSub) (heard bool) {
	silent := false
	for {
		limit := subscriptionPing
		if silent {
			limit = subscribeTimeout
		}
		msg, err := conn.ReceiveTimeout(s.ctx, limit)
		if err != nil {
			var timeout net.Error
			if silent || s.ctx.Err() != nil || !errors.As(err, &timeout) || !timeout.Timeout() {
				return heard
			}
			silent = true
			ctx, cancel := context.WithTimeout(s.ctx, subscribeTimeout)
			err = conn.Ping(ctx)
			cancel()
			if err != nil {
				return heard
			}
			continue
		}
		silent, heard = false, true
		switch m := msg.(type) {
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				s.tell(m.Channel, func(ch *channel) bool { ch.live.Store(true); return true })
			case "sunsubscribe":
				// The slot moves to another node, which ends the subscription: waiters ask at intervals from now on.
				s.tell(m.Channel, func(ch *channel) bool { ch.live.Store(false); return true })
			}
		case *redis.Message:
			s.tell(m.Channel, func(*channel) bool { return true })
		}
	}
}

// home is one Redis, or one node of a Cluster: calls to it, and its messages.
type home struct {
	calls  *batcher
	synced *batcher // of acquisitions that replicas are to confirm; nil: they are calls too
	subs   *subscriptions
}

func (h *home) close() {
	h.subs.close()
	h.calls.close()
	if h.synced != nil {
		h.synced.close()
	}
}

// newHome makes the home of what is at the client: a server, a Cluster, or a node of one.
func (s *redisLocks) newHome(client redis.UniversalClient) *home {
	h := &home{subs: newSubscriptions(client), calls: newBatcher(s.client)}
	h.calls.pipelines, h.calls.timeout = s.pipelines, s.timeout
	if s.replicas != 0 { // which only a connection to this very node counts
		h.synced = newBatcher(client)
		h.synced.spread, h.synced.solo = h.calls.spread, h.calls.solo // a Cluster's node too refuses keys of two slots
		h.synced.pipelines, h.synced.timeout, h.synced.replicas = s.pipelines, s.timeout, &replicas{want: s.replicas}
	}
	return h
}

// home is where a key lives. Each node of a Cluster has one, so that a silent node holds up only its locks.
func (s *redisLocks) home(ctx context.Context, key string) *home {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.first
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return s.first
	}
	address := node.Options().Addr
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.homes[address]
	if s.closed || h != nil && h.subs.client == redis.UniversalClient(node) {
		return cmp.Or(h, s.first)
	}
	now := s.newHome(node)
	now.subs.sharded = true
	if h != nil { // the node had left, and is back with another client
		old := &home{now.calls, h.synced, h.subs}
		now.calls = h.calls // some may be under way
		s.work.Go(old.close)
	}
	s.homes[address] = now
	return now
}

// isSharded asks a Cluster once whether it knows sharded messages (Redis 7), as Redisson does: the two kinds never
// meet. While it does not answer, plain ones are sent: a waiter that misses one asks at intervals anyway.
func (s *redisLocks) isSharded(ctx context.Context) bool {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return false
	}
	s.mu.Lock()
	known, sharded := s.known, s.sharded
	s.mu.Unlock()
	if known {
		return sharded
	}
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	err := cluster.Do(ctx, "pubsub", "shardnumsub").Err()
	var refused redis.Error
	if err != nil && !errors.As(err, &refused) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.sharded = true, err == nil
	return s.sharded
}

// messages are the subscriptions of a lock's channel. A sharded channel lives on the node of its slot.
func (s *redisLocks) messages(ctx context.Context, name string) *subscriptions {
	if s.isSharded(ctx) {
		return s.home(ctx, name).subs
	}
	return s.first.subs
}

// own counts this store's live subscriptions of a lock; -1 when others' cannot be counted: a node counts only its own.
func (s *redisLocks) own(ctx context.Context, name string) int {
	if _, cluster := s.client.(*redis.ClusterClient); cluster && !s.isSharded(ctx) {
		return -1
	}
	return s.messages(ctx, name).own(s.channel(name))
}
