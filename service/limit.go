package service

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

// LimitDeps are what Limits works with; all are required.
type LimitDeps struct {
	Settings model.Limits // of this instance
	// Read and Store are of the limits that an administrator has set.
	Read  func(ctx context.Context) (model.LimitRecord, error)
	Store func(ctx context.Context, patch model.LimitsPatch) (model.LimitRecord, error)
	// Announce tells the other instances that limits were changed; it may fail.
	Announce func(ctx context.Context, deployment string) error
	// Apply puts limits into force on this instance. Deployment names those that count together.
	Apply func(limits model.Limits, deployment string)
	Log   *slog.Logger
}

// Limits are the rate limits of all instances: their settings, unless an administrator has set others.
type Limits struct {
	deps    LimitDeps
	trouble telemetry.Trouble

	mu      sync.Mutex // held while limits are read and applied, so that the latest win
	inForce atomic.Pointer[model.Limits]
}

// NewLimits puts the settings into force; Refresh and Run look at the database.
func NewLimits(deps LimitDeps) *Limits {
	l := &Limits{deps: deps}
	l.inForce.Store(&deps.Settings)
	deps.Apply(deps.Settings, "")
	return l
}

// InForce tells which limits this instance applies.
func (l *Limits) InForce() model.Limits { return *l.inForce.Load() }

// Change sets limits for all instances, and returns those in force. Others obey within a second.
func (l *Limits) Change(ctx context.Context, patch model.LimitsPatch) (model.Limits, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record, err := l.deps.Store(ctx, patch)
	if err != nil {
		return model.Limits{}, err
	}
	l.apply(ctx, record)
	if err := l.deps.Announce(ctx, record.Deployment); err != nil {
		l.deps.Log.WarnContext(ctx, "the other instances learn of the new rate limits a moment later",
			slog.Any("error", err))
	}
	return l.InForce(), nil
}

// Refresh looks at the database, and leaves the limits as they are when it does not answer.
func (l *Limits) Refresh(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record, err := l.deps.Read(ctx)
	if err == nil {
		l.apply(ctx, record)
	}
	if ctx.Err() == nil {
		l.trouble.Note(ctx, l.deps.Log, err, "rate limits stay as they are: they cannot be read",
			"rate limits can be read again")
	}
}

// Run looks at the database until ctx ends.
func (l *Limits) Run(ctx context.Context) { poll.Every(ctx, budget.Brief, func() { l.Refresh(ctx) }) }

func (l *Limits) apply(ctx context.Context, record model.LimitRecord) {
	limits := record.Set.Of(l.deps.Settings)
	l.deps.Apply(limits, record.Deployment)
	if limits != l.InForce() {
		l.deps.Log.InfoContext(ctx, "rate limits changed",
			slog.String("user", limits.User.String()), slog.String("addr", limits.Addr.String()))
		l.inForce.Store(&limits)
	}
}
