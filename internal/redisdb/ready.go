package redisdb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/model"
)

const (
	// readyKey begins the names of the keys that a look writes.
	readyKey = "seckill:v1:ready:"
	// rideOut is how long Sentinels may take to find a new primary while the instance stays ready: they need the
	// silence that they wait for (5 s in deployments/engines), and a few seconds to agree. Requests hear 503 meanwhile,
	// with Retry-After. If no instance were ready the load balancer would answer instead, and say less.
	rideOut = 3 * budget.Answer
)

// Readiness tells whether a Redis can be sold from: whether a primary takes a write. It is safe for concurrent use.
type Readiness struct {
	client  redis.UniversalClient
	elected bool // Sentinels find a new primary

	mu   sync.Mutex
	well time.Time // when a primary was found the last time
}

// NewReadiness looks over the client given.
func NewReadiness(client redis.UniversalClient) *Readiness {
	one, ok := client.(*redis.Client)
	return &Readiness{client: client, elected: ok && one.Options().Addr == failoverAddress}
}

// failoverAddress stands for the address of a client that asks Sentinels.
const failoverAddress = "FailoverClient"

// Probe is UNAVAILABLE when nothing can be sold. A Cluster in which a primary is lost sells on what lies on the others.
func (r *Readiness) Probe(ctx context.Context) error {
	err := r.write(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.well = time.Now()
		return nil
	}
	if r.elected && time.Since(r.well) < rideOut {
		return nil
	}
	return model.Unavailable("no primary of Redis takes a write", err)
}

// write writes to every primary; nil when one of them has taken it.
func (r *Readiness) write(ctx context.Context) error {
	key := func(n int) string { return fmt.Sprintf("%s{%d}", readyKey, n) }
	spots, err := Spots(ctx, r.client, key)
	if err != nil {
		return err
	}
	answers := make(chan error, len(spots))
	for _, n := range spots {
		go func() { answers <- r.client.Set(ctx, key(n), "", budget.Step).Err() }()
	}
	var failed []error
	for range spots {
		err := <-answers
		if err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	return errors.Join(append(failed, ctx.Err())...)
}
