package hotcopy

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
)

// PatientClient is a client of one server that waits for as long as a busy machine needs, also where the caller sets a
// limit of time. A caller that gives up by itself is obeyed.
func PatientClient(t testing.TB, url string) *redis.Client {
	t.Helper()
	options := check.Value(redis.ParseURL(url))(t)
	options.ContextTimeoutEnabled, options.MaxRetries, options.PoolSize = true, 1, 64
	options.DialTimeout, options.ReadTimeout = check.Deadline, check.Deadline
	options.WriteTimeout, options.PoolTimeout = check.Deadline, check.Deadline
	client := redis.NewClient(options)
	client.AddHook(unhurried{})
	t.Cleanup(func() { check.Must(t, client.Close()) })
	return client
}

// unhurried is a hook that lets calls outlive the limits of time of their callers.
type unhurried struct{}

// DialHook implements redis.Hook.
func (unhurried) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (unhurried) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, cancel := unhurriedContext(ctx)
		defer cancel()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (unhurried) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, cancel := unhurriedContext(ctx)
		defer cancel()
		return next(ctx, cmds)
	}
}

func unhurriedContext(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), check.Deadline)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return longer, func() { stop(); cancel() }
}

// OnPipeline is a hook on a client's pipelines. All scripts are called in such.
type OnPipeline func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

// DialHook implements redis.Hook.
func (OnPipeline) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (OnPipeline) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (h OnPipeline) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}

// Halfway reports whether the work of a command about one copy was broken off behind a change.
func Halfway(cmd redis.Cmder) bool {
	command, ok := cmd.(*redis.Cmd)
	if once, is := cmd.(onceCmd); is {
		command, ok = once.Cmd, true
	}
	c := &call{}
	if ok {
		take([]*call{c}, command)
	}
	_, half := errors.AsType[halfway](c.err)
	return half
}

// CommandsOf are the commands of Redis that a script may give, in the order of their names.
func CommandsOf(script string) []string {
	var commands []string
	for _, file := range []string{"head", script, "tail"} {
		for _, found := range command.FindAllStringSubmatch(luaFile(file), -1) {
			commands = append(commands, found[1])
		}
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}

var command = regexp.MustCompile(`(?:redis\.p?call|write)\('([a-z]+)'`)
