package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"seckill/config"
)

func (p Process) dropLetterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop SEQ",
		Short: "Remove one dead letter that nobody needs any more",
		Long: "Removes a dead letter for good: one that could not be read, or whose user was helped otherwise. It changes\n" +
			"no order.\n\n" + deadLettersHelp,
	}
	flags := settingFlags(cmd, "SECKILL_DATA_DIR")
	var sequence uint64
	cmd.Args = func(_ *cobra.Command, args []string) (err error) {
		sequence, err = oneSequence(args)
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.withLetters(cmd.Context(), flags(), func(_ *Instance, b *backstage, _ config.Config) error {
			if _, err := b.queue.DeadLetter(cmd.Context(), sequence); err != nil {
				return err // it says which
			}
			if err := b.queue.RemoveDeadLetter(cmd.Context(), sequence); err != nil {
				return err
			}
			fmt.Fprintf(p.Stdout, "dead letter %d was removed\n", sequence)
			return nil
		})
	}
	return cmd
}
