package handler

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"seckill/model"
)

// maxTracked bounds how many senders one limiter remembers: some 20 MB at the most.
// It forgets the sender that was quiet longest first. That sender starts with a full
// bucket again.
const maxTracked = 100_000

// Rate allows Events in every Per, all of them at once if need be. Zero Events
// or a zero Per mean no limit.
type Rate struct {
	Events int
	Per    time.Duration
}

// limiter gives every sender a token bucket of its own.
type limiter struct {
	limit   rate.Limit // events a second
	burst   int
	buckets *lru.Cache[string, *rate.Limiter] // nil: no limit
}

func newLimiter(r Rate) (*limiter, error) {
	if r.Events <= 0 || r.Per <= 0 {
		return &limiter{}, nil
	}
	buckets, err := lru.New[string, *rate.Limiter](maxTracked)
	if err != nil {
		return nil, fmt.Errorf("make a rate limiter: %w", err)
	}
	return &limiter{
		limit:   rate.Limit(float64(r.Events) / r.Per.Seconds()),
		burst:   r.Events,
		buckets: buckets,
	}, nil
}

// off reports whether everything is allowed.
func (l *limiter) off() bool { return l.buckets == nil }

// take takes a sender's token. When there is none it tells how long until
// there will be; zero means taken.
func (l *limiter) take(sender string, now time.Time) time.Duration {
	if l.off() {
		return 0
	}
	bucket, ok := l.buckets.Get(sender)
	if !ok {
		bucket = rate.NewLimiter(l.limit, l.burst)
		if earlier, there, _ := l.buckets.PeekOrAdd(sender, bucket); there {
			bucket = earlier // another request of the same sender was first
		}
	}
	if bucket.AllowN(now, 1) {
		return 0
	}
	missing := 1 - bucket.TokensAt(now)
	return max(time.Duration(missing/float64(l.limit)*float64(time.Second)), time.Millisecond)
}

// limitPlacing refuses a purchase whose address or user is over its limit.
func (a *api) limitPlacing(c *gin.Context, userID string) error {
	now := time.Now()
	if !a.byAddress.off() {
		if wait := a.byAddress.take(network(c.ClientIP()), now); wait > 0 {
			return rateLimited("Too many requests from this address.", wait)
		}
	}
	if wait := a.byUser.take(userID, now); wait > 0 {
		return rateLimited("Too many requests of this user.", wait)
	}
	return nil
}

func rateLimited(detail string, wait time.Duration) error {
	return &model.Error{Code: model.CodeRateLimited, Detail: detail, RetryAfter: wait}
}

// network is the network that shares an address' limit. With IPv6 that is a /64: one
// subscriber has that many addresses at the least, and could use another for every
// request.
func network(address string) string {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if addr = addr.Unmap(); addr.Is4() {
		return addr.String()
	}
	prefix, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return address
	}
	return prefix.String()
}
