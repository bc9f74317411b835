package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/app"
)

func (p Process) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Apply schema migrations (serve does so too, unless SECKILL_MIGRATE=off)",
		Long: "Applies the schema migrations that are missing. Of several processes that do so at the same time\n" +
			"one works and the others wait.",
		Args: noArgs,
	}
	p.onSettings(cmd, func(ctx context.Context, cfg config.Config, _ []string) error { return p.migrate(ctx, cfg, true) })
	status := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations were applied, and change nothing",
		Args:  noArgs,
	}
	p.onSettings(status, func(ctx context.Context, cfg config.Config, _ []string) error { return p.migrate(ctx, cfg, false) })
	cmd.AddCommand(status)
	return cmd
}

func (p Process) migrate(ctx context.Context, cfg config.Config, apply bool) error {
	if !apply {
		if err := app.DatabaseExists(cfg); err != nil {
			return err
		}
	}
	return p.withDatabase(ctx, cfg, func(db *app.Database) error {
		if apply {
			if err := db.Migrate(ctx); err != nil {
				return err
			}
		}
		list, err := db.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		table := p.table()
		fmt.Fprintln(table, "VERSION\tMIGRATION\tAPPLIED")
		for _, m := range list {
			applied := "no"
			if m.Applied {
				applied = m.AppliedAt.Format(time.RFC3339)
			}
			fmt.Fprintf(table, "%d\t%s\t%s\n", m.Version, m.Name, applied)
		}
		return table.Flush()
	})
}
