package app

import (
	"context"
	"log/slog"

	"seckill/handler"
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
		Name: "operations", Address: i.cfg.OpsAddr, Patience: opsPatience,
		Handler: listener.KnownHosts(handler.NewOperations(i.registry), i.cfg.OpsAddr),
		Guard: conns.New(conns.Options{
			Name: "operations", Max: opsConnections, PerNetwork: opsConnections, Metrics: i.registry, Log: i.log,
		}),
	})
	if err != nil {
		return err
	}
	public, err := i.ops.PublicAddresses()
	if err != nil {
		i.log.DebugContext(ctx, "the addresses of this machine are not known", slog.Any("error", err))
	}
	if len(public) > 0 {
		i.log.WarnContext(ctx, "the operations listener can be reached at a public address, and anybody who reaches it "+
			"reads metrics and profiles: set SECKILL_OPS_ADDR to an address of the inner network",
			slog.String("listens", i.ops.Addr().String()), slog.Any("public", public))
	}
	return nil
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
