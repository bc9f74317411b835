package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/model"
	"seckill/repository"
	"seckill/service"
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
	flags := settingFlags(cmd, "SECKILL_DATA_DIR")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 || len(args) == 1 && args[0] != string(model.ModeSync) && args[0] != string(model.ModeAsync) {
			return misused("mode takes sync, async or nothing, not %q", args)
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := config.Load(p.Environ, config.Flags(flags()), config.WithoutTokens())
		if err != nil {
			return err
		}
		if err := embeddedExists(cfg); err != nil {
			return err
		}
		if len(args) == 0 {
			return p.showMode(cmd.Context(), cfg)
		}
		return p.switchMode(cmd.Context(), cfg, model.OrderMode(args[0]))
	}
	return cmd
}

func (p Process) readMode(ctx context.Context, cfg config.Config) (record model.ModeRecord, err error) {
	err = p.withDatabase(ctx, cfg, func(db *repository.Database) error {
		record, err = repository.NewModes(db).Read(ctx)
		return err
	})
	return record, err
}

func (p Process) showMode(ctx context.Context, cfg config.Config) error {
	record, err := p.readMode(ctx, cfg)
	if err != nil {
		return err
	}
	if to := record.SwitchingTo; to != "" {
		fmt.Fprintf(p.Stdout, "%s, being switched to %s: nothing is sold until 'seckill mode %s' has finished\n", record.Mode, to, to)
		return nil
	}
	fmt.Fprintln(p.Stdout, record.Mode)
	return nil
}

func (p Process) switchMode(ctx context.Context, cfg config.Config, to model.OrderMode) error {
	record, err := p.readMode(ctx, cfg)
	if err != nil {
		return err
	}
	if record.Serves(to) {
		fmt.Fprintf(p.Stdout, "The order mode is %s already.\n", to)
		return nil
	}
	if record.Mode == model.ModeAsync { // what is queued must be found
		if err := embeddedQueueExists(cfg); err != nil {
			return err
		}
	}
	for variable, url := range map[string]string{"SECKILL_REDIS_URL": cfg.RedisURL, "SECKILL_NATS_URL": cfg.NATSURL} {
		if url == "" && !cfg.Embedded() {
			fmt.Fprintln(p.Stderr, variable+" is not set: this must be so for the instances, too.")
		}
	}
	return p.withBackstage(ctx, cfg, func(i *Instance, b *backstage) error {
		i.consume(b) //nolint:contextcheck // until everything is closed; the instances may be gone
		return service.NewModeSwitch(service.ModeSwitchDeps{
			Modes: b.modes, Records: b.records, Rows: b.orders, Copies: b.hot, Queue: b.queue,
			Persist: b.persister.Persist, Rebuilds: b.rebuilder,
			Progress: func(line string) { fmt.Fprintln(p.Stdout, line) },
		}).Switch(ctx, to)
	})
}
