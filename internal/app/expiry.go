package app

import (
	"context"

	"seckill/config"
	"seckill/internal/telemetry"
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

// runExpiry expires orders until the stop. The election is beside the hot copies, whatever
// the users' locks are.
func (i *Instance) runExpiry(s servers, mode orderMode, expiry *repair.Expiry) {
	if expiry == nil {
		return
	}
	locks := i.lockOptions(s).InRedis(reconcilerLease)
	i.parts.Loop("expiry", workPatience, func(ctx context.Context) {
		s.sole.Await(ctx)
		expiry.Run(ctx, locks, mode.deployment)
	})
}
