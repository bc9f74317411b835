package hotcopy

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name Redis gives a script, no protection
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"seckill/model"
)

// lua holds the scripts, see their comments; head.lua begins and tail.lua ends each of the
// others but limit.lua.
//
//go:embed lua/*.lua
var lua embed.FS

// script is a script and its name in Redis' cache.
type script struct {
	source, sha string
	reads       bool // it changes nothing
}

func newScript(name string) script {
	source := luaFile("head") + "\nlocal function work()\n" + luaFile(name) + "\nend\n" + luaFile("tail")
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

func newReader(name string) script {
	s := newScript(name)
	s.reads = true
	return s
}

// luaFile panics when the program was built without the file, which is noticed by
// whatever makes a Store.
func luaFile(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

type scripts struct {
	reserve, confirm, settle, release, touch script
	read, find, due                          script
	closing, load, open, apply, lower        script
}

func newScripts() scripts {
	return scripts{
		reserve: newScript("reserve"), confirm: newReader("confirm"), settle: newScript("settle"),
		release: newScript("release"), touch: newScript("touch"),
		read: newReader("read"), find: newReader("find"), due: newReader("due"),
		closing: newScript("close"), load: newScript("load"), open: newScript("open"),
		apply: newScript("apply"), lower: newScript("lower"),
	}
}

// Verdicts of the scripts that all of them share.
const (
	verdictDone  = 1
	verdictNo    = 0  // closed, or superseded
	verdictOther = -1 // the head has another epoch than the keys
	verdictShy   = -2 // nothing was done, because some command was refused
)

// call is one call of a script about one voucher's copy.
type call struct {
	script  script
	voucher string
	epoch   int64 // of the keys; 0: the head's
	keys    []string
	args    []any
	once    bool // the client must not send it again by itself

	sent    bool
	verdict int64
	head    int64 // the epoch of the head
	spoiled bool  // something lies under its keys that no copy has: it counts as closed
	words   []string
	err     error
}

// onceCmd is a command that the client does not repeat after a lost
// connection, so that an error tells what was sent.
type onceCmd struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (onceCmd) NoRetry() bool { return true }

// run makes calls in one pipeline, and those again whose epoch was not the
// head's. One that is still not closes the copy as far as its caller goes: it
// is being rebuilt.
func (s *Store) run(ctx context.Context, calls ...*call) {
	s.send(ctx, calls)
	if again := s.others(calls); len(again) > 0 {
		s.send(ctx, again)
		for _, c := range s.others(again) {
			c.verdict = verdictNo
		}
	}
}

// do makes one call about the open epoch.
func (s *Store) do(ctx context.Context, script script, voucherID string, args ...any) *call {
	c := &call{script: script, voucher: voucherID, args: args}
	s.run(ctx, c)
	return c
}

// others learns epochs, and returns the calls that went to another one.
func (s *Store) others(calls []*call) (other []*call) {
	for _, c := range calls {
		if c.err != nil || c.epoch != 0 {
			continue
		}
		s.learn(c.voucher, c.head)
		if c.verdict == verdictOther {
			other = append(other, c)
		}
	}
	return other
}

// send makes calls in one pipeline. Scripts that Redis does not know (any more)
// are sent again in full.
func (s *Store) send(ctx context.Context, calls []*call) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+s.options.Slack)
	defer cancel()
	commands := s.exec(ctx, calls, false)
	var unknown []*call
	for i, c := range calls {
		if c.take(commands[i]); redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	for i, command := range s.exec(ctx, unknown, true) {
		unknown[i].take(command)
	}
}

func (s *Store) exec(ctx context.Context, calls []*call, inFull bool) []*redis.Cmd {
	commands := make([]*redis.Cmd, len(calls))
	pipe := s.client.Pipeline()
	for i, c := range calls {
		commands[i] = redis.NewCmd(ctx, s.arguments(c, inFull)...)
		if c.once {
			_ = pipe.Process(ctx, onceCmd{commands[i]})
		} else {
			_ = pipe.Process(ctx, commands[i])
		}
	}
	if len(calls) == 0 {
		return commands
	}
	_, err := pipe.Exec(ctx)
	for _, command := range commands {
		// Each command has its own error, but for one case: when Redis refused the
		// login of a new connection, only the pipeline is told.
		if command.Err() == nil && command.Val() == nil {
			command.SetErr(err)
		}
	}
	return commands
}

func (s *Store) arguments(c *call, inFull bool) []any {
	epoch := c.epoch
	if epoch == 0 {
		epoch = s.known(c.voucher)
	}
	args := make([]any, 0, 10+len(c.keys)+len(c.args))
	if inFull {
		args = append(args, "eval", c.script.source)
	} else {
		args = append(args, "evalsha", c.script.sha)
	}
	args = append(args, strconv.Itoa(5+len(c.keys)), headKey(c.voucher))
	for _, key := range epochKeys(c.voucher, epoch) {
		args = append(args, key)
	}
	for _, key := range c.keys {
		args = append(args, key)
	}
	return append(append(args, strconv.FormatInt(epoch, 10), s.options.Identity), c.args...)
}

// take reads the reply to a call.
func (c *call) take(command *redis.Cmd) {
	c.sent, c.verdict, c.head, c.spoiled, c.words = true, verdictNo, 0, false, nil
	reply, answered := command.Val().([]any)
	// When the time is up for one node of a Cluster, the client calls that an error of what other
	// nodes have answered, too.
	if c.err = command.Err(); c.err != nil && (!answered || !outOfTime(c.err)) {
		return
	}
	c.err = nil
	if len(reply) < 2 {
		c.err = fmt.Errorf("%w: %v", errReply, command.Val())
		return
	}
	verdict, ok := reply[0].(int64)
	words := make([]string, len(reply)-1)
	for i, word := range reply[1:] {
		var is bool
		words[i], is = word.(string)
		ok = ok && is
	}
	if !ok {
		c.err = fmt.Errorf("%w: %v", errReply, reply)
		return
	}
	c.verdict, c.head, c.words = verdict, number(words[0]), words[1:]
	if verdict == verdictShy {
		why := refusal(strings.Join(c.words, " "))
		c.verdict, c.words, c.spoiled = verdictNo, nil, otherKind(why)
		if !c.spoiled { // that copy is closed
			c.err = why
		}
	}
}

// refusal is an error in a script that has changed nothing.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError implements redis.Error.
func (refusal) RedisError() {}

// outOfTime reports whether a call was given up, and not refused.
func outOfTime(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// number reads what a script wrote as text; what is missing is 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// errReply marks a reply that no script of ours gives.
var errReply = errors.New("unexpected reply")

// unsent reports whether an error of a call that is sent once proves that
// nothing of it reached Redis.
func unsent(err error) bool {
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// redisRefusals begin the errors with which a Redis in trouble refuses a call
// before anything is done, see https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors.
// Those of commands inside a script come as the script's own answer.
func redisRefusals() []string {
	return []string{
		"OOM", "READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS", "TRYAGAIN", "BUSY",
		"NOAUTH", "WRONGPASS", "NOPERM",
		"MOVED", "ASK", "UNBLOCKED", "max number of clients",
	}
}

// refused reports whether Redis itself answered that it cannot work now, and has done nothing.
func refused(err error) bool {
	if _, shy := errors.AsType[refusal](err); shy {
		return true
	}
	answer, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := strings.TrimPrefix(answer.Error(), "ERR ")
	for _, prefix := range redisRefusals() {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// otherKind reports whether something else lies under the name of a key of ours: a key of
// another type, or a word where a script needs a number. (An older Redis puts where it happened
// before the word.)
func otherKind(err error) bool {
	answer, ok := errors.AsType[redis.Error](err)
	return ok && slices.ContainsFunc([]string{"WRONGTYPE", "attempt to ", "bad argument"}, func(sign string) bool {
		return strings.Contains(answer.Error(), sign)
	})
}

// fail gives the domain's name to what went wrong with a call, and says what
// was being done. It is nil when nothing went wrong.
func (c *call) fail(action string) error {
	err := c.err
	if err == nil {
		return nil
	}
	switch {
	case refused(err):
		err = model.Unavailable("Redis cannot work now.", err)
	case c.script.reads || c.once && unsent(err):
		err = model.Unavailable("Redis does not answer.", err)
	default: // also a reply that no script gives: it says nothing about what was done
		err = unknown(err)
	}
	return fmt.Errorf("%s of voucher %s: %w", action, c.voucher, err)
}

// strange is the error of words that no script of ours says.
func (c *call) strange(action string) error {
	c.err = fmt.Errorf("%w: %q", errReply, c.words)
	return c.fail(action)
}

// unknown names the outcome of a call that was sent and not answered.
func unknown(err error) error {
	return model.Unavailable("Redis did not answer; whether anything was changed is not known yet.",
		fmt.Errorf("%w: %w", model.ErrUnknownOutcome, err))
}

// runAll makes any number of calls, some in each pipeline, and joins what went wrong with
// them. A copy that is closed is ErrCopyClosed.
func (s *Store) runAll(ctx context.Context, action string, calls []*call) error {
	var failed []error
	for some := range slices.Chunk(calls, pipelineCalls) {
		s.run(ctx, some...)
		for _, c := range some {
			failed = append(failed, c.closed(action))
		}
	}
	return errors.Join(failed...)
}

// split sorts the places 0 to n - 1 of things into groups of one voucher each, of so many
// at most.
func split(n, most int, voucherOf func(place int) string) [][]int {
	filling := map[string]int{} // the group of a voucher that is not full
	var groups [][]int
	for place := range n {
		id := voucherOf(place)
		at, found := filling[id]
		if !found || len(groups[at]) == most {
			at = len(groups)
			filling[id], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], place)
	}
	return groups
}

// closed is fail, and ErrCopyClosed when the script found the copy closed.
func (c *call) closed(action string) error { return c.done(action, model.ErrCopyClosed) }

// done is fail, and the error given when the script did not do what it is for.
func (c *call) done(action string, otherwise error) error {
	if c.err == nil && c.verdict != verdictDone {
		return fmt.Errorf("%s of voucher %s: %w", action, c.voucher, otherwise)
	}
	return c.fail(action)
}
