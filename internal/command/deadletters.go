package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/model"
)

const deadLettersHelp = "Orders that could not be persisted lie in the queue's dead letters; each is failed in the database as far as\n" +
	"the database could note it, and its unit is back on sale. An embedded queue lives inside its server's process,\n" +
	"which must be stopped first."

func (p Process) deadlettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadletters",
		Short: "Look at the orders that could not be persisted, and replay them",
		Long:  deadLettersHelp,
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			return misused("deadletters needs a command: list, show, replay or drop")
		},
	}
	cmd.AddCommand(p.listLettersCommand(), p.showLetterCommand(), p.replayLettersCommand(), p.dropLetterCommand())
	return cmd
}

func (p Process) listLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the dead letters, oldest first", Long: deadLettersHelp, Args: noArgs,
	}
	flags := settingFlags(cmd, "SECKILL_DATA_DIR")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.withLetters(cmd.Context(), flags(), func(_ *Instance, b *backstage, _ config.Config) error {
			return p.listLetters(cmd.Context(), b)
		})
	}
	return cmd
}

// withLetters opens the queue of the settings and what belongs to it.
func (p Process) withLetters(
	ctx context.Context, flags map[string]string, work func(i *Instance, b *backstage, cfg config.Config) error,
) error {
	cfg, err := config.Load(p.Environ, config.Flags(flags), config.WithoutTokens())
	if err != nil {
		return err
	}
	if err := backstageExists(cfg); err != nil {
		return err
	}
	return p.withBackstage(ctx, cfg, func(i *Instance, b *backstage) error { return work(i, b, cfg) })
}

func (p Process) listLetters(ctx context.Context, b *backstage) error {
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	letters := 0
	err := b.queue.DeadLetters(ctx, func(letter model.DeadLetter) error {
		if letters++; letters == 1 {
			fmt.Fprintln(table, "SEQ\tAT\tORDER\tUSER\tREASON")
		}
		order, user := "-", "-"
		if letter.Reservation != nil {
			order, user = letter.Reservation.ID, letter.Reservation.UserID
		}
		_, err := fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", letter.Sequence, letter.At.UTC().Format(time.RFC3339), order, user, oneLine(letter.Reason))
		return err
	})
	if err = errors.Join(err, table.Flush()); err != nil {
		return fmt.Errorf("list the dead letters: %w", err)
	}
	fmt.Fprintf(p.Stdout, "%d dead letters\n", letters)
	return nil
}

func (p Process) showLetterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show SEQ", Short: "Show everything about one dead letter", Long: deadLettersHelp,
	}
	flags := settingFlags(cmd, "SECKILL_DATA_DIR")
	var sequence uint64
	cmd.Args = func(_ *cobra.Command, args []string) (err error) {
		sequence, err = oneSequence(args)
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.withLetters(cmd.Context(), flags(), func(_ *Instance, b *backstage, _ config.Config) error {
			letter, err := b.queue.DeadLetter(cmd.Context(), sequence)
			if err != nil {
				return err // it says which
			}
			return p.showLetter(letter)
		})
	}
	return cmd
}

func (p Process) showLetter(letter model.DeadLetter) error {
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(table, "%s\t%v\n", name, value) }
	row("sequence", letter.Sequence)
	row("at", letter.At.UTC().Format(time.RFC3339Nano))
	row("reason", oneLine(letter.Reason))
	if r := letter.Reservation; r != nil {
		row("order", r.ID)
		row("voucher", r.VoucherID)
		row("user", r.UserID)
		row("price", fmt.Sprintf("%d %s", r.Price, r.Currency))
		row("admitted", r.CreatedAt.UTC().Format(time.RFC3339Nano))
		row("epoch", r.Epoch)
		row("message", r.Sequence)
	}
	if len(letter.Raw) > 0 {
		row("raw", strconv.Quote(string(letter.Raw)))
	}
	return table.Flush()
}

// oneSequence reads the number of a letter.
func oneSequence(args []string) (uint64, error) {
	if len(args) != 1 {
		return 0, misused("one sequence number is needed; 'seckill deadletters list' shows them")
	}
	sequence, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil || sequence == 0 {
		return 0, misused("%q is no sequence number", args[0])
	}
	return sequence, nil
}

// oneLine keeps what a server said from breaking a table.
func oneLine(text string) string {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}
