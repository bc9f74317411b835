package app

import (
	"context"

	"seckill/config"
	"seckill/internal/telemetry"
	"seckill/repository/hotcopy"
	"seckill/service/repair"
)

// openDraws makes what draws, in both order modes; nil where this instance only serves.
func (i *Instance) openDraws(s servers) *repair.Draws {
	if i.cfg.Role == config.RoleAPI {
		return nil
	}
	return &repair.Draws{
		Store: s.db.Draws, Announce: hotcopy.NewVoucherChanges(s.redis).Announce, Metrics: telemetry.NewDraws(i.registry), Log: i.log,
	}
}

// runDraws draws until the stop. The election is that of expiry, by another name.
func (i *Instance) runDraws(s servers, mode orderMode, draws *repair.Draws) {
	if draws == nil {
		return
	}
	locks := i.lockOptions(s).InRedis(reconcilerLease)
	i.parts.Loop("draws", workPatience, func(ctx context.Context) {
		s.sole.Await(ctx)
		draws.Run(ctx, locks, mode.deployment)
	})
}
