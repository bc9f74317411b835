package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/embedded"
	"seckill/internal/poll"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/hotcopy"
)

const (
	// abandonedClaim is in how many looks in a row the claim of another Redis must
	// have been unchanged before this instance's Redis takes its place.
	abandonedClaim = 5
	// claimAge is from which age on a claim is renewed. It is half the time between two looks, because at the next look
	// a claim is a little younger than a look: at a whole one, each second look would renew it, and a second less of
	// silence would make it look abandoned. It is not zero, because one of many instances is enough.
	claimAge = lookAround / 2
	// embeddedRedis begins the identity of a Redis inside an instance.
	embeddedRedis = "embedded "
)

// openRedis connects to Redis, or starts the one inside this process.
func (i *Instance) openRedis(ctx context.Context) (redis.UniversalClient, error) {
	url := i.cfg.RedisURL
	if url == "" {
		inside, err := embedded.StartRedis()
		if err != nil {
			return nil, fmt.Errorf("start the embedded Redis: %w", err)
		}
		i.onClose("embedded Redis", func(context.Context) error { inside.Close(); return nil })
		url = inside.URL()
	}
	client, err := hotcopy.NewClient(url, i.cfg.RedisTLS.Client())
	if err != nil {
		return nil, err
	}
	i.onClose("Redis client", func(context.Context) error { return client.Close() })
	if err := i.tracer.Redis(client); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if i.cfg.RedisURL != "" {
		if err := i.inspectRedis(ctx, client); err != nil {
			return nil, fmt.Errorf("use Redis (SECKILL_REDIS_URL): %w", err)
		}
	}
	return client, nil
}

// inspectRedis refuses a Redis that is not what the URL says, and one whose user lacks a
// right. A server of several that is just away is no reason not to start.
func (i *Instance) inspectRedis(ctx context.Context, client redis.UniversalClient) error {
	if err := hotcopy.Inspect(ctx, client); err != nil {
		return err
	}
	err := errors.Join(hotcopy.Rehearse(ctx, client, i.cfg.Async()), i.rehearseLocks(ctx, client))
	if err == nil || errors.Is(err, hotcopy.ErrRights) {
		return err
	}
	i.log.WarnContext(ctx, "not all of Redis could be tried", slog.Any("error", err))
	return nil
}

// adviseCluster says that a Cluster refuses everything while one primary is lost.
func adviseCluster(ctx context.Context, client redis.UniversalClient, log *slog.Logger) {
	const setting = "cluster-require-full-coverage"
	if !hotcopy.IsCluster(client) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if settings, err := client.ConfigGet(ctx, setting).Result(); err == nil && settings[setting] == "yes" {
		log.WarnContext(ctx, "the whole Redis Cluster refuses while one of its primaries is lost; set "+setting+" no on each node")
	}
}

// adviseExpiry says that a Redis frees what expires in one go: the hot copy of a
// large sale would stop it for most of a second. It says nothing of a Redis that
// does not tell its settings.
func adviseExpiry(ctx context.Context, client redis.UniversalClient, log *slog.Logger) {
	const setting = "lazyfree-lazy-expire"
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	settings, err := client.ConfigGet(ctx, setting).Result()
	switch {
	case err != nil:
		log.DebugContext(ctx, "Redis does not tell how it frees what expires", slog.Any("error", err))
	case settings[setting] == "no":
		log.WarnContext(ctx, "Redis stops while the copy of a large sale expires; set "+setting+" yes")
	}
}

// LogRedis passes the remarks of the Redis client on, which would go to standard
// error in a format of their own. What matters of them comes back as errors too.
func LogRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

type redisLog struct{ log *slog.Logger }

// Printf implements the client's logger.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "Redis client", slog.String("remark", fmt.Sprintf(format, v...)))
}

// redisClaim makes sure that all instances in order mode async on a database use
// one Redis. A row of the database names that Redis, and the instances that use it
// renew the row. An instance with another Redis is not ready, sells nothing and
// touches no hot copy, until it has seen for some seconds that the row is not
// renewed any more. When Redis itself has restarted or failed over, the instances
// that used it write its new identity at once.
type redisClaim struct {
	claims   *repository.RedisClaims
	identity func(ctx context.Context) (string, error)
	sole     *soleInstance
	log      *slog.Logger

	agreed atomic.Bool
	used   atomic.Pointer[string] // by the other instances

	// Only the goroutine that looks uses these.
	mine   string                // what was agreed to; empty: nothing
	seen   repository.RedisClaim // by the latest look
	silent int                   // looks in a row in which that was unchanged
}

// claimRedis looks from now on whether this instance uses the Redis of its database.
func (i *Instance) claimRedis(ctx context.Context, s servers) *redisClaim {
	r := &redisClaim{claims: repository.NewRedisClaims(s.db.Database), sole: s.sole, log: i.log}
	r.identity = func(ctx context.Context) (string, error) {
		if s.incarnation != "" {
			return embeddedRedis + s.incarnation, nil
		}
		return hotcopy.Identity(ctx, s.redis)
	}
	_ = r.look(ctx) // the next look repeats what failed
	i.probe("redis of the database", func(context.Context) error { return r.Selling() })
	i.loop("claim for Redis", lookAround, func(ctx context.Context) { //nolint:contextcheck // until the stop
		poll.Every(ctx, lookAround, func() { _ = r.look(ctx) })
	})
	return r
}

// look compares this instance's Redis with the one that the database names. While
// one of the two does not answer, nothing changes: async goes on without the
// database for a while.
func (r *redisClaim) look(ctx context.Context) error {
	identity, err := r.identity(ctx)
	if err != nil {
		return err
	}
	claim, age, err := r.claims.Read(ctx)
	if err != nil {
		r.silent = 0 // the others could not renew it either
		return err
	}
	if r.silent++; claim != r.seen {
		r.seen, r.silent = claim, 0
	}
	ours := claim.Identity == identity
	// An age below zero says that the database's clock was set back: to the other
	// instances the claim stands still until it is renewed.
	if (ours && age.Abs() >= claimAge) || (!ours && r.mayReplace(claim.Identity)) {
		taken, err := r.claims.Take(ctx, identity, claim)
		if err == nil && !taken { // another instance was quicker
			claim, _, err = r.claims.Read(ctx)
		}
		if err != nil {
			return err
		}
		ours = taken || claim.Identity == identity
	}
	r.note(ctx, identity, claim.Identity, ours)
	return nil
}

// mayReplace reports whether this instance's Redis may take the place of another:
// of none, of the one that this instance used before, of one that died with its
// process, and of one that is not used any more.
func (r *redisClaim) mayReplace(other string) bool {
	dead := strings.HasPrefix(other, embeddedRedis) && r.sole != nil && r.sole.alone.Load()
	return other == "" || other == r.mine || dead || r.silent >= abandonedClaim
}

// note says once that this instance agrees with the others, or no longer does.
func (r *redisClaim) note(ctx context.Context, identity, other string, ours bool) {
	r.mine = ""
	if ours {
		r.mine, other = identity, identity
	}
	before := r.used.Swap(&other)
	known := r.agreed.Swap(ours)
	switch {
	case before != nil && known == ours && *before == other:
	case ours:
		r.log.InfoContext(ctx, "this instance uses the Redis of its database", slog.String("redis", identity))
	default:
		r.log.WarnContext(ctx, "this instance may not sell", slog.String("because", r.reason()), slog.String("redis", identity))
	}
}

func (r *redisClaim) reason() string {
	if used := r.used.Load(); used != nil {
		return fmt.Sprintf("another instance of this database uses another Redis (%s); all of them must have the same SECKILL_REDIS_URL", *used)
	}
	return "it is not known yet which Redis the other instances of this database use"
}

// Selling implements the service's guards: nil while this instance uses the Redis
// of its database.
func (r *redisClaim) Selling() error {
	if r == nil || r.agreed.Load() {
		return nil
	}
	return model.Unavailable(r.reason(), nil)
}

// during runs work whenever this instance uses the Redis of its database, until
// ctx ends or the work does by itself.
func (r *redisClaim) during(ctx context.Context, work func(ctx context.Context) error) error {
	if r == nil {
		return work(ctx)
	}
	for r.await(ctx, true) {
		working, stop := context.WithCancel(ctx)
		go func() {
			r.await(working, false)
			stop()
		}()
		err := work(working)
		ended := working.Err() == nil || ctx.Err() != nil
		stop()
		if ended {
			return err
		}
	}
	return nil
}

// await returns true when this instance agrees with the others, or no longer
// does, and false when ctx has ended.
func (r *redisClaim) await(ctx context.Context, agreed bool) bool {
	return poll.Until(ctx, claimPoll, func() (bool, error) { return r.agreed.Load() == agreed, ctx.Err() }) == nil
}

// claimPoll is soon enough for work behind the requests.
const claimPoll = 200 * time.Millisecond

// agreedMode makes rebuilds ask whether this instance uses the Redis of its
// database before they ask for the order mode.
func (r *redisClaim) agreedMode(
	read func(context.Context) (model.ModeRecord, error),
) func(context.Context) (model.ModeRecord, error) {
	return func(ctx context.Context) (model.ModeRecord, error) {
		if err := r.Selling(); err != nil {
			return model.ModeRecord{}, err
		}
		return read(ctx)
	}
}
