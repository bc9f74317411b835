package lock

import (
	"context"
	"crypto/sha256"
	_ "embed" // the scripts
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/acquire.lua
var acquireLua string

//go:embed lua/renew.lua
var renewLua string

//go:embed lua/release.lua
var releaseLua string

//go:embed lua/pass.lua
var passLua string

//go:embed lua/force.lua
var forceLua string

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

// RedisStore keeps locks in one Redis (a single server, one behind Sentinel, or
// a Cluster). See NewRedisStore and NewSetNXStore.
type RedisStore struct {
	layout    layout
	retention int64 // of token counters, ms; 0 for ever; -1 no tokens
	cluster   bool
	calls     *batcher
	subs      messages
}

var (
	_ Store  = (*RedisStore)(nil)
	_ Passer = (*RedisStore)(nil)
)

// layout is how a lock looks in Redis.
type layout struct {
	acquire, renew, release, pass, force *script
	channel, token, latch                string // prefixes of key names
}

// RedisOption changes a RedisStore.
type RedisOption func(*redisSettings)

type redisSettings struct {
	retention   time.Duration
	noTokens    bool
	connections int
	timeout     time.Duration
}

// WithoutTokens keeps no token counters: Lease.Token is 0, a lock leaves no key
// behind, and taking one is a little cheaper. For locks whose data has a guard
// of its own, such as a unique constraint.
func WithoutTokens() RedisOption {
	return func(s *redisSettings) { s.noTokens = true }
}

// TokenRetention sets how long the token counter of a lock is kept after its
// last acquisition (default 1 h). A counter that is gone starts again at the
// server's clock, above every token given before unless the clock was set back
// by more than this. 0 keeps counters for ever, as Redisson does: set that when
// Java processes use RFencedLock of the same name.
func TokenRetention(d time.Duration) RedisOption {
	return func(s *redisSettings) { s.retention = max(d, 0) }
}

// Pipelines sets how many pipelines of acquire and release requests may be
// under way at once (default 2, which keeps both ends busy: one is being
// carried out while the next one fills).
func Pipelines(n int) RedisOption {
	return func(s *redisSettings) { s.connections = max(n, 1) }
}

// CallTimeout bounds each call to Redis, its place in a pipeline included
// (default 2 s, kept to a tenth of a second; a context may end it earlier).
func CallTimeout(d time.Duration) RedisOption {
	return func(s *redisSettings) { s.timeout = d }
}

// NewRedisStore keeps re-entrant locks in the layout of Redisson: a hash
// {"<uuid>:<integer>": hold count} under the lock's name with the lease as its
// expiry, and unlock messages on redisson_lock__channel:{name}. It needs Redis
// 6.2 or newer. The client stays the caller's; it should not have an
// AutoPipeline of its own. Deadlines are kept whether or not its
// ContextTimeoutEnabled is set, and it may repeat commands: the scripts allow it.
func NewRedisStore(client redis.UniversalClient, opts ...RedisOption) *RedisStore {
	return newRedisStore(client, layout{
		acquire: newScript(acquireLua), renew: newScript(renewLua), release: newScript(releaseLua),
		pass: newScript(passLua), force: newScript(forceLua),
		channel: "redisson_lock__channel", token: "redisson_lock_token", latch: "redisson_unlock_latch",
	}, opts)
}

func newRedisStore(client redis.UniversalClient, l layout, opts []RedisOption) *RedisStore {
	set := redisSettings{retention: defaultTokenRetention, connections: defaultPipelines, timeout: defaultCallTimeout}
	for _, o := range opts {
		o(&set)
	}
	retention := set.retention.Milliseconds()
	if set.noTokens {
		retention = -1
	}
	_, cluster := client.(*redis.ClusterClient)
	return &RedisStore{
		layout: l, retention: retention, cluster: cluster,
		calls: newBatcher(client, set.connections, set.timeout, cluster),
		subs:  newMessages(client),
	}
}

// Acquire is Store's.
func (s *RedisStore) Acquire(ctx context.Context, r Request) (Grant, error) {
	c := s.layout.acquire.call(3,
		r.Name, keyName(s.layout.token, r.Name), s.latch(r),
		r.Holder, strconv.Itoa(r.Holds), millis(r.Lease), strconv.FormatInt(s.retention, 10), strconv.FormatInt(r.Token, 10))
	v, err := s.calls.do(ctx, c)
	if err != nil {
		return Grant{}, err
	}
	code, n, err := pair(v)
	if err != nil {
		return Grant{}, err
	}
	switch code {
	case 1:
		return Grant{State: StateHeld, Token: n, Once: c.once()}, nil
	case 0:
		left := time.Duration(max(n, 0)) * time.Millisecond
		return Grant{State: StateBusy, Remaining: left, Once: c.once(), Stray: !c.once()}, nil
	}
	return Grant{State: StateLost, Stray: !c.once()}, nil
}

// Renew is Store's.
func (s *RedisStore) Renew(ctx context.Context, rs []Request) ([]bool, error) {
	perCall := len(rs)
	if s.cluster {
		perCall = 1 // a script's keys must share a slot; one pipeline takes them all
	}
	var calls []*call
	for rest := rs; len(rest) > 0; rest = rest[min(perCall, len(rest)):] {
		part := rest[:min(perCall, len(rest))]
		args := make([]string, 0, 3*len(part))
		for _, r := range part {
			args = append(args, r.Name)
		}
		for _, r := range part {
			args = append(args, r.Holder, millis(r.Lease))
		}
		calls = append(calls, s.layout.renew.call(len(part), args...))
	}
	if err := s.calls.direct(ctx, calls); err != nil {
		return nil, err
	}
	there := make([]bool, 0, len(rs))
	for _, c := range calls {
		if c.err != nil {
			return nil, c.err
		}
		list, ok := c.val.([]any)
		if !ok {
			return nil, unexpected(c.val)
		}
		for _, v := range list {
			n, _ := v.(int64)
			there = append(there, n == 1)
		}
	}
	if len(there) != len(rs) {
		return nil, unexpected(there)
	}
	return there, nil
}

// Release is Store's.
func (s *RedisStore) Release(ctx context.Context, r Request) (bool, error) {
	abandon := "0"
	if r.Abandon {
		abandon = "1"
	}
	latch := s.latch(r)
	c := s.layout.release.call(3,
		r.Name, keyName(s.layout.channel, r.Name), latch,
		r.Holder, strconv.Itoa(r.Holds), millis(latchTime), s.subs.publish(ctx), abandon)
	v, err := s.calls.do(ctx, c)
	if err != nil {
		return false, err
	}
	n, ok := v.(int64)
	if !ok {
		return false, unexpected(v)
	}
	if n == 1 && r.Once {
		s.calls.forget(latch)
	}
	return n >= 0, nil
}

// Pass is Passer's.
func (s *RedisStore) Pass(ctx context.Context, from, to Request) (Passed, error) {
	latch := s.latch(from)
	channel := keyName(s.layout.channel, from.Name)
	c := s.layout.pass.call(5,
		from.Name, channel, latch, s.latch(to), keyName(s.layout.token, from.Name),
		from.Holder, to.Holder, millis(to.Lease), millis(latchTime), s.subs.publish(ctx),
		strconv.Itoa(s.subs.own(channel)), strconv.FormatInt(s.retention, 10))
	v, err := s.calls.do(ctx, c)
	if err != nil {
		return Passed{}, err
	}
	code, token, err := pair(v)
	if err != nil {
		return Passed{}, err
	}
	if code >= 0 && from.Once {
		s.calls.forget(latch)
	}
	return Passed{Was: code >= 0, Held: code == 1, Token: token, Once: c.once()}, nil
}

// ForceRelease is Store's.
func (s *RedisStore) ForceRelease(ctx context.Context, name string) (bool, error) {
	latch := s.latch(Request{Name: name, Holder: newUUID()})
	c := s.layout.force.call(3,
		name, keyName(s.layout.channel, name), latch, s.subs.publish(ctx), millis(latchTime))
	v, err := s.calls.do(ctx, c)
	if err != nil {
		return false, err
	}
	n, ok := v.(int64)
	if !ok {
		return false, unexpected(v)
	}
	if n == 1 { // it is for repetitions, and the answer is here
		s.calls.forget(latch)
	}
	return n == 1, nil
}

// Watch is Store's.
func (s *RedisStore) Watch(name string, wake func()) Watch {
	return s.subs.watch(keyName(s.layout.channel, name), wake)
}

// Close is Store's. The Redis client is not closed.
func (s *RedisStore) Close() error {
	s.subs.close()
	s.calls.close()
	return nil
}

func (s *RedisStore) latch(r Request) string {
	return keyName(s.layout.latch, r.Name) + ":" + latchID(r.Holder)
}

func unexpected(v any) error {
	return fmt.Errorf("a lock script gave an unexpected reply %v: %w", v, ErrUnknown)
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
	const digits = "0123456789abcdef"
	var b [32]byte
	i := 0
	for j := 0; i < 16; j++ {
		if uuid[j] != '-' {
			b[i] = uuid[j]
			i++
		}
	}
	for i = 31; i >= 16; i-- {
		b[i] = digits[n&15]
		n >>= 4
	}
	return string(b[:])
}

// millis writes a duration as Redis' expiries want it; never less than one.
func millis(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

// pair reads a reply of two integers.
func pair(v any) (code, n int64, err error) {
	list, ok := v.([]any)
	if !ok || len(list) != 2 {
		return 0, 0, unexpected(v)
	}
	code, ok = list[0].(int64)
	n, ok2 := list[1].(int64)
	if !ok || !ok2 {
		return 0, 0, unexpected(v)
	}
	return code, n, nil
}
