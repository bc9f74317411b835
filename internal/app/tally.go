package app

import (
	"context"
	"time"

	"seckill/internal/ids"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/repository/hotcopy"
)

// tellEvery is between two writings of what this instance has counted: people see it within this and half a second.
const tellEvery = time.Second

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
