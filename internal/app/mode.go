package app

import (
	"context"

	"seckill/internal/budget"
	"seckill/internal/redisdb"
	"seckill/model"
	"seckill/repository"
	"seckill/service/guard"
)

// orderMode is how the database is sold from, as this instance knows it.
type orderMode struct {
	deployment string
	guard      guard.Guards
	redis      *guard.Redis // nil where no other instance can have another Redis
}

// openMode adopts this instance's order mode on a database without vouchers,
// and watches from then on that the database has it.
func (i *Instance) openMode(ctx context.Context, s servers) (orderMode, error) {
	async := i.cfg.Async()
	starting, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	watch := guard.NewMode(s.db.Modes.Read, i.orderMode(), i.log)
	lacks := s.db.SchemaProbe()
	if i.cfg.Migrate {
		lacks = nil
	}
	deployment, err := watch.Adopt(starting, s.db.Modes.Adopt, lacks)
	if err != nil {
		return orderMode{}, err
	}
	i.parts.Loop("order mode", budget.Brief, watch.Run) //nolint:contextcheck // until the stop
	i.probe("order mode", watch.Probe)
	i.disagrees = watch.Probe
	m := orderMode{deployment: deployment, guard: guard.Guards{watch}}
	if async {
		if !i.cfg.Embedded() {
			m.redis = i.claimRedis(starting, s)
		}
		m.guard = guard.Guards{s.sole, m.redis, watch}
	}
	return m, nil
}

// orderMode is the mode that the settings ask for.
func (i *Instance) orderMode() model.OrderMode { return model.OrderMode(i.cfg.OrderMode) }

// claimDatabase makes this instance the only one on its database, if it needs
// to be; else it returns nil.
func (i *Instance) claimDatabase(db *Database) *guard.Sole {
	lacks := i.cfg.LacksForSeveral()
	if lacks == "" {
		return nil
	}
	claim := db.Exclusive("embedded")
	i.parts.OnClose("claim on the database", func(context.Context) error { return claim.Close() })
	sole := guard.NewSole(claim, lacks)
	i.probe("instance", sole.Probe)
	i.parts.Loop("solitude", budget.Look, sole.Run) // in sync too: expiry awaits it
	return sole
}

// guardRedis guards that this process uses the Redis of its database.
func (i *Instance) guardRedis(s servers) *guard.Redis {
	identity := func(ctx context.Context) (string, error) {
		if s.incarnation != "" {
			return guard.Embedded + s.incarnation, nil
		}
		return redisdb.Identity(ctx, s.redis)
	}
	return guard.NewRedis(repository.NewRedisClaims(s.db.Database), identity, s.sole, i.log)
}

// claimRedis looks from now on whether this instance uses the Redis of its database.
func (i *Instance) claimRedis(ctx context.Context, s servers) *guard.Redis {
	r := i.guardRedis(s)
	_ = r.Look(ctx) // the next look repeats what failed
	i.probe("redis of the database", func(context.Context) error { return r.Selling() })
	i.parts.Loop("claim for Redis", budget.Look, r.Run) //nolint:contextcheck // until the stop
	return r
}
