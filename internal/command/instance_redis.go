package command

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"seckill/model"
	"seckill/repository"
	"seckill/service"
)

const (
	// abandonedClaim is in how many looks in a row the claim of another Redis must
	// have been seen without a sign of life before this instance's takes its place.
	abandonedClaim = 5
	// embeddedRedis begins the identity of a Redis inside an instance.
	embeddedRedis = "embedded "
)

// redisClaim makes sure that all instances in order mode async on a database use
// one Redis. The database keeps which: those who use it renew that. An instance
// with another one is not ready, sells nothing and touches no hot copy, until it
// has seen for some seconds that nobody uses the first any more. When Redis itself
// has restarted or failed over, those who used it say so at once.
type redisClaim struct {
	claims   *repository.RedisClaims
	identity func(ctx context.Context) (string, error)
	solitude *solitude
	log      *slog.Logger

	agreed atomic.Bool
	used   atomic.Pointer[string] // by the other instances

	// Of the goroutine that looks.
	mine   string // what was agreed to; empty: nothing
	seen   repository.RedisClaim
	silent int // looks in a row in which it was the same
}

// claimRedis looks from now on whether this instance uses the Redis of its database.
func (i *Instance) claimRedis(ctx context.Context, s servers) *redisClaim {
	r := &redisClaim{claims: repository.NewRedisClaims(s.db), solitude: s.solitude, log: i.log}
	r.identity = func(ctx context.Context) (string, error) {
		if s.incarnation != "" {
			return embeddedRedis + s.incarnation, nil
		}
		return repository.RedisIdentity(ctx, s.redis)
	}
	_ = r.look(ctx) // the next one tells
	i.probes = append(i.probes, service.Probe{Name: "redis of the database", Ask: func(context.Context) error { return r.refusal() }})
	i.background("claim for Redis", lookAround, func(ctx context.Context) error { //nolint:contextcheck // until the stop
		ticker := time.NewTicker(lookAround)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				_ = r.look(ctx)
			case <-ctx.Done():
				return nil
			}
		}
	})
	return r
}

// look compares this instance's Redis with the database's. While one of the two
// does not answer nothing changes: async goes on without the database for a while.
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
	// Also when the database's clock was set back since: to others it stands still.
	if (ours && age.Abs() >= lookAround) || (!ours && r.mayReplace(claim.Identity)) {
		taken, err := r.claims.Take(ctx, identity, claim)
		if err != nil || !taken {
			return err // somebody was quicker: the next look tells who
		}
		ours = true
	}
	r.note(ctx, identity, claim.Identity, ours)
	return nil
}

// mayReplace reports whether this instance's Redis may take another one's place.
func (r *redisClaim) mayReplace(other string) bool {
	dead := strings.HasPrefix(other, embeddedRedis) && r.solitude != nil && r.solitude.alone.Load() // with its process
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

// refusal is nil while this instance uses the Redis of its database.
func (r *redisClaim) refusal() error {
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
	for ; ctx.Err() == nil; wait(ctx) {
		if !r.agreed.Load() {
			continue
		}
		working, stop := context.WithCancel(ctx)
		go func() {
			for r.agreed.Load() && working.Err() == nil {
				wait(working)
			}
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

// claimPoll is soon enough for work behind the buyers' backs.
const claimPoll = 200 * time.Millisecond

func wait(ctx context.Context) {
	select {
	case <-time.After(claimPoll):
	case <-ctx.Done():
	}
}

// modes makes rebuilds ask whether this instance uses the Redis of its database.
func (r *redisClaim) modes(modes service.ModeReader) service.ModeReader {
	return agreedModes{modes, r}
}

type agreedModes struct {
	service.ModeReader
	claim *redisClaim
}

// Read implements service.ModeReader.
func (m agreedModes) Read(ctx context.Context) (model.ModeRecord, error) {
	if err := m.claim.refusal(); err != nil {
		return model.ModeRecord{}, err
	}
	return m.ModeReader.Read(ctx)
}

// agreedSeller sells when the order mode allows it and this instance uses the
// Redis of its database.
type agreedSeller struct {
	seller
	claim *redisClaim
}

// Selling implements the service's guards.
func (s agreedSeller) Selling() error {
	if err := s.claim.refusal(); err != nil {
		return err
	}
	return s.seller.Selling()
}
