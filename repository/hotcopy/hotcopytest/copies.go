// Package hotcopytest is the real hotcopy.Store, with its real scripts, over a Redis inside the test that can be
// made slow, silent or absent. It works in a bubble of testing/synctest.
package hotcopytest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"seckill/model"
	"seckill/repository/hotcopy"
)

// Copies are the hot copies of any number of vouchers, on one server. The store's option LockKeys is set.
//
// What tests change in these fields while others call belongs into With.
type Copies struct {
	*hotcopy.Store

	// Before runs before each call about a voucher, or about several when the id is empty. Its error becomes the call's.
	Before func(ctx context.Context, method, voucherID string) error
	// Took is how long a call takes, and Takes that of single methods.
	Took  time.Duration
	Takes map[string]time.Duration
	// Yields is how long Buyers takes from what it reads to what it yields.
	Yields time.Duration
	// Down fails every call with UNAVAILABLE, as a Redis does that is away.
	Down error
	// Away are vouchers that cannot be asked, as of a Cluster's node that is away.
	Away map[string]error
	// Nodes are the servers of vouchers; empty: there is one. Read waits for that of a Silent voucher until it is given
	// up.
	Nodes  map[string]string
	Silent map[string]bool
	// Answer answers an order of Reserve instead of the copy, unless it is nil.
	Answer func(model.ReserveRequest) *model.ReserveResult

	t      testing.TB
	mu     sync.Mutex
	calls  map[string]int64
	server *miniredis.Miniredis
	client *redis.Client
	wires  sync.Mutex
	conns  []net.Conn
}

// New has no copy yet. It ends with the test.
func New(t testing.TB) *Copies {
	t.Helper()
	c := &Copies{
		t: t, Takes: map[string]time.Duration{}, Away: map[string]error{}, calls: map[string]int64{},
		server: miniredis.NewMiniRedis(),
	}
	c.client = redis.NewClient(&redis.Options{
		Dialer: c.dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // would look up a name
	})
	c.Store = hotcopy.New(c.client, hotcopy.Options{LockKeys: true, Identity: "this start"})
	t.Cleanup(func() {
		if err := c.client.Close(); err != nil {
			t.Error(err)
		}
		c.server.Close()
	})
	return c
}

// dial connects a client without a network, which no bubble could hold.
func (c *Copies) dial(context.Context, string, string) (net.Conn, error) {
	conn, err := c.server.Dial()
	if err != nil {
		return nil, err
	}
	patient := &sender{Conn: conn, sent: make(chan []byte, 1000), closed: make(chan struct{})}
	go patient.run()
	c.wires.Lock()
	defer c.wires.Unlock()
	c.conns = append(c.conns, patient)
	return patient, nil
}

// sender has a buffer, as a network does: the server answers the first of many commands before it reads the last.
type sender struct {
	net.Conn

	sent   chan []byte
	once   sync.Once
	closed chan struct{}
}

func (s *sender) run() {
	for {
		select {
		case <-s.closed:
			return
		case some := <-s.sent:
			if _, err := s.Conn.Write(some); err != nil {
				_ = s.Close()
			}
		}
	}
}

func (s *sender) Write(some []byte) (int, error) {
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	case s.sent <- bytes.Clone(some):
		return len(some), nil
	}
}

func (s *sender) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// Disconnect breaks every connection, also those of subscriptions: what is told meanwhile is lost.
func (c *Copies) Disconnect() {
	c.wires.Lock()
	defer c.wires.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// With lets a test change fields between calls.
func (c *Copies) With(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// Lose is a FLUSHALL.
func (c *Copies) Lose() { c.server.FlushAll() }

// Lock makes another program hold a user's lock, and Unlock give it back.
func (c *Copies) Lock(userID string) { c.server.HSet(model.UserLock(userID), "somebody:1", "1") }

// Unlock is of Lock.
func (c *Copies) Unlock(userID string) { c.server.Del(model.UserLock(userID)) }

// Tell tells every watcher that orders are not pending any more.
func (c *Copies) Tell(orderIDs ...string) {
	c.server.Publish("seckill:v1:settled-orders", strings.Join(orderIDs, " "))
}

// Calls tells how often a method was called.
func (c *Copies) Calls(method string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[method]
}

// before counts a call, lets the test have its way, and tells why the call fails; nil: it does not.
func (c *Copies) before(ctx context.Context, method, voucherID string) error {
	c.mu.Lock()
	c.calls[method]++
	took := c.Took
	if special, ok := c.Takes[method]; ok {
		took = special
	}
	c.mu.Unlock()
	if c.Before != nil {
		if err := c.Before(ctx, method, voucherID); err != nil {
			return err
		}
	}
	if err := pause(ctx, took); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := errors.Join(c.Down, c.Away[voucherID]); err != nil {
		return model.Unavailable("Redis does not answer.", err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return model.Unavailable("There was no time left to ask Redis.", ctx.Err())
	}
}

// away are the vouchers of several that cannot be asked now.
func (c *Copies) away(ids []string) (asked []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if away := c.Away[id]; away != nil {
			err = errors.Join(err, model.Unavailable("Redis does not answer.", away))
			continue
		}
		asked = append(asked, id)
	}
	return asked, err
}
