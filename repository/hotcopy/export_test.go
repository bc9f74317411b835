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

// PatientClient waits as long as a busy machine needs, past a caller's deadline too; a caller that gives up is obeyed.
func PatientClient(t testing.TB, url string) *redis.Client {
	t.Helper()
	options := check.Value(redis.ParseURL(url))(t)
	options.ContextTimeoutEnabled, options.MaxRetries, options.PoolSize = true, 1, 64
	options.DialTimeout, options.ReadTimeout = check.Deadline, check.Deadline
	options.WriteTimeout, options.PoolTimeout = check.Deadline, check.Deadline
	client := redis.NewClient(options)
	client.AddHook(OnCommands(func(ctx context.Context, cmds []redis.Cmder, next Next) error {
		longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), check.Deadline)
		defer cancel()
		defer context.AfterFunc(ctx, func() {
			if errors.Is(ctx.Err(), context.Canceled) {
				cancel()
			}
		})()
		return next(longer, cmds)
	}))
	t.Cleanup(func() { check.Must(t, client.Close()) })
	return client
}

// Next sends commands on.
type Next = redis.ProcessPipelineHook

// OnCommands is a hook on what a client sends: a pipeline, as all scripts are, or one command.
type OnCommands func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

func (OnCommands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h OnCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		one := func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds[0]) }
		return h(ctx, []redis.Cmder{cmd}, one)
	}
}

func (h OnCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
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
