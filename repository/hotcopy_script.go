package repository

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name Redis gives a script, no protection
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// The scripts, see their comments; head.lua begins each of them.
var (
	//go:embed lua/head.lua
	luaHead string
	//go:embed lua/reserve.lua
	luaReserve string
	//go:embed lua/confirm.lua
	luaConfirm string
	//go:embed lua/settle.lua
	luaSettle string
	//go:embed lua/release.lua
	luaRelease string
	//go:embed lua/touch.lua
	luaTouch string
	//go:embed lua/read.lua
	luaRead string
	//go:embed lua/find.lua
	luaFind string
	//go:embed lua/due.lua
	luaDue string
	//go:embed lua/close.lua
	luaClose string
	//go:embed lua/load.lua
	luaLoad string
	//go:embed lua/open.lua
	luaOpen string
	//go:embed lua/apply.lua
	luaApply string
	//go:embed lua/lower.lua
	luaLower string
)

// copyScript is a script and its name in Redis' cache.
type copyScript struct {
	source, sha string
	reads       bool // it changes nothing
}

func newCopyScript(source string) copyScript {
	source = luaHead + "\n" + source
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return copyScript{source: source, sha: hex.EncodeToString(sum[:])}
}

func newCopyReader(source string) copyScript {
	s := newCopyScript(source)
	s.reads = true
	return s
}

type copyScripts struct {
	reserve, confirm, settle, release, touch copyScript
	read, find, due                          copyScript
	closing, load, open, apply, lower        copyScript
}

func newCopyScripts() copyScripts {
	return copyScripts{
		reserve: newCopyScript(luaReserve), confirm: newCopyReader(luaConfirm), settle: newCopyScript(luaSettle),
		release: newCopyScript(luaRelease), touch: newCopyScript(luaTouch),
		read: newCopyReader(luaRead), find: newCopyReader(luaFind), due: newCopyReader(luaDue),
		closing: newCopyScript(luaClose), load: newCopyScript(luaLoad), open: newCopyScript(luaOpen),
		apply: newCopyScript(luaApply), lower: newCopyScript(luaLower),
	}
}

// Verdicts of the scripts that all of them share.
const (
	copyDone  = 1
	copyNo    = 0  // closed, or superseded
	copyOther = -1 // the head has another epoch than the keys
)

// copyCall is one call of a script about one voucher.
type copyCall struct {
	script  copyScript
	voucher string
	epoch   int64 // of the keys; 0: the head's
	keys    []string
	args    []any
	once    bool // the client must not send it again by itself

	sent    bool
	verdict int64
	head    int64 // the epoch of the head
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
func (h *HotCopies) run(ctx context.Context, calls ...*copyCall) {
	h.send(ctx, calls)
	if again := h.others(calls); len(again) > 0 {
		h.send(ctx, again)
		for _, c := range h.others(again) {
			c.verdict = copyNo
		}
	}
}

// others learns epochs, and returns the calls that went to another one.
func (h *HotCopies) others(calls []*copyCall) (other []*copyCall) {
	for _, c := range calls {
		if c.err != nil || c.epoch != 0 {
			continue
		}
		h.learn(c.voucher, c.head)
		if c.verdict == copyOther {
			other = append(other, c)
		}
	}
	return other
}

// send makes calls in one pipeline. Scripts that Redis does not know (any more)
// are sent again in full.
func (h *HotCopies) send(ctx context.Context, calls []*copyCall) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	commands := h.exec(ctx, calls, false)
	var unknown []*copyCall
	for i, c := range calls {
		if c.take(commands[i]); redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	for i, command := range h.exec(ctx, unknown, true) {
		unknown[i].take(command)
	}
}

func (h *HotCopies) exec(ctx context.Context, calls []*copyCall, inFull bool) []*redis.Cmd {
	commands := make([]*redis.Cmd, len(calls))
	pipe := h.client.Pipeline()
	for i, c := range calls {
		commands[i] = redis.NewCmd(ctx, h.arguments(c, inFull)...)
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

func (h *HotCopies) arguments(c *copyCall, inFull bool) []any {
	epoch := c.epoch
	if epoch == 0 {
		epoch = h.known(c.voucher)
	}
	args := make([]any, 0, 10+len(c.keys)+len(c.args))
	if inFull {
		args = append(args, "eval", c.script.source)
	} else {
		args = append(args, "evalsha", c.script.sha)
	}
	args = append(args, strconv.Itoa(5+len(c.keys)), copyHead(c.voucher))
	for _, key := range copyKeys(c.voucher, epoch) {
		args = append(args, key)
	}
	for _, key := range c.keys {
		args = append(args, key)
	}
	return append(append(args, strconv.FormatInt(epoch, 10), h.options.Identity), c.args...)
}

// take reads the reply to a call.
func (c *copyCall) take(command *redis.Cmd) {
	c.sent, c.verdict, c.head, c.words = true, copyNo, 0, nil
	if c.err = command.Err(); c.err != nil {
		return
	}
	reply, _ := command.Val().([]any)
	if len(reply) < 2 {
		c.err = fmt.Errorf("%w: %v", errCopyReply, command.Val())
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
		c.err = fmt.Errorf("%w: %v", errCopyReply, reply)
		return
	}
	c.verdict, c.head, c.words = verdict, number(words[0]), words[1:]
}

// number reads what a script wrote as text; what is missing is 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
