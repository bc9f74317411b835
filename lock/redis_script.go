package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// call is one script call on its way.
type call struct {
	script *redis.Script
	keys   []string
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

func newCall(script *redis.Script, keys []string, args ...any) *call {
	return &call{script: script, keys: keys, args: args}
}

// once tells whether the call was surely sent only once.
func (c *call) once() bool { return c.took < swiftly && !c.alone }

// reply returns the integer that answers the call, or those of a list; want of them.
func (c *call) reply(want int) ([]int64, error) {
	if c.err != nil {
		return nil, c.err
	}
	list, ok := c.val.([]any)
	if !ok {
		list = []any{c.val}
	}
	numbers := make([]int64, 0, want)
	for _, v := range list {
		if n, ok := v.(int64); ok {
			numbers = append(numbers, n)
		}
	}
	if len(list) != want || len(numbers) != want {
		return nil, fmt.Errorf("a lock script gave an unexpected reply %v: %w", c.val, ErrUnknown)
	}
	return numbers, nil
}

// exec sends calls in one pipeline. Scripts that Redis does not know (any more)
// are sent again in full. It writes to nothing its caller could still be reading.
func (b *batcher) exec(ctx context.Context, calls []*call, forgot []string) []*redis.Cmd {
	if len(calls) == 1 && len(forgot) == 0 {
		c := calls[0] // by itself, which is cheaper than a pipeline of one
		return []*redis.Cmd{c.script.Run(ctx, b.client, c.keys, c.args...)}
	}
	pipe := b.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = c.script.EvalSha(ctx, pipe, c.keys, c.args...)
	}
	if len(forgot) > 0 {
		pipe.Unlink(ctx, forgot...)
	}
	run(ctx, pipe, cmds)
	for i, c := range calls {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			cmds[i] = c.script.Eval(ctx, pipe, c.keys, c.args...)
		}
	}
	if pipe.Len() > 0 {
		run(ctx, pipe, cmds)
	}
	return cmds
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
