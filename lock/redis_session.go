package lock

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

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
