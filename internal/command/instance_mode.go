package command

import (
	"context"
	"fmt"
	"time"

	"seckill/config"
	"seckill/model"
	"seckill/repository"
	"seckill/service"
)

// modePatience: a reading that was canceled ends at once.
const modePatience = 500 * time.Millisecond

// orderMode is how the database is sold from, as this instance knows it.
type orderMode struct {
	modes      *repository.Modes
	deployment string
	guard      seller
	redis      *redisClaim // nil where no other instance can have another Redis
}

// openMode adopts this instance's order mode on a database without vouchers,
// and watches from then on that the database has it.
func (i *Instance) openMode(ctx context.Context, cfg config.Config, s servers) (orderMode, error) {
	mine := model.OrderMode(cfg.OrderMode)
	m := orderMode{modes: repository.NewModes(s.db)}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	record, err := m.modes.Adopt(starting, mine)
	if err != nil && !cfg.Migrate {
		// The schema may be somebody else's to make yet. An instance in sync waits
		// for that and is not ready; one in async does not know its queue's name.
		if lacks := schemaProbe(s.db).Ask(starting); lacks != nil && mine == model.ModeAsync {
			return m, lacks
		}
	}
	if err != nil && (mine == model.ModeAsync || cfg.Migrate) {
		return m, fmt.Errorf("look at the order mode of the database: %w", err)
	}
	m.deployment = record.Deployment

	watch := service.NewModeWatcher(m.modes, mine, i.log)
	if err == nil {
		if err := watch.Refresh(starting); err != nil {
			return m, err
		}
	}
	i.background("order mode", modePatience, func(ctx context.Context) error { //nolint:contextcheck // until the stop
		watch.Run(ctx)
		return nil
	})
	i.probes = append(i.probes, service.Probe{Name: "order mode", Ask: watch.Probe})
	i.disagrees = watch.Probe
	m.guard = watch
	if mine == model.ModeAsync && !cfg.Embedded() {
		m.redis = i.claimRedis(starting, s)
		m.guard = agreedSeller{m.guard, m.redis}
	}
	if s.solitude != nil && mine == model.ModeAsync {
		m.guard = lonelySeller{m.guard, s.solitude}
	}
	return m, nil
}
