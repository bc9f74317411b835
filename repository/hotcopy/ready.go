package hotcopy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/model"
)

const (
	// readyKey begins the names of the keys that a look writes.
	readyKey = "seckill:v1:ready:"
	// readyKept is how long they are kept.
	readyKept = 10 * time.Second
	// readyTimeout bounds a look: a health check waits a second.
	readyTimeout = 900 * time.Millisecond
	// readyAge is how old an answer may be: however many ask, there are ten looks a second at the most.
	readyAge = 100 * time.Millisecond
	// rideOut is how long Sentinels may take to find a new primary while the instance
	// stays ready: they need the silence that they wait for (5 s in deployments/engines),
	// and a few seconds to agree. Requests hear 503 meanwhile, with Retry-After. If no
	// instance were ready the load balancer would answer instead, and say less.
	rideOut = 15 * time.Second
)

// Readiness tells whether a Redis can be sold from: whether a primary takes a write. It
// is safe for concurrent use. Everybody who asks at the same time shares one look.
type Readiness struct {
	client  redis.UniversalClient
	elected bool // Sentinels find a new primary

	mu      sync.Mutex
	looking *readyLook // the latest
	well    time.Time  // the latest look that found a primary
}

type readyLook struct {
	done  chan struct{}
	ended time.Time // this and err are valid once done is closed
	err   error
}

// NewReadiness looks over the client given.
func NewReadiness(client redis.UniversalClient) *Readiness {
	one, ok := client.(*redis.Client)
	return &Readiness{client: client, elected: ok && one.Options().Addr == failoverAddress}
}

// failoverAddress stands for the address of a client that asks Sentinels.
const failoverAddress = "FailoverClient"

// Probe is UNAVAILABLE when nothing can be sold. A Cluster in which a primary is lost
// sells on what lies on the others.
func (r *Readiness) Probe(ctx context.Context) error {
	look := r.share() //nolint:contextcheck // callers share it
	select {
	case <-look.done:
		return look.err
	case <-ctx.Done():
		return model.Unavailable("Redis does not answer.", ctx.Err())
	}
}

// share begins a look unless one is under way, or has just ended.
func (r *Readiness) share() *readyLook {
	r.mu.Lock()
	defer r.mu.Unlock()
	if look := r.looking; look != nil {
		select {
		case <-look.done:
			if time.Since(look.ended) < readyAge {
				return look
			}
		default:
			return look
		}
	}
	look := &readyLook{done: make(chan struct{})}
	r.looking = look
	go r.look(look)
	return look
}

func (r *Readiness) look(look *readyLook) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	err := r.write(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	look.ended = time.Now()
	if err == nil {
		r.well = look.ended
	} else if !r.elected || look.ended.Sub(r.well) > rideOut {
		look.err = model.Unavailable("no primary of Redis takes a write", err)
	}
	close(look.done)
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
		go func() { answers <- r.client.Set(ctx, key(n), "", readyKept).Err() }()
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
