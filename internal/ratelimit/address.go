package ratelimit

import (
	"context"
	"net/netip"
	"time"

	"seckill/internal/budget"
	"seckill/model"
)

const (
	// site is how many times the limit of a /64 a /48 has. A household is delegated a /56 or a /60, the latter being 16
	// of /64 (RFC 6177, RIPE-690); whoever has a whole /48 has 65,536 of them, and must not have as many limits.
	site = 16
)

// Addresses limits client addresses. Of IPv6 that is a /64: one subscriber has that many addresses at the least, and
// could use another one for every request. A /48 has a wider limit beside it. The nil Addresses limits nothing.
type Addresses struct{ networks, sites *Limiter }

// NewAddresses makes limiters of addresses that are off. Shared may be nil.
func NewAddresses(shared *Shared) *Addresses {
	return &Addresses{New("addr", budget.Step, shared), New("site", budget.Step, shared)}
}

// Set is that of a Limiter.
func (a *Addresses) Set(rate model.Rate, scope string) error {
	if err := a.networks.Set(rate, scope); err != nil {
		return err
	}
	return a.sites.Set(model.Rate{Events: site * rate.Events, Per: rate.Per}, scope)
}

// Rate is the rate in force for an IPv4 address or a /64.
func (a *Addresses) Rate() model.Rate {
	if a == nil {
		return model.Rate{}
	}
	return a.networks.Rate()
}

// Take is that of a Limiter.
func (a *Addresses) Take(ctx context.Context, address netip.Addr) time.Duration {
	if a == nil {
		return 0
	}
	if wait := a.networks.Take(ctx, Network(address)); wait > 0 || address.Is4() || address.Is4In6() {
		return wait
	}
	wide, _ := address.WithZone("").Prefix(48)
	return a.sites.Take(ctx, wide.String())
}

// Network is the part of an address that shares a limit: an IPv4 address, or a /64.
func Network(address netip.Addr) string {
	if address = address.Unmap(); address.Is4() || !address.IsValid() {
		return address.String()
	}
	narrow, _ := address.WithZone("").Prefix(64)
	return narrow.String()
}
