package app

import (
	"context"

	"seckill/config"
	"seckill/internal/telemetry"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/service/repair"
)

// expiryStore is the database as expiry asks it.
type expiryStore struct {
	*repository.Orders
	*repository.Payments
}

// openExpiry makes what expires orders, in both order modes; nil where this instance only serves.
func (i *Instance) openExpiry(s servers, provider repair.Provider) *repair.Expiry {
	if i.cfg.Role == config.RoleAPI {
		return nil
	}
	return &repair.Expiry{
		Store: expiryStore{s.db.Orders, s.db.Payments}, Provider: provider,
		Announce: hotcopy.NewVoucherChanges(s.redis).AnnounceReturn, Metrics: telemetry.NewExpiry(i.registry), Log: i.log,
	}
}

// runExpiry expires orders until the stop.
func (i *Instance) runExpiry(s servers, mode orderMode, expiry *repair.Expiry) {
	if expiry != nil {
		i.runElected(s, mode, "expiry", expiry.Run)
	}
}

// runElected does until the stop what one of all instances does. The election is beside the hot copies, whatever the
// users' locks are.
func (i *Instance) runElected(s servers, mode orderMode, name string, run func(ctx context.Context, locks model.Locker, deployment string)) {
	locks := i.lockOptions(s).InRedis(reconcilerLease)
	i.parts.Loop(name, workPatience, func(ctx context.Context) {
		s.sole.Await(ctx)
		run(ctx, locks, mode.deployment)
	})
}
