package command

import (
	"context"
	"errors"
	"log/slog"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"seckill/config"
)

func (p Process) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve until SIGTERM or SIGINT (what seckill does without a command)",
		Long: "Serves the API, after applying schema migrations. In async, --role api leaves the orders in the queue to\n" +
			"others, and --role worker brings them into the database and serves only its health. Every setting that is\n" +
			"no secret has a flag; secrets come from the environment or from files, see 'seckill config'.",
	}
	p.serveOn(cmd)
	return cmd
}

// serveOn makes a command serve.
func (p Process) serveOn(cmd *cobra.Command) {
	flags := settingFlags(cmd)
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := config.Load(p.Environ, config.Flags(flags()))
		if err != nil {
			return err
		}
		return p.serve(cmd.Context(), cfg)
	}
}

// serve runs an instance until ctx ends or the instance fails.
func (p Process) serve(ctx context.Context, cfg config.Config) error {
	log := newLogger(cfg, p.Stderr)
	redis.SetLogger(redisLog{log})
	instance, err := Start(ctx, cfg, log)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "listening",
		slog.String("url", instance.BaseURL()), slog.String("operations", instance.OpsURL()))
	if cfg.Embedded() && cfg.Role != roleWorker { // which serves nothing that could be tried
		err = p.welcome(ctx, cfg, instance)
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-instance.Failed():
		}
	}
	// The stop has limits of its own; the signal that asked for it must not
	// cut it short.
	return errors.Join(err, instance.Stop(context.WithoutCancel(ctx)))
}
