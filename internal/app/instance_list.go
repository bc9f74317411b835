package app

import (
	"context"

	"seckill/internal/ids"
	"seckill/internal/version"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// openInstances makes the list of the instances that are alive. This one is in it from the
// moment it listens.
func (i *Instance) openInstances(s servers, mode orderMode) *hotcopy.Instances {
	return hotcopy.NewInstances(s.redis, i.deployment(s, mode))
}

// deployment tells the name that the instances of a deployment have in common.
func (*Instance) deployment(s servers, mode orderMode) func(ctx context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if mode.deployment != "" {
			return mode.deployment, nil
		}
		record, err := s.db.Modes.Read(ctx) // it was not known at the start: there was no schema
		return record.Deployment, err
	}
}

// signIn gives signs of life until the stop.
func (i *Instance) signIn(list *hotcopy.Instances) error {
	id, err := ids.New()
	if err != nil {
		return err
	}
	self := model.Instance{ID: id, Name: i.main.OnMachine(), Role: string(i.cfg.Role), Mode: i.orderMode(), Version: version.Read().Version}
	i.parts.Loop("signs of life", lookPatience, func(ctx context.Context) { list.Sign(ctx, self) })
	return nil
}
