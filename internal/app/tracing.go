package app

import (
	"context"
	"log/slog"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/internal/tracing"
)

// openTracing begins to trace where the settings ask for it. Where they do not there is no tracer, which every part takes
// for one that records nothing.
func (i *Instance) openTracing(ctx context.Context) (err error) {
	metrics := telemetry.NewTracing(i.registry)
	if !i.cfg.Tracing.On {
		return nil
	}
	tracing.LogTo(i.log)
	i.tracer, err = tracing.Start(ctx, tracing.Options{
		Ratio: i.cfg.Tracing.Ratio, ParentBased: i.cfg.Tracing.ParentBased, Metrics: metrics, Log: i.log,
	})
	if err != nil {
		return err
	}
	i.parts.OnCloseWithin(budget.Brief, "tracing", i.tracer.Stop)
	i.log.InfoContext(ctx, "requests are traced", slog.Float64("ratio", i.cfg.Tracing.Ratio))
	return nil
}
