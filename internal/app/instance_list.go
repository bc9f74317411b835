package app

import (
	"context"
	"strings"

	"seckill/internal/budget"
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

// signIn gives signs of life until the stop, with what this instance sees.
func (i *Instance) signIn(list *hotcopy.Instances, async *AsyncParts) error {
	id, err := ids.New()
	if err != nil {
		return err
	}
	self := model.Instance{ID: id, Name: i.main.OnMachine(), Role: string(i.cfg.Role), Mode: i.orderMode(), Version: version.Read().Version}
	i.parts.Loop("signs of life", budget.Brief, func(ctx context.Context) {
		list.Sign(ctx, self, func(ctx context.Context, self *model.Instance) { i.see(ctx, self, async) })
	})
	return nil
}

// maxDrifted bounds the vouchers that a sign names.
const maxDrifted = 20

func (i *Instance) see(ctx context.Context, self *model.Instance, async *AsyncParts) {
	var unready []string
	for _, check := range i.health.Check(ctx) {
		if check.Err != nil && !i.health.Leaving() { // one that is told to stop is well
			unready = append(unready, check.Name)
		}
	}
	self.Unready, self.Drifted = strings.Join(unready, ","), ""
	if async != nil {
		drifted := async.parts.Metrics.Drift.IDs()
		self.Drifted = strings.Join(drifted[:min(len(drifted), maxDrifted)], ",")
	}
}
