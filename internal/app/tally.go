package app

import (
	"context"
	"maps"
	"time"

	"seckill/internal/ids"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/hotcopy"
)

const (
	// tellEvery is between two writings of what this instance has counted: people see it within this and half a second.
	tellEvery = time.Second
	// storeEvery is between two writings of it to the database, which last: a killed instance loses so much. Where there are
	// very many vouchers, storeShare is the share of the time that they may take: a hundredth.
	storeEvery = 10 * time.Second
	storeShare = 100
)

// shareTallies tells the other instances what this one counts, so that each can show the sum.
func (i *Instance) shareTallies(s servers, mode orderMode, counted *telemetry.Tallies) (*hotcopy.Tallies, error) {
	id, err := ids.New()
	if err != nil {
		return nil, err
	}
	tallies := hotcopy.NewTallies(s.redis, i.deployment(s, mode), id)
	var trouble telemetry.Trouble
	i.parts.Loop("tallies", lookPatience, func(ctx context.Context) {
		poll.Every(ctx, tellEvery, func() {
			if changed := counted.Changed(); len(changed) > 0 {
				trouble.Note(ctx, i.log, tallies.Publish(ctx, changed), "what this instance counts cannot be shared: charts lack it", "what this instance counts is shared again")
			}
		})
	})
	return tallies, nil
}

// storeAnswers stores what this instance counts, for the reports of sales: again and again, and at the stop, when nobody
// asks it any more.
func (i *Instance) storeAnswers(answers *repository.Answers, counted *telemetry.Tallies) error {
	process, err := ids.New()
	if err != nil {
		return err
	}
	var trouble telemetry.Trouble
	unstored := map[string]model.Counted{}
	store := func(ctx context.Context) {
		maps.Copy(unstored, counted.Unstored())
		err := answers.Store(ctx, process, unstored)
		if err == nil {
			clear(unstored)
		}
		trouble.Note(ctx, i.log, err, "what this instance counts cannot be stored: reports lack it", "what this instance counts is stored again")
	}
	i.parts.OnCloseWithin(lookPatience, "answers", store)
	i.parts.Loop("answers", lookPatience, func(ctx context.Context) {
		for pause := storeEvery; ; {
			poll.Pause(ctx, pause)
			if ctx.Err() != nil {
				return
			}
			began := time.Now()
			store(ctx)
			pause = max(storeEvery, storeShare*time.Since(began))
		}
	})
	return nil
}
