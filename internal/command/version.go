package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"seckill/internal/version"
)

func (p Process) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version, the commit and the version of Go",
		Long: "Shows which build this is, as the Go toolchain has written it into the program: the version, the commit of the\n" +
			"source and the version of Go. /readyz, the console and the metric seckill_build_info say the same of a server.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(p.Stdout, "seckill", version.Read())
			return err
		},
	}
}
