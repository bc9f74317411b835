package app

import (
	"context"

	"seckill/handler"
	"seckill/internal/budget"
	"seckill/internal/conns"
	"seckill/internal/listener"
	"seckill/internal/telemetry"
)

// opsConnections is enough for some scrapers and profiles.
const opsConnections = 100

// listenForOperations opens the operations listener. It has no authentication: every
// client that reaches it may read the metrics and make the process write profiles.
func (i *Instance) listenForOperations(ctx context.Context) (err error) {
	i.registry.MustRegister(telemetry.NewChecks(i.checks))
	i.ops, err = i.listen(ctx, listener.Options{
		Name: "operations", Address: i.cfg.OpsAddr, Patience: budget.Blink,
		Handler: listener.KnownHosts(handler.NewOperations(i.registry), i.cfg.OpsAddr),
		Guard: conns.New(conns.Options{
			Name: "operations", Max: opsConnections, PerNetwork: opsConnections, Metrics: i.registry, Log: i.log,
		}),
	})
	if err == nil {
		i.ops.AdviseInner(ctx)
	}
	return err
}

// listen serves until the stop. That a listener ends before ends the instance.
func (i *Instance) listen(ctx context.Context, o listener.Options) (*listener.Listener, error) {
	o.Log, o.Failed = i.log, func(err error) { i.failed <- err }
	l, err := listener.Open(ctx, o)
	if err == nil {
		i.parts.OnClose(o.Name+" listener", l.Stop)
	}
	return l, err
}

// checks asks every readiness check.
func (i *Instance) checks() map[string]error {
	all := make(map[string]error)
	for _, check := range i.health.Check(context.Background()) {
		all[check.Name] = check.Err
	}
	return all
}
