package lock

import (
	"context"
	"errors"
	"fmt"
)

// Do takes the lock of that name, does the work, and gives the lock back, also when the
// work panics. The work's context ends with ctx, and with the cause ErrLost when the lock
// is lost; the lock is held until the work has returned. The error is that of Lock, or
// those of the work and of Unlock.
func (c *Client) Do(ctx context.Context, name string, work func(ctx context.Context) error, opts ...Option) (err error) {
	ctx, _ = withOwner(ctx)
	lease, err := c.Mutex(name).Lock(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Unlock()) }() //nolint:contextcheck // an unlock bounds itself
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	lease.notify(end)
	return work(ctx)
}

// Campaign is for work that one process does at a time. It waits until it leads, which is
// to hold the lock of that name, and calls lead. When it no longer leads it ends lead's
// context, waits for lead, and campaigns again. It returns when lead does so by itself, with
// its error, and otherwise with the cause of ctx, ErrClosed or ErrRefused. Client.Holder
// tells who leads.
func (c *Client) Campaign(ctx context.Context, name string, lead func(ctx context.Context) error) error {
	for {
		var led, lost bool
		err := c.Do(ctx, name, func(leading context.Context) error {
			err := lead(leading)
			led, lost = true, leading.Err() != nil && ctx.Err() == nil
			return err
		})
		if led && !lost || !led && (errors.Is(err, ErrClosed) || errors.Is(err, ErrRefused)) {
			return err
		}
		if !led && !sleep(ctx, maxRetryPause) || ctx.Err() != nil {
			return fmt.Errorf("campaign for %s: %w", name, context.Cause(ctx))
		}
	}
}
