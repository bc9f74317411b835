// Package guard says whether this instance may sell now, by what the database says: Mode is whether it is sold from in
// this instance's order mode, Sole whether the instance is alone where it must be, and Redis whether all instances use
// the same Redis. The wiring asks, and hands the verdict to everything that sells or touches a hot copy.
package guard

import (
	"context"
	"sync/atomic"

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

// Sole is the claim of an instance whose Redis or queue is inside its own process: no other instance on its database
// sees its locks, its hot copies or its backlog. A second one runs, but is not ready, sells nothing in async and
// touches no hot copy.
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
