package service

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// tellEvery is how often an instance publishes its counts. Pages show them at most half a second later.
	tellEvery = time.Second
	// storeEvery is how often an instance stores its counts in the database: a killed instance loses those of 10 s. With very
	// many vouchers the pauses grow, so that storing takes at most one storeShare-th of the time.
	storeEvery = 10 * time.Second
	storeShare = 100
)

// Tallies tells the other instances what this one counts, so that each can show the sum, and stores it for the reports of sales.
type Tallies struct {
	Counted *telemetry.Tallies
	Publish func(ctx context.Context, tallies map[string]model.Tally) error
	Keep    func(ctx context.Context, counted map[string]model.Counted) error
	Log     *slog.Logger

	unstored map[string]model.Counted
	lacks    telemetry.Trouble // of the database
}

// Share publishes what this instance counts until ctx ends.
func (t *Tallies) Share(ctx context.Context) {
	var trouble telemetry.Trouble
	poll.Every(ctx, tellEvery, func() {
		if changed := t.Counted.Changed(); len(changed) > 0 {
			trouble.Note(ctx, t.Log, t.Publish(ctx, changed), "what this instance counts cannot be shared: charts lack it", "what this instance counts is shared again")
		}
	})
}

// Run stores what this instance counts until ctx ends.
func (t *Tallies) Run(ctx context.Context) {
	for pause := storeEvery; ; {
		poll.Pause(ctx, pause)
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		t.Store(ctx)
		pause = max(storeEvery, storeShare*time.Since(began))
	}
}

// Store stores what is not stored yet: also at the stop, when Run has ended and nobody asks this instance any more.
func (t *Tallies) Store(ctx context.Context) {
	if t.unstored == nil {
		t.unstored = map[string]model.Counted{}
	}
	maps.Copy(t.unstored, t.Counted.Unstored())
	err := t.Keep(ctx, t.unstored)
	if err == nil {
		clear(t.unstored)
	}
	t.lacks.Note(ctx, t.Log, err, "what this instance counts cannot be stored: reports lack it", "what this instance counts is stored again")
}
