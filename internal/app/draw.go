package app

import (
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

// runDraws draws until the stop.
func (i *Instance) runDraws(s servers, mode orderMode, draws *repair.Draws) {
	if draws != nil {
		i.runElected(s, mode, "draws", draws.Run)
	}
}
