package lock

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock/driver"
)

const (
	// latchTime is longer than go-redis goes on repeating a command (with
	// its defaults, four attempts of 5 s).
	latchTime = 30 * time.Second
	// swiftly is below the pause before go-redis repeats a command (8 ms): an
	// answer that came within it is to the first sending, and no copy of the
	// request is under way any more.
	swiftly = 5 * time.Millisecond
	// defaultTokenRetention is more than a server's clock is ever set back
	// by; after it a counter may go, since the clock has passed it.
	defaultTokenRetention = time.Hour
)

// redisStore keeps locks in Redisson's layout, see NewRedisStore, and can hand them over.
type redisStore struct{ redisLocks }

// redisLocks is a Store in one Redis (a single server, one behind Sentinel, or a Cluster),
// of either layout.
type redisLocks struct {
	layout    layout
	retention int64 // of token counters, ms; 0 for ever; -1 no tokens
	noTokens  bool  // whatever the retention
	calls     *batcher
	synced    *batcher // of acquisitions that replicas are to confirm; nil: they are calls too
	replicas  int      // as Synced says
	subs      messages
}

var _ driver.Passer = (*redisStore)(nil)

// layout is how a lock looks in Redis.
type layout struct {
	acquire, renew, release, pass, force *script
	holder                               []any  // the command that names it, with a place for the lock's name
	channel, token, latch                string // prefixes of key names
}

// RedisOption changes a store in Redis.
type RedisOption func(*redisLocks)

// WithoutTokens keeps no token counters: Lease.Token is 0, a lock leaves no key
// behind, and taking one is a little cheaper. For locks whose data has a guard
// of its own, such as a unique constraint.
func WithoutTokens() RedisOption {
	return func(s *redisLocks) { s.noTokens = true }
}

// TokenRetention sets how long the token counter of a lock is kept after its
// last acquisition (default 1 h). A counter that is gone starts again at the
// server's clock, above every token given before unless the clock was set back
// by more than this. 0 keeps counters for ever, as Redisson does: set that when
// Java processes use RFencedLock of the same name.
func TokenRetention(d time.Duration) RedisOption {
	return func(s *redisLocks) { s.retention = max(d, 0).Milliseconds() }
}

// Pipelines sets how many pipelines of acquire and release requests may be
// under way at once (default 2, which keeps both ends busy: one is being
// carried out while the next one fills).
func Pipelines(n int) RedisOption {
	return func(s *redisLocks) { s.calls.pipelines = max(n, 1) }
}

// CallTimeout bounds each call to Redis, its place in a pipeline included
// (default 2 s, kept to a tenth of a second; a context may end it earlier). 0 or
// less is the default.
func CallTimeout(d time.Duration) RedisOption {
	return func(s *redisLocks) { s.calls.timeout = orDefault(d, defaultCallTimeout) }
}

// NewRedisStore keeps re-entrant locks in the layout of Redisson: a hash
// {"<uuid>:<integer>": hold count} under the lock's name with the lease as its
// expiry, and unlock messages on redisson_lock__channel:{name}. It needs Redis
// 6.2 or newer. The client stays the caller's; it should not have an
// AutoPipeline of its own. Deadlines are kept whether or not its
// ContextTimeoutEnabled is set, and it may repeat commands: the scripts allow it.
//
// In a Cluster the other keys of a lock must lie where the lock does, and
// Redisson's rule for their names brings that about for names without braces and
// for those with a hash tag, "{user}:42". Names such as "a}b", "a{b", "{}" and ""
// miss it: their locks are refused (ErrRefused).
//
// client must not be a *redis.Ring: it has no one server on which the waiters of
// a lock could subscribe, and go-redis panics.
func NewRedisStore(client redis.UniversalClient, opts ...RedisOption) driver.Store {
	return &redisStore{*newRedisLocks(client, layout{
		acquire: many("acquire", 2, "lease"), renew: many("renew", 1, "lease"), release: many("release", 1),
		pass: one("pass", 2), force: one("force", 1), holder: []any{"hscan", "", 0},
		channel: "redisson_lock__channel", token: "redisson_lock_token", latch: "redisson_unlock_latch",
	}, opts)}
}

// NewSetNXStore keeps locks as plain keys, SET NX PX with the holder as the
// value, given back by compare and delete: what most programs that are not
// Redisson do. Unlock messages go to lock_channel:{name}. A Redisson lock of the
// same name is another lock, and the two must not meet on one key: give these a
// name of their own. Options as for NewRedisStore.
//
// The key holds no hold count; re-entry works all the same, because the Client
// counts.
func NewSetNXStore(client redis.UniversalClient, opts ...RedisOption) driver.Store {
	return newRedisLocks(client, layout{
		acquire: many("setnx_acquire", 2, "lease"), renew: many("setnx_renew", 1, "lease"), release: many("setnx_release", 1),
		force: one("force", 1), holder: []any{"get", ""},
		channel: "lock_channel", token: "lock_token", latch: "lock_latch",
	}, opts)
}

func newRedisLocks(client redis.UniversalClient, l layout, opts []RedisOption) *redisLocks {
	s := &redisLocks{
		layout: l, retention: defaultTokenRetention.Milliseconds(),
		calls: newBatcher(client), subs: newMessages(client),
	}
	for _, o := range opts {
		o(s)
	}
	if s.replicas != 0 {
		s.synced = newBatcher(client)
		s.synced.pipelines, s.synced.timeout = s.calls.pipelines, s.calls.timeout
		s.synced.replicas = &replicas{want: s.replicas}
	}
	if s.noTokens {
		s.retention = -1
	}
	return s
}

// Acquire is Store's.
func (s *redisLocks) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	keys := []string{r.Name, s.latch(r)}
	if s.retention >= 0 {
		keys = append(keys, keyName(s.layout.token, r.Name))
	}
	c := newCall(s.layout.acquire.on(millis(r.Lease), int64(r.Holds), s.retention, r.Token), keys, r.Holder)
	if r.Holds == 1 {
		s.take(ctx, c)
	} else {
		s.do(ctx, c)
	}
	reply, err := c.reply()
	if err != nil {
		return driver.Grant{}, err
	}
	switch reply[0] {
	case 1:
		return driver.Grant{State: driver.StateHeld, Token: reply[1], Once: c.once(), Unsynced: c.answer.unsynced}, nil
	case 0:
		left := time.Duration(max(reply[1], 0)) * time.Millisecond
		return driver.Grant{State: driver.StateBusy, Remaining: left, Once: c.once(), Stray: !c.once()}, nil
	}
	return driver.Grant{State: driver.StateLost, Stray: !c.once()}, nil
}

// Renew is Store's.
func (s *redisLocks) Renew(ctx context.Context, rs []driver.Request) []error {
	calls := make([]*call, len(rs))
	for i, r := range rs {
		calls[i] = newCall(s.layout.renew.on(millis(r.Lease), number(r.Exact)), []string{r.Name}, r.Holder)
	}
	s.direct(ctx, calls)
	errs := make([]error, len(rs))
	for i, c := range calls {
		reply, err := c.reply()
		switch {
		case err == nil && reply[0] == 1:
		case err == nil, wrongType(err): // that is: something else is there instead
			errs[i] = ErrLost
		default:
			errs[i] = err
		}
	}
	return errs
}

// Release is Store's.
func (s *redisLocks) Release(ctx context.Context, r driver.Request) (bool, error) {
	latch := s.latch(r)
	c := newCall(s.layout.release.on(int64(r.Holds), millis(latchTime), s.sharded(ctx), number(r.Abandon)),
		[]string{r.Name, s.channel(r.Name), latch}, r.Holder)
	s.do(ctx, c)
	reply, err := c.reply()
	if err != nil {
		return false, err
	}
	if reply[0] == 1 && r.Once {
		s.calls.forget(latch)
	}
	return reply[0] >= 0, nil
}

// Pass is Passer's.
func (s *redisStore) Pass(ctx context.Context, from, to driver.Request) (driver.Passed, error) {
	latch := s.latch(from)
	channel := s.channel(from.Name)
	c := newCall(s.layout.pass.on(millis(to.Lease), millis(latchTime), s.sharded(ctx), int64(s.subs.own(channel)), s.retention),
		[]string{from.Name, channel, latch, s.latch(to), keyName(s.layout.token, from.Name)}, from.Holder, to.Holder)
	s.take(ctx, c)
	reply, err := c.reply()
	if err != nil {
		return driver.Passed{}, err
	}
	if reply[0] >= 0 && from.Once {
		s.calls.forget(latch)
	}
	return driver.Passed{Was: reply[0] >= 0, Held: reply[0] == 1, Token: reply[1], Once: c.once(), Unsynced: c.answer.unsynced}, nil
}

// ForceRelease is Store's.
func (s *redisLocks) ForceRelease(ctx context.Context, name string) (bool, error) {
	latch := s.latch(driver.Request{Name: name, Holder: newUUID()})
	c := newCall(s.layout.force.on(millis(latchTime), s.sharded(ctx)), []string{name, s.channel(name), latch})
	s.do(ctx, c)
	reply, err := c.reply()
	if err != nil {
		return false, err
	}
	if reply[0] == 1 { // it is for repetitions, and the answer is here
		s.calls.forget(latch)
	}
	return reply[0] == 1, nil
}

// Holder is Store's.
func (s *redisLocks) Holder(ctx context.Context, name string) (holder string, left time.Duration, err error) {
	pipe := s.calls.client.TxPipeline()
	ask := slices.Clone(s.layout.holder)
	ask[1] = name
	who, ttl := pipe.Do(ctx, ask...), pipe.PTTL(ctx, name)
	var failed error
	if err = s.calls.aside(ctx, func(ctx context.Context) { _, failed = pipe.Exec(ctx) }); err != nil {
		return "", 0, err
	}
	if failed != nil && !errors.Is(failed, redis.Nil) {
		return "", 0, classify(failed)
	}
	switch v := who.Val().(type) {
	case string:
		holder = v
	case []any:
		if found, _ := v[1].([]any); len(found) > 0 {
			holder, _ = found[0].(string)
		}
	}
	if holder == "" {
		return "", 0, nil
	}
	return holder, ttl.Val(), nil
}

// Watch is Store's.
func (s *redisLocks) Watch(name string, wake func()) driver.Watch {
	return s.subs.watch(s.channel(name), wake)
}

// Close is Store's. The Redis client is not closed.
func (s *redisLocks) Close() error {
	s.subs.close()
	s.calls.close()
	if s.synced != nil {
		s.synced.close()
	}
	return nil
}

func (s *redisLocks) channel(name string) string { return keyName(s.layout.channel, name) }

func (s *redisLocks) latch(r driver.Request) string {
	return keyName(s.layout.latch, r.Name) + ":" + latchID(r.Holder)
}

// sharded is 1 when messages are.
func (s *redisLocks) sharded(ctx context.Context) int64 { return number(s.subs.isSharded(ctx)) }

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// keyName puts a prefix before a lock's name so that both are in the same slot
// of a Cluster, exactly as Redisson does: a name that has a brace already
// brings its own hash tag.
func keyName(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// latchID makes the 32 hexadecimal digits that end a latch's name: half of the
// holder's uuid and its integer, which are used once.
func latchID(holder string) string {
	uuid, integer, ok := strings.Cut(holder, ":")
	n, err := strconv.ParseUint(integer, 10, 64)
	if !ok || err != nil || len(uuid) != 36 {
		sum := sha256.Sum256([]byte(holder))
		return hex.EncodeToString(sum[:16])
	}
	id := make([]byte, 0, 32)
	id = append(id, uuid[:8]...)
	id = append(id, uuid[9:13]...)
	id = append(id, uuid[14:18]...)
	id = hex.AppendEncode(id, binary.BigEndian.AppendUint64(nil, n))
	return string(id)
}

// millis is a duration as Redis' expiries want it; never less than one.
func millis(d time.Duration) int64 { return max(d.Milliseconds(), 1) }
