package app

import (
	"context"
	"log/slog"
	"net/http"

	"seckill/handler/console"
	"seckill/internal/version"
	"seckill/model"
)

// openConsole makes what people see in a browser; nil where the settings want none.
func (i *Instance) openConsole(options console.Options, async *AsyncParts) (http.Handler, error) {
	if !i.cfg.Console {
		return nil, nil //nolint:nilnil // none is what was asked for
	}
	if async != nil {
		options.Behind = behind{async}
	}
	options.Shop, options.Lab = i.cfg.Embedded(), i.cfg.Embedded()
	options.Health, options.Build, options.Mode, options.Currency = i.health, version.Read(), i.orderMode(), i.cfg.Currency
	options.Log = i.log.With(slog.String("part", "console"))
	people, err := console.New(options)
	if err != nil {
		return nil, err
	}
	i.parts.Loop("the charts of sales", lookPatience, people.Record)
	return people, nil
}

// behind is the console's view of what works behind asynchronous orders.
type behind struct{ parts *AsyncParts }

// Repair is the auditor's.
func (b behind) Repair(ctx context.Context, voucherID, adminID string) (model.Audit, error) {
	return b.parts.Auditor.Repair(ctx, voucherID, adminID)
}

// DeadLetters is the queue's.
func (b behind) DeadLetters(ctx context.Context, yield func(model.DeadLetter) error) error {
	return b.parts.Queue.DeadLetters(ctx, yield)
}

// DeadLetter is the queue's.
func (b behind) DeadLetter(ctx context.Context, sequence uint64) (model.DeadLetter, error) {
	return b.parts.Queue.DeadLetter(ctx, sequence)
}

// Drop is the replayer's.
func (b behind) Drop(ctx context.Context, sequence uint64, adminID string) error {
	return b.parts.Replayer.Drop(ctx, sequence, adminID)
}

// Replay is the replayer's.
func (b behind) Replay(ctx context.Context, sequence uint64, adminID string) (model.Reservation, error) {
	return b.parts.Replayer.Replay(ctx, sequence, adminID)
}
