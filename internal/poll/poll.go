// Package poll looks at something again and again.
package poll

import (
	"context"
	"time"

	"seckill/internal/backoff"
)

// Every calls look at each tick until ctx ends.
func Every(ctx context.Context, period time.Duration, look func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			look()
		case <-ctx.Done():
			return
		}
	}
}

// Until calls look at once and at each tick until it is done or fails. It returns look's error, or ctx's.
func Until(ctx context.Context, period time.Duration, look func() (done bool, err error)) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Insist calls do until it is done, with pauses that double, until ctx ends. It returns do's last error.
func Insist(ctx context.Context, shortest, longest time.Duration, do func() (done bool, err error)) (err error) {
	for n := 0; ; n++ {
		done, failed := do()
		if done || err == nil || ctx.Err() == nil {
			err = failed
		}
		if !done {
			Pause(ctx, backoff.Doubled(shortest, longest, n))
		}
		if done || ctx.Err() != nil {
			return err
		}
	}
}

// Wake has whoever waits for a signal look again. Nobody waits for room in the channel.
func Wake(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// Pause waits, but not beyond the end of ctx.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
