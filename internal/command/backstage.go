package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"seckill/config"
	"seckill/model"
	"seckill/repository"
)

// withBackstage opens everything behind asynchronous orders for one piece of
// work; i is what may run meanwhile. Servers of their own are not disturbed. What
// is embedded is inside its server's process, which must not run: then this
// process takes its place, with a Redis that is empty.
func (p Process) withBackstage(
	ctx context.Context, cfg config.Config, work func(i *Instance, b *backstage) error,
) (err error) {
	cfg.OrderMode = string(model.ModeAsync)           // the queue is looked at whatever is sold now
	cfg.Migrate = false                               // looking changes no schema
	cfg.LogLevel = max(cfg.LogLevel, slog.LevelError) // what a server tells its operator would be in the way
	i := newInstance(newLogger(cfg, p.Stderr))
	defer func() { err = errors.Join(err, i.close(ctx)) }()
	if err := i.claimDataDir(cfg); err != nil {
		return fmt.Errorf("what is embedded is inside its server's process, which must be stopped first: %w", err)
	}
	servers, err := i.openServers(ctx, cfg)
	if err != nil {
		return err
	}
	if s := servers.solitude; s != nil {
		if err := s.ask(ctx); err != nil {
			return fmt.Errorf("what is embedded is inside its server's process, which must be stopped first: %w", err)
		}
		s.alone.Store(true)
	}
	modes := repository.NewModes(servers.db)
	record, err := modes.Read(ctx)
	if err != nil {
		return err
	}
	b, err := i.openBackstage(ctx, cfg, servers, orderMode{modes: modes, deployment: record.Deployment})
	if err != nil {
		return err
	}
	return work(i, b)
}

// backstageExists fails when the settings mean an embedded database or queue that
// was never made.
func backstageExists(cfg config.Config) error {
	return errors.Join(embeddedExists(cfg), embeddedQueueExists(cfg))
}

// embeddedQueueExists fails when the settings mean the embedded queue and there
// is none: looking must not leave an empty one behind.
func embeddedQueueExists(cfg config.Config) error {
	if cfg.NATSURL != "" {
		return nil
	}
	dir := filepath.Join(cfg.DataDir, "nats")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no embedded queue in %s: name its directory with --data-dir, or set SECKILL_NATS_URL", dir)
	} else if err != nil {
		return fmt.Errorf("look for the embedded queue: %w", err)
	}
	return nil
}
