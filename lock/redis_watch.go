package lock

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// subscriptionPing is how long a subscription may be silent before it is
	// asked whether it still lives; after subscriptionDead more it does not.
	subscriptionPing = time.Second
	subscriptionDead = 2 * time.Second
	// subscribeTimeout bounds connecting and subscribing.
	subscribeTimeout = 2 * time.Second
	// resubscribePause doubles up to maxResubscribePause between attempts to
	// connect again; waiters ask at intervals meanwhile.
	resubscribePause    = 20 * time.Millisecond
	maxResubscribePause = time.Second
)

// subscriptions shares one connection among all watches of a store. A channel
// is subscribed as long as a waiter watches it. Connecting, subscribing and
// receiving happen in goroutines of its own; a watcher never waits for them.
type subscriptions struct {
	client  redis.UniversalClient
	sharded bool // one node of a Cluster, with sharded channels

	mu      sync.Mutex
	entries map[string]*channel
	kick    bell // the wanted channels changed
	running bool
	closed  bool
	ctx     context.Context //nolint:containedctx // the life of the goroutines
	stop    context.CancelFunc
	work    sync.WaitGroup
}

// channel is a channel that is watched.
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

func (s *subscriptions) publish(context.Context) string { return "publish" }

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

// changed starts the goroutine or tells it to look. Under s.mu.
func (s *subscriptions) changed() {
	if s.closed {
		return
	}
	if !s.running {
		s.running = true
		s.work.Go(s.run)
	}
	s.kick.ring()
}

// Live is Watch's.
func (w *channelWatch) Live() bool { return w.ch.live.Load() }

// Stop is Watch's.
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
	pause := resubscribePause
	for s.ctx.Err() == nil {
		if len(s.wanted(nil)) == 0 {
			select {
			case <-s.kick:
			case <-s.ctx.Done():
			}
			continue
		}
		if s.session() {
			pause = resubscribePause
		}
		s.down()
		sleep(s.ctx, pause)
		pause = min(2*pause, maxResubscribePause)
	}
}

// wanted returns the channels that are watched and not in have.
func (s *subscriptions) wanted(have map[string]bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.entries {
		if !have[name] {
			names = append(names, name)
		}
	}
	return names
}

// unwanted returns the channels of have that are no longer watched.
func (s *subscriptions) unwanted(have map[string]bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range have {
		if s.entries[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// wake tells the watchers of a channel that it is live, or that a message came.
func (s *subscriptions) wake(name string, live bool) {
	s.mu.Lock()
	var wakes []func()
	if ch := s.entries[name]; ch != nil {
		if live {
			ch.live.Store(true)
		}
		for w := range ch.watchers {
			wakes = append(wakes, w.wake)
		}
	}
	s.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// moved takes note that the server ended a sharded subscription, as it does
// when the slot goes to another node: waiters ask at intervals from now on.
func (s *subscriptions) moved(name string) {
	s.mu.Lock()
	ch := s.entries[name]
	if ch != nil {
		ch.live.Store(false)
	}
	s.mu.Unlock()
	if ch != nil {
		s.wake(name, false)
	}
}

// down tells all watchers that no messages arrive.
func (s *subscriptions) down() {
	s.mu.Lock()
	var wakes []func()
	for _, ch := range s.entries {
		if ch.live.Swap(false) {
			for w := range ch.watchers {
				wakes = append(wakes, w.wake)
			}
		}
	}
	s.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// close ends the connection and the goroutines.
func (s *subscriptions) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.work.Wait()
}

// session lives as long as one connection. It reports whether that was of use.
func (s *subscriptions) session() bool {
	conn := s.client.Subscribe(s.ctx)
	have := make(map[string]bool)
	if s.adjust(conn, have) != nil {
		_ = conn.Close()
		return false
	}
	broken := make(chan struct{})
	s.work.Go(func() {
		defer close(broken)
		s.receive(conn)
	})
	defer func() {
		_ = conn.Close() // ends receive
		<-broken
	}()
	for {
		select {
		case <-s.kick:
			if s.adjust(conn, have) != nil {
				return true
			}
		case <-broken:
			return true
		case <-s.ctx.Done():
			return true
		}
	}
}

// adjust makes the connection's channels those that are watched.
func (s *subscriptions) adjust(conn *redis.PubSub, have map[string]bool) error {
	ctx, cancel := context.WithTimeout(s.ctx, subscribeTimeout)
	defer cancel()
	if names := s.wanted(have); len(names) > 0 {
		if err := s.send(ctx, names, conn.Subscribe, conn.SSubscribe); err != nil {
			return err
		}
		for _, name := range names {
			have[name] = true
		}
	}
	if names := s.unwanted(have); len(names) > 0 {
		if err := s.send(ctx, names, conn.Unsubscribe, conn.SUnsubscribe); err != nil {
			return err
		}
		for _, name := range names {
			delete(have, name)
		}
	}
	return nil
}

// send subscribes or unsubscribes: plain channels all at once, sharded ones one
// by one, since those of different slots may not share a command.
func (s *subscriptions) send(ctx context.Context, names []string, plain, sharded func(context.Context, ...string) error) error {
	if !s.sharded {
		return plain(ctx, names...)
	}
	for _, name := range names {
		if err := sharded(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// receive hands messages to the watchers until the connection breaks or stops
// to answer.
func (s *subscriptions) receive(conn *redis.PubSub) {
	silent := false
	for {
		limit := subscriptionPing
		if silent {
			limit = subscriptionDead
		}
		msg, err := conn.ReceiveTimeout(s.ctx, limit)
		if err != nil {
			var timeout net.Error
			if silent || s.ctx.Err() != nil || !errors.As(err, &timeout) || !timeout.Timeout() {
				return
			}
			silent = true
			ctx, cancel := context.WithTimeout(s.ctx, subscribeTimeout)
			err = conn.Ping(ctx)
			cancel()
			if err != nil {
				return
			}
			continue
		}
		silent = false
		switch m := msg.(type) {
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				s.wake(m.Channel, true)
			case "sunsubscribe":
				s.moved(m.Channel)
			}
		case *redis.Message:
			s.wake(m.Channel, false)
		}
	}
}
