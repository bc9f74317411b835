package lock

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name Redis gives a script, no protection
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// script is a Lua script and its name in Redis' cache.
type script struct{ src, sha string }

func newScript(src string) *script {
	sum := sha1.Sum([]byte(src)) //nolint:gosec // as above
	return &script{src, hex.EncodeToString(sum[:])}
}

// call makes a call of the script; the first keys of args are its KEYS.
func (s *script) call(keys int, args ...string) *call {
	c := &call{script: s, args: make([]any, 0, len(args)+3)}
	c.args = append(c.args, "evalsha", s.sha, strconv.Itoa(keys))
	for _, a := range args {
		c.args = append(c.args, a)
	}
	return c
}

// call is one script call on its way.
type call struct {
	script *script
	args   []any
	done   chan struct{}

	queued   time.Time // guarded by batcher.mu, as is what follows, until done is closed
	sent     bool
	finished bool
	val      any
	err      error
	took     time.Duration // the pipeline it went with
	alone    bool          // was given up by alone, and sent again
}

// once tells whether the call was surely sent only once.
func (c *call) once() bool { return c.took < swiftly && !c.alone }

// result is the answer to a call.
type result struct {
	val any
	err error
}

// exec sends calls in one pipeline. Scripts that Redis does not know (any more)
// are sent again in full. It writes to nothing its caller could still be reading.
func (b *batcher) exec(ctx context.Context, calls []*call, forgot []string) []result {
	if len(calls) == 1 && len(forgot) == 0 {
		return []result{b.execOne(ctx, calls[0])}
	}
	pipe := b.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = redis.NewCmd(ctx, c.args...)
		_ = pipe.Process(ctx, cmds[i])
	}
	if len(forgot) > 0 {
		pipe.Unlink(ctx, forgot...)
	}
	run(ctx, pipe, cmds)
	for i, c := range calls {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			args := slices.Clone(c.args)
			args[0], args[1] = "eval", c.script.src
			cmds[i] = redis.NewCmd(ctx, args...)
			_ = pipe.Process(ctx, cmds[i])
		}
	}
	if pipe.Len() > 0 {
		run(ctx, pipe, cmds)
	}
	results := make([]result, len(calls))
	for i, cmd := range cmds {
		results[i] = result{cmd.Val(), classify(cmd.Err())}
	}
	return results
}

// run sends a pipeline. Each command has its own error, but for one case: when
// Redis refused the login of a new connection, only the pipeline is told.
func run(ctx context.Context, pipe redis.Pipeliner, cmds []*redis.Cmd) {
	_, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if cmd.Err() == nil && cmd.Val() == nil {
			cmd.SetErr(err)
		}
	}
}

// execOne sends a call by itself, which is cheaper than a pipeline of one.
func (b *batcher) execOne(ctx context.Context, c *call) result {
	cmd := redis.NewCmd(ctx, c.args...)
	_ = b.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		args := slices.Clone(c.args)
		args[0], args[1] = "eval", c.script.src
		cmd = redis.NewCmd(ctx, args...)
		_ = b.client.Process(ctx, cmd)
	}
	return result{cmd.Val(), classify(cmd.Err())}
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
	case redis.HasErrorPrefix(err, "WRONGTYPE"), redis.HasErrorPrefix(err, "NOPERM"), redis.HasErrorPrefix(err, "NOAUTH"):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}
