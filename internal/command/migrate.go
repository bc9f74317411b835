package command

import (
	"context"
	"fmt"
	"text/tabwriter"
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
	load := p.settings(cmd, "SECKILL_DATA_DIR")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.migrate(cmd.Context(), load, true)
	}
	status := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations were applied, and change nothing",
		Args:  noArgs,
	}
	loadStatus := p.settings(status, "SECKILL_DATA_DIR")
	status.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.migrate(cmd.Context(), loadStatus, false)
	}
	cmd.AddCommand(status)
	return cmd
}

func (p Process) migrate(ctx context.Context, load func(...config.Option) (config.Config, error), apply bool) error {
	cfg, err := load(config.WithoutTokens())
	if err != nil {
		return err
	}
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
		table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
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
