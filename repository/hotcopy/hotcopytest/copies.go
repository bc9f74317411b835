// Package hotcopytest is the real hotcopy.Store over a Redis that can be slow, silent or absent, in a synctest bubble.
package hotcopytest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"seckill/internal/poll"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// Copies are the hot copies of any vouchers, on one server, with LockKeys set. The steps of a store are its scripts'
// names, held, incarnation and quiet. Tests change these fields in With while others call.
type Copies struct {
	*hotcopy.Store

	// Before runs before each step. Its error is what the store hears instead of Redis.
	Before func(step string) error
	// Took is how long Redis takes to answer, and Takes how long it takes for single steps.
	Took  time.Duration
	Takes map[string]time.Duration
	// Yields is how long Buyers takes from what it reads to what it yields.
	Yields time.Duration
	// Down refuses every connection, as a Redis does that is away.
	Down error
	// Away are vouchers that cannot be asked or told, as of a Cluster's node that is away.
	Away map[string]error
	// Nodes are the servers of vouchers; empty: there is one. Read waits for a Silent one until it is given up.
	Nodes  map[string]string
	Silent map[string]bool
	// Answer answers a lone order of Reserve instead of the copy, unless it is nil.
	Answer func(model.ReserveRequest) *model.ReserveResult

	t      testing.TB
	mu     sync.Mutex
	calls  map[string]int64
	names  sync.Map // of scripts, by what Redis calls them
	server *miniredis.Miniredis
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
	client := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379", // of a name the resolver is asked, outside the bubble
		Dialer: c.dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1000,
	})
	client.AddHook(hook{c})
	c.Store = hotcopy.New(client, hotcopy.Options{LockKeys: true, Identity: "this start"})
	t.Cleanup(c.server.Close)
	t.Cleanup(func() { _ = client.Close() })
	return c
}

type aside struct{}

func background() context.Context { return context.WithValue(context.Background(), aside{}, true) }

type hook struct{ c *Copies }

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.c.before(ctx, h.c.step(cmd)); err != nil {
			cmd.SetErr(err)
			return err
		}
		err := next(ctx, cmd)
		h.c.heard(cmd)
		return err
	}
}

// heard notes the scripts that Redis knows from now on.
func (c *Copies) heard(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if cmd.Name() == "eval" {
			source := fmt.Sprint(cmd.Args()[1])
			sum := sha1.Sum([]byte(source))
			c.names.Store(hex.EncodeToString(sum[:]), named(source))
		}
	}
}

func named(script string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(script, "-- "), "\n")
	return name
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		step := h.c.step(cmds[0])
		if step == "" {
			return next(ctx, cmds)
		}
		err := h.c.before(ctx, step)
		for id, away := range h.c.Away {
			if slices.Contains(cmds[0].Args(), any("seckill:v1:{"+id+"}:head")) {
				err = cmp.Or(err, away)
			}
		}
		if err != nil {
			return err
		}
		err = next(ctx, cmds)
		h.c.heard(cmds...)
		return err
	}
}

// step is empty for what is no step: the greeting of a connection, and a script that Redis does not know yet.
func (c *Copies) step(cmd redis.Cmder) string {
	switch args := cmd.Args(); cmd.Name() {
	case "eval":
		return named(fmt.Sprint(args[1]))
	case "evalsha":
		if name, heard := c.names.Load(args[1]); heard {
			return fmt.Sprint(name)
		}
		return ""
	default:
		return map[string]string{"hmget": "held", "get": "incarnation", "hlen": "quiet"}[cmd.Name()]
	}
}

// before counts a step, lets the test have its way, and tells why the step fails; nil: it does not.
func (c *Copies) before(ctx context.Context, step string) error {
	if ctx.Value(aside{}) != nil || step == "" {
		return nil
	}
	c.mu.Lock()
	c.calls[step]++
	took, special := c.Takes[step]
	if !special {
		took = c.Took
	}
	c.mu.Unlock()
	if c.Before != nil {
		if err := c.Before(step); err != nil {
			return err
		}
	}
	if err := pause(ctx, took); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Down != nil {
		return &net.OpError{Op: "dial", Err: c.Down}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	poll.Pause(ctx, d)
	return ctx.Err()
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

// Calls tells how often a step was taken.
func (c *Copies) Calls(step string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[step]
}

// near are those whose vouchers are not away.
func near[T any](c *Copies, all []T, voucher func(T) string) (asked []T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range all {
		if away := c.Away[voucher(one)]; away != nil {
			err = errors.Join(err, model.Unavailable("Redis does not answer.", away))
			continue
		}
		asked = append(asked, one)
	}
	return asked, err
}

// Node is the server of a voucher's copy.
func (c *Copies) Node(voucherID string) string { return c.Nodes[voucherID] }

// Reserve is that of the store, for those requests that Answer leaves open.
func (c *Copies) Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error) {
	if c.Answer != nil && len(asked) == 1 {
		if err := c.before(ctx, "reserve"); err != nil {
			return []model.ReserveResult{{Err: err}}, err
		}
		if given := c.Answer(asked[0]); given != nil {
			return []model.ReserveResult{*given}, nil
		}
	}
	return c.Store.Reserve(ctx, asked)
}

// Settle is that of the store.
func (c *Copies) Settle(ctx context.Context, orders []model.Order) error {
	asked, err := near(c, orders, func(o model.Order) string { return o.VoucherID })
	return errors.Join(c.Store.Settle(ctx, asked), err)
}

// Read is that of the store.
func (c *Copies) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	if slices.ContainsFunc(ids, func(id string) bool { return c.Silent[id] }) {
		<-ctx.Done()
		return map[string]model.HotCopy{}, model.Unavailable("Redis does not answer.", ctx.Err())
	}
	asked, err := near(c, ids, func(id string) string { return id })
	copies, failed := c.Store.Read(ctx, asked)
	return copies, errors.Join(failed, err)
}

// Pending is that of the store. An id that names no voucher, as tests like them, is looked for in v1.
func (c *Copies) Pending(ctx context.Context, orderID string) (r model.Reservation, found bool, err error) {
	if _, ok := model.VoucherOf(orderID); ok {
		return c.Store.Pending(ctx, orderID)
	}
	if err = c.before(ctx, "find"); err == nil {
		r, found = c.Sale("v1").Pending()[orderID]
	}
	return r, found, err
}

// Buyers is that of the store. It yields when it has read all.
func (c *Copies) Buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error {
	var users []string
	err := c.Store.Buyers(ctx, v, func(userID string) error { users = append(users, userID); return nil })
	if err == nil {
		err = pause(ctx, c.Yields)
	}
	for _, userID := range users {
		if err == nil {
			err = yield(userID)
		}
	}
	return err
}

// Sale looks past the store at the keys of one voucher's hot copy, and spoils them. See head.lua.
type Sale struct {
	c  *Copies
	ID string
}

// Sale is the copy of a voucher.
func (c *Copies) Sale(voucherID string) *Sale { return &Sale{c: c, ID: voucherID} }

// Add opens an empty copy of a voucher in epoch 1.
func (c *Copies) Add(v model.Voucher) *Sale {
	c.rebuild(v, 1, nil, nil)
	return c.Sale(v.ID)
}

func (c *Copies) rebuild(v model.Voucher, epoch int64, live []model.Order, carried []model.Reservation) {
	ctx, record := background(), model.EpochRecord{VoucherID: v.ID, Epoch: epoch, OpenEpoch: epoch - 1}
	c.Sale(v.ID).must(errors.Join(
		c.Close(ctx, record), c.Load(ctx, record, nil, nil), c.Load(ctx, record, live, carried),
		c.Open(ctx, record, v, 0),
	))
}

// Rebuild takes all that the copy holds to its next epoch.
func (s *Sale) Rebuild() {
	var live []model.Order
	var carried []model.Reservation
	for user, id := range s.Marks() {
		live = append(live, model.Order{ID: id, UserID: user})
	}
	for _, r := range s.Pending() {
		carried = append(carried, r)
	}
	s.c.rebuild(s.Voucher(), s.Epoch()+1, live, carried)
}

// Admit reserves a unit by a copy that knows no other order of the user.
func (s *Sale) Admit(orderID, userID string) model.Reservation {
	s.Drop("buyers", userID)
	asked := model.ReserveRequest{OrderID: orderID, VoucherID: s.ID, UserID: userID, Locked: true, Anytime: true}
	answers, err := s.c.Store.Reserve(background(), []model.ReserveRequest{asked})
	if err != nil || answers[0].Err != nil {
		s.c.t.Errorf("reserve %s for %s: %v, %v", orderID, userID, err, answers[0].Err)
	}
	return answers[0].Reservation
}

func (s *Sale) key(noun string) string {
	if noun == "head" {
		return "seckill:v1:{" + s.ID + "}:head"
	}
	return fmt.Sprintf("seckill:v1:{%s}:%d:%s", s.ID, s.Epoch(), noun)
}

func (s *Sale) read() model.HotCopy {
	copies, err := s.c.Store.Read(background(), []string{s.ID})
	s.must(err)
	return copies[s.ID]
}

// State is closed where there is no copy.
func (s *Sale) State() model.CopyState { return s.read().State }

// Voucher is what the head has of the voucher.
func (s *Sale) Voucher() model.Voucher { return s.read().Voucher }

// Epoch is that of the head; 0 without one.
func (s *Sale) Epoch() int64 {
	epoch, _ := strconv.ParseInt(s.c.server.HGet(s.key("head"), "epoch"), 10, 64)
	return epoch
}

// Set changes a field of the head, which counts as a change of the copy.
func (s *Sale) Set(field string, value any) {
	s.c.server.HSet(s.key("head"), field, fmt.Sprint(value))
	s.Touch()
}

// Change brings a change of the voucher to the copy, as its next revision.
func (s *Sale) Change(change func(v *model.Voucher)) {
	v := s.Voucher()
	change(&v)
	v.Revision++
	if applied, err := s.c.Apply(background(), v); err != nil || !applied {
		s.c.t.Errorf("change the copy: %v, %v", applied, err)
	}
}

// Touch makes the copy another version of itself.
func (s *Sale) Touch() {
	_, err := s.c.server.HIncrBy(s.key("head"), "changes", 1)
	s.must(err)
}

// Marks are the orders of users in the open epoch.
func (s *Sale) Marks() map[string]string {
	marks := map[string]string{}
	s.must(s.c.Marks(background(), s.ID, s.Epoch(), func(user, id string) error { marks[user] = id; return nil }))
	return marks
}

// Pending are the reservations of the open epoch.
func (s *Sale) Pending() map[string]model.Reservation {
	pending := map[string]model.Reservation{}
	note := func(r model.Reservation) error { pending[r.ID] = r; return nil }
	s.must(s.c.Pendings(background(), s.ID, s.Epoch(), note))
	return pending
}

func (s *Sale) must(err error) {
	if err != nil {
		s.c.t.Error(err)
	}
}

// Due tells when orders were published that repair looks at.
func (s *Sale) Due() map[string]time.Time { return s.scores("due", "") }

// Cooling tells until when users wait before another order.
func (s *Sale) Cooling() map[string]time.Time { return s.scores("closed", "/") }

func (s *Sale) scores(noun, prefix string) map[string]time.Time {
	scores := map[string]time.Time{}
	all, _ := s.c.server.SortedSet(s.key(noun)) // an error says that there is no such key
	for member, ms := range all {
		if name, is := strings.CutPrefix(member, prefix); is && name != "" {
			scores[name] = time.UnixMilli(int64(ms))
		}
	}
	return scores
}

// Mark marks a user as the buyer of an order.
func (s *Sale) Mark(userID, orderID string) { s.c.server.HSet(s.key("buyers"), userID, orderID) }

// Hold makes an order pending, and neither marks its user nor notes it as due.
func (s *Sale) Hold(order model.Order) {
	s.c.server.HSet(s.key("pending"), order.ID, fmt.Sprintf("%s %d %d %s %d",
		order.UserID, order.CreatedAt.UnixMicro(), order.Price, order.Currency, s.Epoch()))
}

// Note notes an order as published.
func (s *Sale) Note(orderID string, at time.Time) {
	_, _ = s.c.server.ZAdd(s.key("due"), float64(at.UnixMilli()), orderID)
}

// Cool makes a user wait before another order.
func (s *Sale) Cool(userID string, until time.Time) {
	_, _ = s.c.server.ZAdd(s.key("closed"), float64(until.UnixMilli()), "/"+userID)
}

// Drop loses an entry of buyers, pending or due.
func (s *Sale) Drop(noun, name string) {
	if noun == "due" {
		_, _ = s.c.server.ZRem(s.key(noun), name)
		return
	}
	s.c.server.HDel(s.key(noun), name)
}
