package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// script is a Lua script. Its arguments are the terms, and then what each lock has
// of its own.
type script struct {
	source  string
	hash    string
	many    bool // one request may name several locks
	numbers int  // that answer for each lock
}

// one reads a script, and before it the files that it builds on.
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

// terms are what calls have to agree in to go to Redis as one.
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

// on names the terms of a call.
func (s *script) on(args ...int64) terms {
	t := terms{script: s, count: len(args)}
	copy(t.args[:], args)
	return t
}

// call is what is asked for one lock, on its way.
type call struct {
	terms
	words [maxWords]string // keys, then other arguments
	keys  int              // how many of words
	all   int              // words
	done  chan struct{}

	queued   time.Time // guarded by batcher.mu, as is what follows, until done is closed
	sent     bool
	finished bool
	answer   answer
	took     time.Duration // the pipeline it went with
	alone    bool          // was given up by alone, and sent again
}

// answer is a script's to one call.
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

// once tells whether the call was surely sent only once.
func (c *call) once() bool { return c.took < swiftly && !c.alone }

// reply returns what answers the call.
func (c *call) reply() ([2]int64, error) { return c.answer.numbers, c.answer.err }

// request is one script call on its way to Redis, for one lock or more.
type request struct {
	calls []*call // on the same terms
	at    []int   // where their answers belong
	full  bool    // Redis does not know the script (any more)
	cmd   *redis.Cmd
}

// requests makes as few of calls as may be.
func (b *batcher) requests(calls []*call) []*request {
	var all []*request
	for i, c := range calls {
		var r *request
		if c.script.many && !b.spread {
			for _, other := range all {
				if other.calls[0].terms == c.terms {
					r = other
				}
			}
		}
		if r == nil {
			r = &request{}
			all = append(all, r)
		}
		r.calls, r.at = append(r.calls, c), append(r.at, i)
	}
	return all
}

// command is the request as go-redis wants it. Pointers go into it where they
// spare a copy.
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

// again says what is to be sent after a retryable reply: the script in
// full if Redis does not know it, and each call by itself if one of several was
// refused, so that the others are not. A call may be repeated, as ever.
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

// answer hands each call its share of the reply.
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

// exec sends calls in one pipeline, those on the same terms as one request. It
// writes to nothing its caller could still be reading.
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

// send carries out requests, and tells whether as many replicas as needed have what they
// wrote. Each has its own error, but for one case: when
// Redis refused the login of a new connection, only the pipeline is told.
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
	if need > 0 { // last: it is about what the same connection wrote before
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

// wrongType tells that a key is there and is no lock.
func wrongType(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && redis.HasErrorPrefix(answer, "WRONGTYPE")
}

// classify sorts errors into: nothing happened (ErrRefused), it may have
// (ErrUnknown), and other answers of Redis, after which it may have too if
// go-redis had sent the command before.
func classify(err error) error {
	var answer redis.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	for _, refusal := range []string{"WRONGTYPE", "NOPERM", "NOAUTH", "CROSSSLOT"} {
		if redis.HasErrorPrefix(err, refusal) {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	return err
}
