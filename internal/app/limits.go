package app

import (
	"context"

	"seckill/internal/budget"
	"seckill/internal/ratelimit"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/service"
)

// rates are the limits of the main listener.
type rates struct {
	service   *service.Limits
	byUser    *ratelimit.Limiter
	byAddress *ratelimit.Addresses
}

// openLimits puts the rate limits into force. With a real Redis all instances share
// them; the embedded one is inside this process, and slower than counting alone.
func (i *Instance) openLimits(s servers) (r rates, err error) {
	stored := hotcopy.NewLimits(s.redis)
	var shared *ratelimit.Shared
	if i.cfg.RedisURL != "" {
		shared = ratelimit.NewShared(stored.Take, i.registry, i.log)
		i.parts.OnCloseWithin(budget.Brief, "shared limits", shared.Close)
	}
	r.byUser, r.byAddress = ratelimit.New("user", 0, shared), ratelimit.NewAddresses(shared)
	kept := repository.NewLimits(s.db.Database)
	r.service, err = service.NewLimits(service.LimitDeps{
		Settings: model.Limits{User: i.cfg.RateUser, Addr: i.cfg.RateAddr},
		Read:     kept.Read,
		Store:    kept.Change,
		Announce: stored.Announce,
		Apply: func(limits model.Limits, deployment string) error {
			if err := r.byUser.Set(limits.User, deployment); err != nil {
				return err
			}
			return r.byAddress.Set(limits.Addr, deployment)
		},
		Log: i.log,
	})
	if err != nil {
		return r, err
	}
	starting, cancel := context.WithTimeout(context.Background(), budget.Step)
	defer cancel()
	r.service.Refresh(starting)
	i.parts.Loop("rate limits", budget.Brief, r.service.Run)
	i.parts.Loop("changes of rate limits", budget.Brief, func(ctx context.Context) {
		refresh := func() { r.service.Refresh(ctx) }
		stored.Watch(ctx, func(string) { refresh() }, refresh)
	})
	return r, nil
}
