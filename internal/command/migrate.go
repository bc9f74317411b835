package command

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/repository"
)

func (p Process) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Apply schema migrations (serve does so too, unless SECKILL_MIGRATE=off)",
		Long: "Applies the schema migrations that are missing. Of several processes that do so at the same time\n" +
			"one works and the others wait.",
		Args: noArgs,
	}
	flags := settingFlags(cmd, "SECKILL_DATA_DIR")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.migrate(cmd, flags(), true)
	}
	status := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations were applied, and change nothing",
		Args:  noArgs,
	}
	statusFlags := settingFlags(status, "SECKILL_DATA_DIR")
	status.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.migrate(cmd, statusFlags(), false)
	}
	cmd.AddCommand(status)
	return cmd
}

func (p Process) migrate(cmd *cobra.Command, flags map[string]string, apply bool) error {
	ctx := cmd.Context()
	cfg, err := config.Load(p.Environ, config.Flags(flags), config.WithoutTokens())
	if err != nil {
		return err
	}
	if !apply {
		if err := embeddedExists(cfg); err != nil {
			return err
		}
	}
	return p.withDatabase(ctx, cfg, func(db *repository.Database) error {
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
