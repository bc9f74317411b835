// Package poll looks at something again and again.
package poll

import (
	"context"
	"time"
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

// Until calls look at once and then at each tick until it is done or fails. It
// returns look's error, or that of ctx when it ends first.
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

// Insist calls do at once and then at each tick until it is done, at most until ctx ends. It returns what do failed of, and not
// that time was up.
func Insist(ctx context.Context, period time.Duration, do func() (done bool, err error)) error {
	var last error
	_ = Until(ctx, period, func() (bool, error) {
		done, err := do()
		if done || last == nil || ctx.Err() == nil {
			last = err
		}
		return done, nil
	})
	return last
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
