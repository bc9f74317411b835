package lock

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// latchTime is longer than go-redis repeats a command (with its defaults, four attempts of 5 s).
const latchTime = defaultLease

// redisStore keeps locks in Redisson's layout, see NewRedisStore, and can hand them over.
type redisStore struct{ redisLocks }

// redisLocks is a Store in one Redis (a single server, one behind Sentinel, or a Cluster), of either layout.
type redisLocks struct {
	layout    layout
	retention int64 // of token counters, ms; 0 for ever; -1 no tokens
	noTokens  bool  // whatever the retention
	client    redis.UniversalClient
	pipelines int
	timeout   time.Duration // of a call
	replicas  int           // as Synced says
	first     *home         // of one server, or of a Cluster as a whole

	mu             sync.Mutex
	homes          map[string]*home // of a Cluster's nodes, by address
	known, sharded bool             // see isSharded
	closed         bool
	work           sync.WaitGroup
}

var _ Passer = (*redisStore)(nil)

type layout struct {
	acquire, renew, release, pass, force *script
	holder                               []any  // the command that names it, with a place for the lock's name
	channel, token, latch                string // prefixes of key names
}

// RedisOption changes a store in Redis.
type RedisOption func(*redisLocks)

// WithoutTokens keeps no token counters: Lease.Token is 0, a lock leaves no key behind, and taking one is a little
// cheaper. It is for locks whose data has a guard of its own, such as a unique constraint.
func WithoutTokens() RedisOption { return func(s *redisLocks) { s.noTokens = true } }

// TokenRetention sets how long a lock's token counter is kept after its last acquisition (default 1 h). One that is
// gone starts again at the server's clock, above every earlier token unless the clock was set back by more than this. 0
// keeps counters for ever, as Redisson does: set that when Java processes use RFencedLock of the same name.
func TokenRetention(d time.Duration) RedisOption {
	return func(s *redisLocks) { s.retention = max(d, 0).Milliseconds() }
}

// Pipelines sets how many pipelines of acquire and release requests may be under way at once (default 2; at least 1).
func Pipelines(n int) RedisOption { return func(s *redisLocks) { s.pipelines = max(n, 1) } }

// CallTimeout bounds each call to Redis with its wait for a pipeline (default 2 s, also of 0 or less; exact to 0.1 s).
func CallTimeout(d time.Duration) RedisOption {
	return func(s *redisLocks) { s.timeout = orDefault(d, defaultCallTimeout) }
}

// NewRedisStore keeps re-entrant locks in the layout of Redisson: a hash {"<uuid>:<integer>": hold count} under the
// lock's name with the lease as its expiry, and unlock messages on redisson_lock__channel:{name}. It needs Redis 6.2 or
// newer. The client stays the caller's; it should not have an AutoPipeline of its own. Deadlines hold whether or not
// its ContextTimeoutEnabled is set; it may repeat commands, as the scripts allow it. client must not be a
// *redis.Ring, which has no one server for a lock's waiters: go-redis panics.
//
// In a Cluster all keys of a lock must be in one slot. By Redisson's rule for their names they are if the lock's name
// has no braces, or a hash tag, "{user}:42". Names such as "a}b", "a{b", "{}" and "" are refused (ErrRefused).
func NewRedisStore(client redis.UniversalClient, opts ...RedisOption) Store {
	return &redisStore{*newRedisLocks(client, layout{
		acquire: many("acquire", 2, "lease"), renew: many("renew", 1, "lease"), release: many("release", 1),
		pass: one("pass", 2), force: one("force", 1), holder: []any{"hscan", "", 0},
		channel: "redisson_lock__channel", token: "redisson_lock_token", latch: "redisson_unlock_latch",
	}, opts)}
}

// NewSetNXStore keeps locks as plain keys, SET NX PX with the holder as the value, given back by compare and delete, as
// most programs other than Redisson do. The Client counts holds for re-entry. Unlock messages go to
// lock_channel:{name}. A Redisson lock is another lock and must not use the same key. Options as for NewRedisStore.
func NewSetNXStore(client redis.UniversalClient, opts ...RedisOption) Store {
	return newRedisLocks(client, layout{
		acquire: many("setnx_acquire", 2, "lease"), renew: many("setnx_renew", 1, "lease"),
		release: many("setnx_release", 1),
		force:   one("force", 1), holder: []any{"get", ""},
		channel: "lock_channel", token: "lock_token", latch: "lock_latch",
	}, opts)
}

func newRedisLocks(client redis.UniversalClient, l layout, opts []RedisOption) *redisLocks {
	s := &redisLocks{
		layout: l, retention: retention.Milliseconds(), client: client,
		pipelines: defaultPipelines, timeout: defaultCallTimeout, homes: make(map[string]*home),
	}
	for _, o := range opts {
		o(s)
	}
	s.first = s.newHome(client)
	if s.noTokens {
		s.retention = -1
	}
	return s
}

func (s *redisLocks) grouped() bool { return !s.first.calls.spread }

func (s *redisLocks) Acquire(ctx context.Context, r Request) (Grant, error) {
	grants, errs := s.acquireAll(ctx, []Request{r})
	return grants[0], errs[0]
}

func (s *redisLocks) acquireAll(ctx context.Context, rs []Request) ([]Grant, []error) {
	calls := make([]*call, len(rs))
	for i, r := range rs {
		keys := []string{r.Name, s.latch(r)}
		if s.retention >= 0 {
			keys = append(keys, keyName(s.layout.token, r.Name))
		}
		calls[i] = newCall(s.layout.acquire.on(millis(r.Lease), int64(r.Holds), s.retention, r.Token), keys, r.Holder)
	}
	ask := s.do
	if rs[0].Holds == 1 {
		ask = s.take
	}
	ask(ctx, calls...)
	grants, errs := make([]Grant, len(rs)), make([]error, len(rs))
	for i, c := range calls {
		reply, err := c.reply()
		switch once := c.once(); {
		case err != nil:
			errs[i] = err
		case reply[0] == 1:
			grants[i] = Grant{State: StateHeld, Token: reply[1], Once: once, Unsynced: c.answer.unsynced}
		case reply[0] == 0:
			left := time.Duration(max(reply[1], 0)) * time.Millisecond
			grants[i] = Grant{State: StateBusy, Remaining: left, Once: once, Stray: !once}
		default:
			grants[i] = Grant{State: StateLost, Stray: !once}
		}
	}
	return grants, errs
}

func (s *redisLocks) Renew(ctx context.Context, rs []Request) []error {
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
		case err == nil, redis.HasErrorPrefix(err, "WRONGTYPE"): // something else is there instead
			errs[i] = ErrLost
		default:
			errs[i] = err
		}
	}
	return errs
}

func (s *redisLocks) Release(ctx context.Context, r Request) (bool, error) {
	was, errs := s.releaseAll(ctx, []Request{r})
	return was[0], errs[0]
}

func (s *redisLocks) releaseAll(ctx context.Context, rs []Request) ([]bool, []error) {
	calls, publishes := make([]*call, len(rs)), s.publishes(ctx)
	for i, r := range rs {
		calls[i] = newCall(s.layout.release.on(int64(r.Holds), millis(latchTime), publishes, number(r.Abandon)),
			[]string{r.Name, s.channel(r.Name), s.latch(r)}, r.Holder)
	}
	s.do(ctx, calls...)
	was, errs := make([]bool, len(rs)), make([]error, len(rs))
	for i, r := range rs {
		reply, err := calls[i].reply()
		if was[i], errs[i] = err == nil && reply[0] >= 0, err; was[i] && reply[0] == 1 && r.Once {
			s.first.calls.forget(calls[i].words[2])
		}
	}
	return was, errs
}

func (s *redisStore) Pass(ctx context.Context, from, to Request) (Passed, error) {
	latch := s.latch(from)
	channel := s.channel(from.Name)
	c := newCall(s.layout.pass.on(millis(to.Lease), millis(latchTime), s.publishes(ctx), int64(s.own(ctx, from.Name)),
		s.retention),
		[]string{from.Name, channel, latch, s.latch(to), keyName(s.layout.token, from.Name)}, from.Holder, to.Holder)
	s.take(ctx, c)
	reply, err := c.reply()
	if err != nil {
		return Passed{}, err
	}
	if reply[0] >= 0 && from.Once {
		s.first.calls.forget(latch)
	}
	return Passed{
		Was: reply[0] >= 0, Held: reply[0] == 1, Token: reply[1], Once: c.once(),
		Unsynced: c.answer.unsynced,
	}, nil
}

func (s *redisLocks) ForceRelease(ctx context.Context, name string) (bool, error) {
	latch := s.latch(Request{Name: name, Holder: newUUID()})
	c := newCall(s.layout.force.on(millis(latchTime), s.publishes(ctx)), []string{name, s.channel(name), latch})
	s.do(ctx, c)
	reply, err := c.reply()
	if err != nil {
		return false, err
	}
	if reply[0] == 1 { // it is for repetitions, and the answer is here
		s.first.calls.forget(latch)
	}
	return reply[0] == 1, nil
}

func (s *redisLocks) Holder(ctx context.Context, name string) (holder string, left time.Duration, err error) {
	pipe := s.client.TxPipeline()
	ask := slices.Clone(s.layout.holder)
	ask[1] = name
	who, ttl := pipe.Do(ctx, ask...), pipe.PTTL(ctx, name)
	var failed error
	if err = s.first.calls.aside(ctx, func(ctx context.Context) { _, failed = pipe.Exec(ctx) }); err != nil {
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

func (s *redisLocks) Watch(ctx context.Context, name string, wake func()) Watch {
	return s.messages(ctx, name).watch(s.channel(name), wake)
}

// Close does not close the Redis client.
func (s *redisLocks) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		for _, h := range s.homes {
			s.work.Go(h.close)
		}
	}
	s.mu.Unlock()
	s.first.close()
	s.work.Wait()
	return nil
}

func (s *redisLocks) channel(name string) string { return keyName(s.layout.channel, name) }

func (s *redisLocks) latch(r Request) string {
	return keyName(s.layout.latch, r.Name) + ":" + latchID(r.Holder)
}

func (s *redisLocks) publishes(ctx context.Context) int64 { return number(s.isSharded(ctx)) }

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// keyName puts a prefix before a lock's name in one Cluster slot, as Redisson does: braces are a tag already.
func keyName(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// latchID makes the 32 hex digits that end a latch's name: half of the holder's uuid and its integer, used once.
func latchID(holder string) string {
	uuid, integer, ok := strings.Cut(holder, ":")
	n, err := strconv.ParseUint(integer, 10, 64)
	if !ok || err != nil || len(uuid) != 36 {
		sum := sha256.Sum256([]byte(holder))
		return hex.EncodeToString(sum[:16])
	}
	id := append(make([]byte, 0, 32), uuid[:8]...)
	id = append(append(id, uuid[9:13]...), uuid[14:18]...)
	return string(hex.AppendEncode(id, binary.BigEndian.AppendUint64(nil, n)))
}

func millis(d time.Duration) int64 { return max(d.Milliseconds(), 1) }

// script is a Lua script. Its arguments are the terms, and then those of each lock.
type script struct {
	source  string
	hash    string
	many    bool // one request may name several locks
	numbers int  // that answer for each lock
}

func one(name string, numbers int, before ...string) *script {
	var text strings.Builder
	for _, part := range append(before, name) {
		text.WriteString(file("lua/" + part + ".lua"))
	}
	source := text.String()
	return &script{source: source, hash: redis.NewScript(source).Hash(), numbers: numbers}
}

func many(name string, numbers int, before ...string) *script {
	s := one(name, numbers, before...)
	s.many = true
	return s
}

// terms are the arguments that calls must have in common to go to Redis as one.
type terms struct {
	script *script
	args   [maxTerms]int64
	count  int // of args
}

// maxTerms and maxWords are those of pass.lua.
const (
	maxTerms = 5
	maxWords = 7
)

func (s *script) on(args ...int64) terms {
	t := terms{script: s, count: len(args)}
	copy(t.args[:], args)
	return t
}

type call struct {
	terms
	words [maxWords]string // keys, then other arguments
	keys  int              // how many of words
	all   int              // words

	caller   *caller // guarded by batcher.mu, as is what follows, until caller.done is closed
	queued   time.Time
	sent     bool
	finished bool
	answer   answer
	took     time.Duration // the pipeline it went with
	alone    bool          // was given up by alone, and sent again
}

// caller waits for calls.
type caller struct {
	calls int // without an answer; guarded by batcher.mu
	done  chan struct{}
}

type answer struct {
	numbers  [2]int64
	err      error
	unsynced bool // fewer replicas have it than are to
}

func newCall(t terms, keys []string, args ...string) *call {
	c := &call{terms: t, keys: len(keys), all: len(keys) + len(args)}
	copy(c.words[:], keys)
	copy(c.words[len(keys):], args)
	return c
}

// once reports whether the call was surely sent only once.
func (c *call) once() bool { return c.took < swiftly && !c.alone }

func (c *call) reply() ([2]int64, error) { return c.answer.numbers, c.answer.err }

// request is one script call on its way to Redis, for one lock or more.
type request struct {
	calls []*call // on the same terms
	at    []int   // where their answers belong
	full  bool    // Redis does not know the script (any more)
	cmd   *redis.Cmd
}

func (b *batcher) requests(calls []*call) []*request {
	var all []*request
	for i, c := range calls {
		same := func(r *request) bool { return c.script.many && !b.spread && r.calls[0].terms == c.terms }
		n := slices.IndexFunc(all, same)
		if n < 0 {
			all, n = append(all, &request{}), len(all)
		}
		all[n].calls, all[n].at = append(all[n].calls, c), append(all[n].at, i)
	}
	return all
}

// command is the request for go-redis. Pointers go into it where they save a copy.
func (r *request) command(ctx context.Context) *redis.Cmd {
	first := r.calls[0]
	t := &first.terms
	args := make([]any, 0, 3+len(r.calls)*first.all+t.count)
	if r.full {
		args = append(args, "eval", &t.script.source)
	} else {
		args = append(args, "evalsha", &t.script.hash)
	}
	args = append(args, len(r.calls)*first.keys)
	for _, c := range r.calls {
		for i := range c.keys {
			args = append(args, &c.words[i])
		}
	}
	for i := range t.count {
		args = append(args, &t.args[i])
	}
	for _, c := range r.calls {
		for i := c.keys; i < c.all; i++ {
			args = append(args, &c.words[i])
		}
	}
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// again returns what to send after a retryable reply: an unknown script in full, or calls singly if one was refused.
func (r *request) again() []*request {
	err := r.cmd.Err()
	var refused redis.Error
	switch {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "NOSCRIPT") && !r.full:
		return []*request{{calls: r.calls, at: r.at, full: true}}
	case len(r.calls) > 1 && errors.As(err, &refused):
		var each []*request
		for i, c := range r.calls {
			each = append(each, &request{calls: []*call{c}, at: r.at[i : i+1]})
		}
		return each
	}
	return nil
}

func (r *request) answer(answers []answer, synced bool) {
	numbers, err := r.numbers()
	each := r.calls[0].script.numbers
	for i, at := range r.at {
		answers[at].err, answers[at].unsynced = err, !synced
		if err == nil {
			copy(answers[at].numbers[:], numbers[i*each:(i+1)*each])
		}
	}
}

func (r *request) numbers() ([]int64, error) {
	if err := r.cmd.Err(); err != nil {
		return nil, classify(err)
	}
	val := r.cmd.Val()
	list, ok := val.([]any)
	if !ok {
		list = []any{val}
	}
	numbers := make([]int64, 0, len(list))
	for _, v := range list {
		if n, ok := v.(int64); ok {
			numbers = append(numbers, n)
		}
	}
	if want := len(r.calls) * r.calls[0].script.numbers; len(list) != want || len(numbers) != want {
		return nil, fmt.Errorf("a lock script gave an unexpected reply %v: %w", val, ErrUnknown)
	}
	return numbers, nil
}

// exec sends calls in one pipeline, equal ones as one request. It never writes to what its caller may still read.
func (b *batcher) exec(ctx context.Context, calls []*call, forgot []string) []answer {
	answers := make([]answer, len(calls))
	need, err := b.replicas.needed(ctx, b.client)
	if err != nil {
		for i := range answers {
			answers[i].err = err
		}
		return answers
	}
	for due := b.requests(calls); len(due) > 0; forgot = nil {
		synced := b.send(ctx, due, forgot, need)
		var next []*request
		for _, r := range due {
			if again := r.again(); again != nil {
				next = append(next, again...)
			} else {
				r.answer(answers, synced)
			}
		}
		due = next
	}
	return answers
}

// send executes requests, and reports whether enough replicas have them. Only the pipeline has a refused login's error.
func (b *batcher) send(ctx context.Context, due []*request, forgot []string, need int) (synced bool) {
	for _, r := range due {
		r.cmd = r.command(ctx)
	}
	if len(due) == 1 && len(forgot) == 0 && need == 0 {
		_ = b.client.Process(ctx, due[0].cmd) // by itself, which is cheaper than a pipeline of one
		return true
	}
	pipe := b.client.Pipeline()
	for _, r := range due {
		_ = pipe.Process(ctx, r.cmd)
	}
	if len(forgot) > 0 {
		pipe.Unlink(ctx, forgot...)
	}
	var wait *redis.Cmd
	if need > 0 { // last: it counts for what the same connection wrote before
		wait = pipe.Do(ctx, "wait", need, millis(b.syncTimeout()))
	}
	_, err := pipe.Exec(ctx)
	for _, r := range due {
		if r.cmd.Err() == nil && r.cmd.Val() == nil {
			r.cmd.SetErr(err)
		}
	}
	return need == 0 || b.replicas.enough(ctx, b.client, wait, need)
}

// classify sorts errors: nothing happened (ErrRefused), or it may have (ErrUnknown; others, if go-redis repeated).
func classify(err error) error {
	var answer redis.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	refusals := []string{"WRONGTYPE", "NOPERM", "NOAUTH", "CROSSSLOT"}
	if slices.ContainsFunc(refusals, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}
