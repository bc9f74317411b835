package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/app"
	"seckill/model"
)

func (p Process) modeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mode [sync|async]",
		Short: "Show or change how the database is sold from",
		Long: "Without an argument it shows the database's order mode. With one it changes the mode while no instance sells\n" +
			"and no order waits; otherwise it changes nothing, and says which of the two stands against it. Instances of\n" +
			"the other mode are not ready, say so, and sell nothing; once the mode is theirs they begin within a second.\n\n" +
			"It needs the settings of the async instances, also on the way to sync. What is embedded is inside its\n" +
			"server's process, which must be stopped first.",
		Example: "  seckill mode\n  seckill mode async",
	}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 || len(args) == 1 && args[0] != string(model.ModeSync) && args[0] != string(model.ModeAsync) {
			return misused("mode takes sync, async or nothing, not %q", args)
		}
		return nil
	}
	p.onSettings(cmd, p.mode)
	return cmd
}

func (p Process) mode(ctx context.Context, cfg config.Config, args []string) error {
	record, err := p.orderMode(ctx, cfg)
	switch {
	case err != nil:
		return err
	case len(args) == 1:
		return p.changeMode(ctx, cfg, record.Mode, model.OrderMode(args[0]))
	default:
		fmt.Fprintln(p.Stdout, record.Mode)
		return nil
	}
}

// orderMode reads the order mode of the settings' database, which must exist.
func (p Process) orderMode(ctx context.Context, cfg config.Config) (record model.ModeRecord, err error) {
	if err := app.DatabaseExists(cfg); err != nil {
		return record, err
	}
	err = p.withDatabase(ctx, cfg, func(db *app.Database) error {
		record, err = db.Modes.Read(ctx)
		return err
	})
	return record, err
}

// changeMode changes the order mode of a database.
func (p Process) changeMode(ctx context.Context, cfg config.Config, from, to model.OrderMode) error {
	if from == to {
		fmt.Fprintf(p.Stdout, "The order mode is %s already.\n", to)
		return nil
	}
	if from == model.ModeAsync { // what is queued must be found
		if err := app.QueueExists(cfg); err != nil {
			return err
		}
	}
	for variable, url := range map[string]string{"SECKILL_REDIS_URL": cfg.RedisURL, "SECKILL_NATS_URL": cfg.NATSURL} {
		if url == "" && !cfg.Embedded() {
			fmt.Fprintln(p.Stderr, variable+" is not set: this must be so for the instances, too.")
		}
	}
	err := p.withAsyncParts(ctx, cfg, func(a *app.AsyncParts) error { return a.ChangeMode(ctx, to) })
	if err == nil {
		fmt.Fprintf(p.Stdout, "The database is sold from in order mode %s.\n", to)
	}
	return err
}
