package ratelimit

import (
	"context"
	"net/netip"
	"time"

	"seckill/internal/budget"
	"seckill/model"
)

const (
	// patience is how many refusals a second an address hears at once. After ten quiet seconds it hears 1,000 at once.
	patience = 100
	// maxBraked refusals are held back at once, some 20 KB each. Further ones are answered at once.
	maxBraked = 2000
)

// Brake slows down clients that go on asking although they are refused. Most of what a refusal costs is reading its
// request; a client that hears of it a second later sends its next request a second later.
type Brake struct {
	refusals *Addresses // of this instance alone
	places   chan struct{}
}

// NewBrake makes a brake.
func NewBrake() (*Brake, error) {
	b := &Brake{refusals: NewAddresses(nil), places: make(chan struct{}, maxBraked)}
	return b, b.refusals.Set(model.Rate{Events: patience, Per: time.Second}, "")
}

// Hold counts a refusal of an address, and returns when it may be answered: at once, or
// a second later, or when ctx ends. It tells how much later.
func (b *Brake) Hold(ctx context.Context, address netip.Addr) (held time.Duration) {
	if b.refusals.Take(ctx, address) == 0 {
		return 0
	}
	select {
	case b.places <- struct{}{}:
		defer func() { <-b.places }()
	default:
		return 0
	}
	began := time.Now()
	over := time.NewTimer(budget.Look)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	}
	return time.Since(began)
}
