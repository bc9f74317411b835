package lock

import (
	"context"
	_ "embed" // the scripts

	"github.com/redis/go-redis/v9"
)

//go:embed lua/setnx_acquire.lua
var setnxAcquireLua string

//go:embed lua/setnx_renew.lua
var setnxRenewLua string

//go:embed lua/setnx_release.lua
var setnxReleaseLua string

// SetNXStore keeps plain locks in one Redis. See NewSetNXStore.
type SetNXStore struct{ redis *RedisStore }

var _ Store = (*SetNXStore)(nil)

// NewSetNXStore keeps locks as plain keys, SET NX PX with the holder as the
// value, given back by compare and delete: what most programs that are not
// Redisson do. Unlock messages go to lock_channel:{name}. A Redisson lock of the
// same name is another lock, and the two must not meet on one key: give these a
// name of their own. Options as for NewRedisStore.
//
// The key holds no hold count; re-entry works all the same, because the Client
// counts.
func NewSetNXStore(client redis.UniversalClient, opts ...RedisOption) *SetNXStore {
	return &SetNXStore{newRedisStore(client, layout{
		acquire: newScript(setnxAcquireLua), renew: newScript(setnxRenewLua),
		release: newScript(setnxReleaseLua), force: newScript(forceLua),
		channel: "lock_channel", token: "lock_token", latch: "lock_latch",
	}, opts)}
}

// Acquire is Store's.
func (s *SetNXStore) Acquire(ctx context.Context, r Request) (Grant, error) {
	return s.redis.Acquire(ctx, r)
}

// Renew is Store's.
func (s *SetNXStore) Renew(ctx context.Context, rs []Request) ([]bool, error) {
	return s.redis.Renew(ctx, rs)
}

// Release is Store's.
func (s *SetNXStore) Release(ctx context.Context, r Request) (bool, error) {
	return s.redis.Release(ctx, r)
}

// ForceRelease is Store's.
func (s *SetNXStore) ForceRelease(ctx context.Context, name string) (bool, error) {
	return s.redis.ForceRelease(ctx, name)
}

// Watch is Store's.
func (s *SetNXStore) Watch(name string, wake func()) Watch { return s.redis.Watch(name, wake) }

// Close is Store's.
func (s *SetNXStore) Close() error { return s.redis.Close() }
