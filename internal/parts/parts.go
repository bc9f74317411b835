// Package parts starts and stops what a process is made of. Parts stop in the opposite order of their start, so that a
// part ends before what it needs, each within its own patience, and all of them within a limit.
package parts

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// Parts are what has started. One goroutine uses them.
type Parts struct {
	closers []part // closed last first
	log     *slog.Logger
}

// part is how one part ends; it should be done when ctx ends.
type part struct {
	name  string
	close func(ctx context.Context) error
}

// New makes parts of nothing yet.
func New(log *slog.Logger) *Parts { return &Parts{log: log} }

// OnClose remembers how a part is closed. The last part is closed first. An error is logged, and fails nothing.
func (p *Parts) OnClose(name string, f func(ctx context.Context) error) {
	p.closers = append(p.closers, part{name: name, close: f})
}

// OnCloseWithin remembers a part that closes without an error, within patience.
func (p *Parts) OnCloseWithin(patience time.Duration, name string, f func(ctx context.Context)) {
	p.OnClose(name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		f(ctx)
		return nil
	})
}

// Background runs something until the stop, which ends its context and waits for it as long as patience says.
func (p *Parts) Background(name string, patience time.Duration, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	p.OnClose(name, func(ctx context.Context) error {
		cancel()
		patient, enough := context.WithTimeout(ctx, patience)
		defer enough()
		select {
		case err := <-done:
			return err
		case <-patient.Done():
			p.log.WarnContext(ctx, "left behind at the stop", slog.String("part", name))
			return nil
		}
	})
}

// Loop is a Background that cannot fail.
func (p *Parts) Loop(name string, patience time.Duration, run func(ctx context.Context)) {
	p.Background(name, patience, Infallible(run))
}

// Infallible makes a background of what cannot fail.
func Infallible(run func(ctx context.Context)) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}

// Close ends every part, each after those that need it, within a limit.
func (p *Parts) Close(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for _, c := range slices.Backward(p.closers) {
		done := make(chan error, 1)
		go func() { done <- c.close(ctx) }()
		select {
		case err := <-done:
			if err != nil {
				p.log.WarnContext(ctx, "did not close well at the stop; nothing is lost by it",
					slog.String("part", c.name), slog.Any("error", err))
			}
		case <-ctx.Done():
			p.log.WarnContext(ctx, "left as it is at the stop: it hangs", slog.String("part", c.name))
		}
	}
	p.closers = nil
}
