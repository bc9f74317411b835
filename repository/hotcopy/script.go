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

	"seckill/internal/redisdb"
	"seckill/model"
)

// lua holds the scripts, see their comments; head.lua begins and tail.lua ends each of the others but limit.lua.
//
//go:embed lua/*.lua
var lua embed.FS

type script struct{ source, sha string }

// newScripts are the scripts by their files' names, with which their texts begin. It panics where one is missing.
func newScripts() map[string]script {
	all := map[string]script{}
	const names = "reserve confirm settle touch release handover read find due close load open apply lower"
	for name := range strings.FieldsSeq(names) {
		work := "\nlocal function work()\n" + luaFile(name) + "\nend\n"
		source := "-- " + name + "\n" + luaFile("head") + work + luaFile("tail")
		sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
		all[name] = script{source: source, sha: hex.EncodeToString(sum[:])}
	}
	return all
}

func luaFile(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Verdicts of the scripts that all of them share.
const (
	verdictDone     = 1
	verdictWaitlist = 2  // nothing was done, because users may wait; of handover.lua: not all was done
	verdictNo       = 0  // closed, or superseded
	verdictOther    = -1 // the head has another epoch than the keys
	verdictRefused  = -2 // nothing was done, because some command was refused
	verdictPartial  = -3 // a command was refused behind a change
)

// call is what a script is to do about one voucher's copy. Several of one script share a command.
type call struct {
	script  string
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

// onceCmd is a command that the client does not repeat after a lost connection, so that an error tells what was sent.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// run makes calls in one pipeline, and again those of another epoch. A still wrong one counts as closed.
func (s *Store) run(ctx context.Context, calls ...*call) {
	s.send(ctx, calls)
	if again := s.others(calls); len(again) > 0 {
		s.send(ctx, again)
		for _, c := range s.others(again) {
			c.verdict = verdictNo
		}
	}
}

func (s *Store) do(ctx context.Context, script, voucherID string, args ...any) *call {
	c := &call{script: script, voucher: voucherID, args: args}
	s.run(ctx, c)
	return c
}

func (s *Store) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout+s.options.Slack)
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

// send makes calls in one pipeline. Scripts that Redis does not know (any more) are sent again in full.
func (s *Store) send(ctx context.Context, calls []*call) {
	ctx, cancel := s.limited(ctx)
	defer cancel()
	s.exec(ctx, calls, false)
	unknown := slices.DeleteFunc(slices.Clone(calls),
		func(c *call) bool { return !redis.HasErrorPrefix(c.err, "NOSCRIPT") })
	if len(unknown) > 0 {
		s.exec(ctx, unknown, true)
	}
}

func (s *Store) exec(ctx context.Context, calls []*call, inFull bool) {
	pipe := s.client.Pipeline()
	groups := s.groups(calls)
	commands := make([]*redis.Cmd, len(groups))
	for i, group := range groups {
		commands[i] = redis.NewCmd(ctx, s.arguments(group, inFull)...)
		if group[0].once {
			_ = pipe.Process(ctx, onceCmd{commands[i]})
		} else {
			_ = pipe.Process(ctx, commands[i])
		}
	}
	_, err := pipe.Exec(ctx)
	for i, command := range commands {
		// Each command has its own error, but where Redis refused a new connection's login: the pipeline has that.
		if command.Err() == nil && command.Val() == nil {
			command.SetErr(err)
		}
		take(groups[i], command)
	}
}

// groups are calls that share a command, of one script, bounded for others' sake; a Cluster's share none (slots).
func (s *Store) groups(calls []*call) (groups [][]*call) {
	args := 0 // of the last group
	for i, c := range calls {
		args += len(c.args)
		if i == 0 || redisdb.IsCluster(s.client) || c.script != calls[i-1].script ||
			len(groups[len(groups)-1]) == groupCopies || args > groupArgs {
			groups, args = append(groups, nil), len(c.args)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], c)
	}
	return groups
}

func (s *Store) arguments(group []*call, inFull bool) []any {
	keys, args := 0, 0
	for _, c := range group {
		keys, args = keys+5+len(c.keys), args+4+len(c.args)
	}
	all, script := make([]any, 0, 3+keys+args), s.scripts[group[0].script]
	if inFull {
		all = append(all, "eval", script.source, keys)
	} else {
		all = append(all, "evalsha", script.sha, keys)
	}
	epochs := make([]int64, len(group))
	for i, c := range group {
		if epochs[i] = c.epoch; c.epoch == 0 {
			epochs[i] = s.known(c.voucher)
		}
		all = append(all, headKey(c.voucher))
		for _, key := range epochKeys(c.voucher, epochs[i]) {
			all = append(all, key)
		}
		for _, key := range c.keys {
			all = append(all, key)
		}
	}
	for i, c := range group {
		all = append(all, 5+len(c.keys), 2+len(c.args), epochs[i], s.options.Identity)
		all = append(all, c.args...)
	}
	return all
}

func take(group []*call, command *redis.Cmd) {
	replies, answered := command.Val().([]any)
	err := command.Err()
	// When time is up for one node of a Cluster, the client fails what other nodes have answered, too.
	if answered && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		err = nil
	}
	if err == nil && len(replies) != len(group) {
		err = fmt.Errorf("%w: %v", errReply, command.Val())
	}
	for i, c := range group {
		c.sent, c.verdict, c.head, c.spoiled, c.words = true, verdictNo, 0, false, nil
		if c.err = err; err == nil {
			c.take(replies[i])
		}
	}
}

func (c *call) take(said any) {
	reply, _ := said.([]any)
	if len(reply) < 2 {
		c.err = fmt.Errorf("%w: %v", errReply, said)
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
	switch why := strings.Join(c.words, " "); verdict {
	case verdictRefused:
		c.verdict, c.words, c.spoiled = verdictNo, nil, otherKind(refusal(why))
		if !c.spoiled { // that copy is closed
			c.err = refusal(why)
		}
	case verdictPartial:
		c.err = halfway(why)
	}
}

// halfway is an error in a script behind a change. It is no redis.Error: Redis refused only the rest.
type halfway string

func (h halfway) Error() string { return "broken off behind a change: " + string(h) }

// refusal is an error in a script that has changed nothing.
type refusal string

func (r refusal) Error() string { return string(r) }

func (refusal) RedisError() {}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

var errReply = errors.New("unexpected reply")

// unsent reports whether an error of a call that is sent once proves that nothing of it reached Redis.
func unsent(err error) bool {
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// refused reports whether Redis itself answered, before doing anything, that it cannot work now, not a script. See
// https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors.
func refused(err error) bool {
	if _, shy := errors.AsType[refusal](err); shy {
		return true
	}
	answer, ok := errors.AsType[redis.Error](err)
	return ok && slices.ContainsFunc([]string{
		"OOM", "READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS", "TRYAGAIN", "BUSY",
		"NOAUTH", "WRONGPASS", "NOPERM", "MOVED", "ASK", "UNBLOCKED", "max number of clients",
	}, func(prefix string) bool { return strings.HasPrefix(strings.TrimPrefix(answer.Error(), "ERR "), prefix) })
}

// otherKind: our key has another type or a word for a number. (An older Redis first says where it happened.)
func otherKind(err error) bool {
	answer, ok := errors.AsType[redis.Error](err)
	return ok && slices.ContainsFunc([]string{"WRONGTYPE", "attempt to ", "bad argument"}, func(sign string) bool {
		return strings.Contains(answer.Error(), sign)
	})
}

// fail gives what went wrong with a call the domain's name, and says what was being done; nil: nothing did.
func (c *call) fail(action string) error {
	err := c.err
	switch {
	case err == nil:
		return nil
	case refused(err):
		err = model.Unavailable("Redis cannot work now.", err)
	case c.once && unsent(err),
		slices.Contains([]string{"confirm", "read", "find", "due"}, c.script): // which change nothing
		err = model.Unavailable("Redis does not answer.", err)
	default: // also a reply that no script gives: it says nothing about what was done
		err = model.Unavailable("Redis did not answer; whether anything was changed is not known yet.",
			fmt.Errorf("%w: %w", model.ErrUnknownOutcome, err))
	}
	return fmt.Errorf("%s of voucher %s: %w", action, c.voucher, err)
}

func (c *call) strange(action string) error {
	c.err = fmt.Errorf("%w: %q", errReply, c.words)
	return c.fail(action)
}

// ofOrders calls a script with first and ids of orders, of any vouchers, and joins failures. ErrCopyClosed: closed.
func (s *Store) ofOrders(ctx context.Context, action, script, first string, orders []model.Order) error {
	var calls []*call
	for _, places := range split(len(orders), callOrders, func(place int) string { return orders[place].VoucherID }) {
		c := &call{script: script, voucher: orders[places[0]].VoucherID, args: []any{first}}
		for _, place := range places {
			c.args = append(c.args, orders[place].ID)
		}
		calls = append(calls, c)
	}
	var failed []error
	for some := range slices.Chunk(calls, groupCopies) {
		s.run(ctx, some...)
		for _, c := range some {
			failed = append(failed, c.closed(action))
		}
	}
	return errors.Join(failed...)
}

// split sorts the places 0 to n - 1 of things into groups of one voucher each, of so many at most.
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
