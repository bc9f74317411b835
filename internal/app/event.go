package app

import (
	"context"
	"fmt"
	"log/slog"

	"seckill/config"
	"seckill/queue"
	"seckill/repository"
	"seckill/service/repair"
)

// publishEvents publishes what happens to orders and vouchers until the stop, where a
// stream for that is configured, unless this instance only serves.
func (i *Instance) publishEvents(ctx context.Context, s servers, mode orderMode) error {
	if i.cfg.Events == "" || i.cfg.Role == config.RoleAPI {
		return nil
	}
	log := i.log.With(slog.String("part", "events"))
	stream, err := queue.OpenEvents(ctx, queue.EventOptions{
		URL: i.cfg.NATSURL, Access: natsAccess(i.cfg), Stream: i.cfg.Events, Deployment: mode.deployment, Replicas: i.cfg.NATSReplicas, Log: log,
	})
	if err != nil {
		return fmt.Errorf("reach the stream of events (SECKILL_EVENTS): %w", err)
	}
	i.parts.OnClose("stream of events", func(context.Context) error { stream.Close(); return nil })
	relay := &repair.EventRelay{Store: repository.NewEvents(s.db.Database), Stream: stream, Log: log}
	i.runElected(s, mode, "events", relay.Run) //nolint:contextcheck // until the stop
	return nil
}
