package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"seckill/config"
)

func (p Process) configCommand() *cobra.Command {
	var markdown bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the effective settings, secrets redacted",
		Long: "Shows every setting with its variable, its effective value, where the value comes from (default, env,\n" +
			"file or flag), its unit and its meaning. Variables that hold secrets may be replaced by ones that end\n" +
			"in _FILE and name a file. Secrets are redacted.",
		Args: noArgs,
	}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "show the table of settings for documents instead")
	load := p.settings(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if markdown {
			_, err := fmt.Fprint(p.Stdout, config.Markdown())
			return err
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		table := p.table()
		fmt.Fprintln(table, "VARIABLE\tVALUE\tSOURCE\tUNIT\tMEANING")
		for _, s := range cfg.Settings() {
			fmt.Fprintln(table, strings.ReplaceAll(
				strings.Join([]string{s.Variable, s.Value, string(s.Source), s.Unit, s.Meaning}, "\t"), "`", ""))
		}
		return table.Flush()
	}
	return cmd
}
