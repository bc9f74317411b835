// Package guard says whether this instance may sell: by order mode (Mode), alone (Sole), on the same Redis (Redis).
package guard

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

// Guards tell whether this instance may sell now: the first one that refuses gives the reason.
type Guards []interface{ Selling() error }

// Selling is nil, or says why this instance may not sell now.
func (g Guards) Selling() error {
	for _, guard := range g {
		if err := guard.Selling(); err != nil {
			return err
		}
	}
	return nil
}

// Sole guards an instance with Redis or queue inside it. A second is unready; in async it sells and rebuilds nothing.
type Sole struct {
	claim Claim
	lacks string // the settings that would allow several instances
	alone atomic.Bool
}

// Claim is a claim that one instance at most holds at a time.
type Claim interface {
	Held(ctx context.Context) (bool, error)
}

// NewSole makes the guard; lacks names the settings that would allow several instances.
func NewSole(claim Claim, lacks string) *Sole { return &Sole{claim: claim, lacks: lacks} }

// Run keeps up to date whether this instance is alone, until ctx ends.
func (s *Sole) Run(ctx context.Context) {
	s.look(ctx)
	poll.Every(ctx, budget.Look, func() { s.look(ctx) })
}

// Assume takes this instance for alone until the next look.
func (s *Sole) Assume() { s.alone.Store(true) }

// Probe is the readiness check: nil while this instance is alone.
func (s *Sole) Probe(ctx context.Context) error {
	held, err := s.claim.Held(ctx)
	if err == nil && !held {
		err = s.crowded()
	}
	return err
}

func (s *Sole) crowded() error {
	return model.Unavailable("another instance with an embedded Redis or queue uses this database; set "+
		s.lacks+" to run several", nil)
}

// look keeps alone up to date. A database that is away changes nothing: async goes on without it for a while.
func (s *Sole) look(ctx context.Context) {
	if held, err := s.claim.Held(ctx); err == nil {
		s.alone.Store(held)
	}
}

// Selling is nil while this instance is alone.
func (s *Sole) Selling() error {
	if s == nil || s.alone.Load() {
		return nil
	}
	return s.crowded()
}

// Await returns when this instance is alone, or ctx has ended.
func (s *Sole) Await(ctx context.Context) {
	_ = poll.Until(ctx, budget.Look, func() (bool, error) { return s.Selling() == nil, nil }) // ctx tells
}

// Mode knows the database's order mode as last read, also in an outage. Transactions that take units check it too.
type Mode struct {
	read func(context.Context) (model.ModeRecord, error)
	mine model.OrderMode
	log  *slog.Logger
	last atomic.Pointer[model.ModeRecord]
}

// NewMode makes the watcher of an instance whose order mode is mine; Run does the watching.
func NewMode(read func(context.Context) (model.ModeRecord, error), mine model.OrderMode, log *slog.Logger) *Mode {
	return &Mode{read: read, mine: mine, log: log}
}

// Adopt has a database without vouchers adopt this instance's mode, and returns the deployment's name. Lacks says what
// another process has yet to add to the schema; nil: nobody else does. Sync then waits, unready, without error or name;
// async needs the name for its queue.
func (m *Mode) Adopt(
	ctx context.Context,
	adopt func(context.Context, model.OrderMode) (model.ModeRecord, error), lacks func(context.Context) error,
) (deployment string, err error) {
	record, err := adopt(ctx, m.mine)
	switch {
	case err == nil:
		return record.Deployment, m.Refresh(ctx)
	case lacks == nil:
	case m.mine == model.ModeSync:
		return "", nil
	default:
		if missing := lacks(ctx); missing != nil {
			return "", missing
		}
	}
	return "", fmt.Errorf("look at the order mode of the database: %w", err)
}

// Run reads the mode again and again until ctx ends.
func (m *Mode) Run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = m.Refresh(ctx) // after an error the latest reading counts
		poll.Pause(ctx, budget.Glance)
	}
}

// Refresh reads the mode now.
func (m *Mode) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Call)
	defer cancel()
	record, err := m.read(ctx)
	if err != nil {
		return fmt.Errorf("read the order mode: %w", err)
	}
	before := m.last.Swap(&record)
	if before == nil || *before != record {
		m.log.InfoContext(ctx, "the database's order mode", slog.String("mode", string(record.Mode)),
			slog.String("instance", string(m.mine)))
	}
	return nil
}

// Selling is nil while this instance may sell; UNAVAILABLE in another mode or before a reading.
func (m *Mode) Selling() error {
	record := m.last.Load()
	switch {
	case record == nil:
		return model.Unavailable("It is not known yet how this database is sold from.", nil)
	case record.Mode != m.mine:
		return model.Unavailable("This instance has another order mode than its database.", nil)
	default:
		return nil
	}
}

// Probe is the readiness check, which names the two modes and what to do.
func (m *Mode) Probe(context.Context) error {
	if record := m.last.Load(); record != nil && record.Mode != m.mine {
		return model.Unavailable(fmt.Sprintf("the database is sold from in order mode %s and this instance is %s; "+
			"`seckill mode %s` changes it while no instance sells", record.Mode, m.mine, m.mine), nil)
	}
	return m.Selling()
}

const (
	// abandonedClaim is how many unchanged looks at another Redis' claim let this instance's Redis take its place.
	abandonedClaim = 5
	// claimAge is when a claim is renewed; a whole look would renew every second time. Zero makes all renew it.
	claimAge = budget.Look / 2
	// Embedded begins the identity of a Redis inside an instance.
	Embedded = "embedded "
)

// Claims keeps which Redis the instances of a database use.
type Claims interface {
	Read(ctx context.Context) (claim model.RedisClaim, age time.Duration, err error)
	Take(ctx context.Context, identity string, from model.RedisClaim) (bool, error)
}

// Redis makes all async instances on a database use one Redis, named by a row that they renew. With another, an instance
// sells and rebuilds nothing until the row is abandoned for some seconds. After a failover they write the new identity.
type Redis struct {
	claims   Claims
	identity func(ctx context.Context) (string, error)
	sole     *Sole
	log      *slog.Logger

	agreed atomic.Bool
	used   atomic.Pointer[string] // by the other instances

	// Only the goroutine that looks uses these.
	mine   string           // what was agreed to; empty: nothing
	seen   model.RedisClaim // by the latest look
	silent int              // looks in a row in which that was unchanged
}

// NewRedis makes the guard of an instance whose Redis has an identity.
func NewRedis(claims Claims, identity func(ctx context.Context) (string, error), sole *Sole, log *slog.Logger) *Redis {
	return &Redis{claims: claims, identity: identity, sole: sole, log: log}
}

// Run looks again and again until ctx ends. A look that failed is repeated by the next.
func (r *Redis) Run(ctx context.Context) { poll.Every(ctx, budget.Look, func() { _ = r.Look(ctx) }) }

// Look compares this instance's Redis with the database's. While one is silent nothing changes.
func (r *Redis) Look(ctx context.Context) error { return r.look(ctx, r.claims.Take) }

// Await looks until its Redis is the database's, or another is known to be in use: the error. It claims nothing.
func (r *Redis) Await(ctx context.Context) error {
	agree := func(context.Context, string, model.RedisClaim) (bool, error) { return true, nil }
	for n := 0; ; n++ {
		if err := r.look(ctx, agree); err != nil {
			return err
		}
		renewed := n > 0 && r.silent == 0
		if err := r.Selling(); err == nil || renewed || ctx.Err() != nil {
			return err
		}
		poll.Pause(ctx, budget.Look)
	}
}

func (r *Redis) look(ctx context.Context, take func(context.Context, string, model.RedisClaim) (bool, error)) error {
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
	// An age below zero: the database's clock was set back. Others see the claim stand still until it is renewed.
	if (ours && age.Abs() >= claimAge) || (!ours && r.mayReplace(claim.Identity)) {
		taken, err := take(ctx, identity, claim)
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

// mayReplace reports whether this Redis may replace another: none, its own earlier one, a dead one or an unused one.
func (r *Redis) mayReplace(other string) bool {
	dead := strings.HasPrefix(other, Embedded) && r.sole != nil && r.sole.alone.Load()
	return other == "" || other == r.mine || dead || r.silent >= abandonedClaim
}

// note says once that this instance agrees with the others, or no longer does.
func (r *Redis) note(ctx context.Context, identity, other string, ours bool) {
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
		r.log.WarnContext(ctx, "this instance may not sell", slog.String("because", r.reason()),
			slog.String("redis", identity))
	}
}

func (r *Redis) reason() string {
	if used := r.used.Load(); used != nil {
		return fmt.Sprintf("another instance of this database uses another Redis (%s); all of them must have the same SECKILL_REDIS_URL", *used)
	}
	return "it is not known yet which Redis the other instances of this database use"
}

// Selling is nil while this instance uses the Redis of its database.
func (r *Redis) Selling() error {
	if r == nil || r.agreed.Load() {
		return nil
	}
	return model.Unavailable(r.reason(), nil)
}

// During runs work whenever this instance uses the Redis of its database, until ctx ends or the work does by itself.
func (r *Redis) During(ctx context.Context, work func(ctx context.Context) error) error {
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

// await returns true when this instance agrees with the others, or no longer does, and false when ctx has ended.
func (r *Redis) await(ctx context.Context, agreed bool) bool {
	return poll.Until(ctx, budget.Glance, func() (bool, error) { return r.agreed.Load() == agreed, ctx.Err() }) == nil
}

// AgreedMode has rebuilds ask whether this instance uses its database's Redis before they ask for the mode.
func (r *Redis) AgreedMode(
	read func(context.Context) (model.ModeRecord, error),
) func(context.Context) (model.ModeRecord, error) {
	return func(ctx context.Context) (model.ModeRecord, error) {
		if err := r.Selling(); err != nil {
			return model.ModeRecord{}, err
		}
		return read(ctx)
	}
}
