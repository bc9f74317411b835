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
		Short: "Show or switch how the database is sold from",
		Long: "Without an argument it shows the database's order mode. With one it closes the sales, which answer 503\n" +
			"meanwhile, makes orders of everything that was admitted, and opens them again in the other mode. What was\n" +
			"interrupted is finished by the same command. Instances of the wrong mode are not ready, say so, and sell\n" +
			"nothing; those of the right one begin within a second.\n\n" +
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
		return p.switchMode(ctx, cfg, record, model.OrderMode(args[0]))
	case record.SwitchingTo != "":
		fmt.Fprintf(p.Stdout, "%s, being switched to %[2]s: nothing is sold until 'seckill mode %[2]s' has finished\n",
			record.Mode, record.SwitchingTo)
	default:
		fmt.Fprintln(p.Stdout, record.Mode)
	}
	return nil
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

// switchMode switches a database whose order mode is on record.
func (p Process) switchMode(ctx context.Context, cfg config.Config, record model.ModeRecord, to model.OrderMode) error {
	if record.Serves(to) {
		fmt.Fprintf(p.Stdout, "The order mode is %s already.\n", to)
		return nil
	}
	if record.Mode == model.ModeAsync { // what is queued must be found
		if err := app.QueueExists(cfg); err != nil {
			return err
		}
	}
	for variable, url := range map[string]string{"SECKILL_REDIS_URL": cfg.RedisURL, "SECKILL_NATS_URL": cfg.NATSURL} {
		if url == "" && !cfg.Embedded() {
			fmt.Fprintln(p.Stderr, variable+" is not set: this must be so for the instances, too.")
		}
	}
	return p.withAsyncParts(ctx, cfg, func(a *app.AsyncParts) error {
		a.Consume() //nolint:contextcheck // until everything is closed; the instances may be gone
		return a.SwitchMode(ctx, to, func(line string) { fmt.Fprintln(p.Stdout, line) })
	})
}
