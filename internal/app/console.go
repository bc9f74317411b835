package app

import (
	"log/slog"
	"net/http"

	"seckill/handler/console"
	"seckill/internal/budget"
	"seckill/internal/version"
	"seckill/queue"
	"seckill/service/repair"
)

// openConsole makes what people see in a browser; nil where the settings want none.
func (i *Instance) openConsole(options console.Options, async *AsyncParts) (http.Handler, error) {
	if !i.cfg.Console {
		return nil, nil //nolint:nilnil // none is what was asked for
	}
	if async != nil {
		options.Behind = behind{async.Auditor, async.Replayer, async.Queue}
	}
	options.Shop = i.cfg.Embedded()
	options.Health, options.Build, options.Mode, options.Currency = i.health, version.Read(), i.orderMode(), i.cfg.Currency
	options.Log = i.log.With(slog.String("part", "console"))
	people, err := console.New(options)
	if err != nil {
		return nil, err
	}
	i.parts.Loop("the charts of sales", budget.Brief, people.Record)
	return people, nil
}

// behind is the console's view of what works behind asynchronous orders.
type behind struct {
	*repair.Auditor
	*repair.Replayer
	*queue.Queue
}
