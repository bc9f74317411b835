package app

import (
	"context"
	"fmt"

	"seckill/model"
	"seckill/service/worker"
)

// orderMode is how the database is sold from, as this instance knows it.
type orderMode struct {
	deployment string
	guard      guards
	redis      *redisClaim // nil where no other instance can have another Redis
}

// guards tell whether this instance may sell now: the first one that refuses
// gives the reason.
type guards []interface{ Selling() error }

// Selling is nil, or says why this instance may not sell now.
func (g guards) Selling() error {
	for _, guard := range g {
		if err := guard.Selling(); err != nil {
			return err
		}
	}
	return nil
}

// openMode adopts this instance's order mode on a database without vouchers,
// and watches from then on that the database has it.
func (i *Instance) openMode(ctx context.Context, s servers) (orderMode, error) {
	async := i.cfg.Async()
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	record, err := s.db.Modes.Adopt(starting, i.orderMode())
	if err != nil && !i.cfg.Migrate {
		// Another process may have yet to make the schema. An instance in sync waits
		// for that and is not ready; one in async does not know its queue's name.
		if lacks := schemaProbe(s.db)(starting); lacks != nil && async {
			return orderMode{}, lacks
		}
	}
	if err != nil && (async || i.cfg.Migrate) {
		return orderMode{}, fmt.Errorf("look at the order mode of the database: %w", err)
	}

	watch := worker.NewModeWatcher(s.db.Modes.Read, i.orderMode(), i.log)
	if err == nil {
		if err := watch.Refresh(starting); err != nil {
			return orderMode{}, err
		}
	}
	i.loop("order mode", lookPatience, watch.Run) //nolint:contextcheck // until the stop
	i.probe("order mode", watch.Probe)
	i.disagrees = watch.Probe
	m := orderMode{deployment: record.Deployment, guard: guards{watch}}
	if async {
		if !i.cfg.Embedded() {
			m.redis = i.claimRedis(starting, s)
		}
		m.guard = guards{s.sole, m.redis, watch}
	}
	return m, nil
}

// orderMode is the mode that the settings ask for.
func (i *Instance) orderMode() model.OrderMode { return model.OrderMode(i.cfg.OrderMode) }
