// Package app puts a running instance together, and the parts of one for the
// commands of an operator. It is the only package that knows all the others.
//
// Start lists the parts in the order in which they start. They stop in the
// opposite order, so that a part ends before what it needs.
package app

import (
	"context"
	"errors"
	"log/slog"

	"seckill/config"
	"seckill/handler"
)

// Start brings an instance up, dependencies first, and returns when it
// listens. When something is missing it says what, and leaves nothing behind.
func Start(ctx context.Context, cfg config.Config, log *slog.Logger) (_ *Instance, err error) {
	i := newInstance(cfg, log)
	defer func() {
		if err != nil {
			err = errors.Join(err, i.close(ctx))
		}
	}()

	// What everything else stands on.
	if err := i.claimDataDir(); err != nil {
		return nil, err
	}
	tokens, err := Tokens(ctx, cfg)
	if err != nil {
		return nil, err
	}
	servers, err := i.openServers(ctx)
	if err != nil {
		return nil, err
	}
	mode, err := i.openMode(ctx, servers)
	if err != nil {
		return nil, err
	}

	// What happens behind the requests.
	var async *AsyncParts // nil in sync
	if cfg.Async() {
		if async, err = i.openAsyncParts(ctx, servers, mode); err != nil {
			return nil, err
		}
		i.runAsyncParts(async) //nolint:contextcheck // until the stop
	} else if cfg.Role == config.RoleWorker {
		log.WarnContext(ctx, "in order mode sync there is no queue: a worker only tidies up")
	}
	i.sweep(servers.db) //nolint:contextcheck // until the stop

	// What is served. Now the list of probes is complete.
	main, err := i.mainHandler(servers, mode, async, tokens) //nolint:contextcheck // its requests bring their own
	if err != nil {
		return nil, err
	}
	i.ops, err = i.listen(ctx, listenerOptions{
		name: "operations", address: cfg.OpsAddr, handler: handler.NewOperations(i.registry), patience: opsPatience,
	})
	if err != nil {
		return nil, err
	}
	i.main, err = i.listen(ctx, listenerOptions{
		name: "main", address: cfg.HTTPAddr, handler: main, slowest: cfg.LockWait, patience: mainPatience,
	})
	if err != nil {
		return nil, err
	}
	return i, nil
}
