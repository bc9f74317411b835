package lab

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// spinEvery is the pause between two tries, as the tutorials have it: a few
// milliseconds.
const spinEvery = 2 * time.Millisecond

// spin is the lock of the tutorials: try, pause, try again, until it works. Who
// comes next is luck, and every try is a command. What try and free do is what
// differs.
type spin struct {
	client *redis.Client
	key    string
	setup  setup
	try    func(ctx context.Context, s *spin, owner string) (bool, error)
	free   func(ctx context.Context, s *spin, owner string) error
}

type spinHold struct {
	lock  *spin
	owner string
	ctx   context.Context //nolint:containedctx // what a hold is asked for
}

func openSpin(
	try func(ctx context.Context, s *spin, owner string) (bool, error),
	free func(ctx context.Context, s *spin, owner string) error,
) func(context.Context, setup) (performer, error) {
	return openLocked(func(s setup) (locker, error) {
		client, err := newClient(s.Site.Redis, s.commands)
		if err != nil {
			return nil, err
		}
		return &spin{client: client, key: s.Site.key(s.Name + ":lock"), setup: s, try: try, free: free}, nil
	})
}

func (s *spin) lock(ctx context.Context, wait time.Duration) (hold, error) {
	owner := newID()
	budget := time.NewTimer(wait)
	defer budget.Stop()
	again := time.NewTicker(spinEvery)
	defer again.Stop()
	for {
		ok, err := s.try(ctx, s, owner)
		if err != nil {
			return nil, err
		}
		if ok {
			return &spinHold{lock: s, owner: owner, ctx: ctx}, nil
		}
		select {
		case <-again.C:
		case <-budget.C:
			return nil, errStuck
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *spin) close() error { return s.client.Close() }

// context is the caller's: these locks do not know when they are lost.
func (h *spinHold) context() context.Context { return h.ctx }

func (h *spinHold) unlock(ctx context.Context) error { return h.lock.free(ctx, h.lock, h.owner) }

// setNX is SET key owner NX, with an expiry unless it is 0.
func (s *spin) setNX(ctx context.Context, owner string, expiry time.Duration) (bool, error) {
	err := s.client.SetArgs(ctx, s.key, owner, redis.SetArgs{Mode: "NX", TTL: expiry}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// tryExpiring is the one correct way to begin: value and expiry in one command.
func tryExpiring(ctx context.Context, s *spin, owner string) (bool, error) {
	return s.setNX(ctx, owner, s.setup.Lease)
}

// freeAnybodys deletes the key, whichever actor holds it by now.
func freeAnybodys(ctx context.Context, s *spin, _ string) error {
	return s.client.Del(ctx, s.key).Err()
}

// compareAndDelete deletes the key if it is still the owner's, in one step.
//
//	KEYS[1] the lock, ARGV[1] the owner; replies 1 deleted, 0 not the owner's
const compareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`

// freeOwn is the correct end of a SETNX lock.
func freeOwn(ctx context.Context, s *spin, owner string) error {
	return redis.NewScript(compareAndDelete).Run(ctx, s.client, []string{s.key}, owner).Err()
}
