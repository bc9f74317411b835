package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/app"
	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

const noAdmin = "" // a command has no account

const deadLettersHelp = "Orders that could not be persisted lie in the queue's dead letters; each is failed in the database as far as\n" +
	"the database could note it, and its unit is back on sale. An embedded queue lives inside its server's process,\n" +
	"which must be stopped first."

func (p Process) deadlettersCommand() *cobra.Command {
	return group("deadletters", "Look at the orders that could not be persisted, and replay them", deadLettersHelp,
		p.onLetters(&cobra.Command{Use: "list", Short: "List the dead letters, oldest first"}, p.listLetters),
		p.onLetters(&cobra.Command{
			Use: "show SEQ", Short: "Show everything about one dead letter", Args: sequenceArg,
		}, p.showLetter),
		p.replayCommand(),
		p.onLetters(&cobra.Command{
			Use:   "drop SEQ",
			Short: "Remove one dead letter that nobody needs any more",
			Long: "Removes a dead letter for good: one that could not be read, or whose user was helped otherwise. It changes\n" +
				"no order.\n\n",
			Args: sequenceArg,
		}, func(ctx context.Context, a *app.AsyncParts, sequence uint64) error {
			if err := a.Replayer.Drop(ctx, sequence, noAdmin); err != nil {
				return err
			}
			return p.say("dead letter %d was removed\n", sequence)
		}))
}

// onLetters makes a command work on the queue of the settings and what belongs to it, on one letter if it names one.
func (p Process) onLetters(
	cmd *cobra.Command, work func(ctx context.Context, a *app.AsyncParts, sequence uint64) error,
) *cobra.Command {
	cmd.Long += deadLettersHelp
	p.onSettings(cmd, func(ctx context.Context, cfg config.Config, args []string) error {
		if err := errors.Join(app.DatabaseExists(cfg), app.QueueExists(cfg)); err != nil {
			return err
		}
		return p.withAsyncParts(ctx, cfg, func(a *app.AsyncParts) error { return work(ctx, a, sequenceOf(args)) })
	})
	return cmd
}

func sequenceArg(_ *cobra.Command, args []string) error {
	switch {
	case len(args) != 1:
		return misused("one sequence number is needed; 'seckill deadletters list' shows them")
	case sequenceOf(args) == 0:
		return misused("%q is no sequence number", args[0])
	}
	return nil
}

// sequenceOf is the number of a letter; 0: none is named.
func sequenceOf(args []string) uint64 {
	sequence, _ := strconv.ParseUint(strings.Join(args, " "), 10, 64)
	return sequence
}

func (p Process) listLetters(ctx context.Context, a *app.AsyncParts, _ uint64) error {
	table := p.table()
	letters := 0
	err := a.Queue.DeadLetters(ctx, func(letter model.DeadLetter) error {
		if letters++; letters == 1 {
			fmt.Fprintln(table, "SEQ\tAT\tORDER\tUSER\tREASON")
		}
		order, user := "-", "-"
		if letter.Reservation != nil {
			order, user = letter.Reservation.ID, letter.Reservation.UserID
		}
		_, err := fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", letter.Sequence, letter.At.UTC().Format(time.RFC3339),
			order, user, oneLine(letter.Reason))
		return err
	})
	if err = errors.Join(err, table.Flush()); err != nil {
		return fmt.Errorf("list the dead letters: %w", err)
	}
	return p.say("%d dead letters\n", letters)
}

func (p Process) showLetter(ctx context.Context, a *app.AsyncParts, sequence uint64) error {
	letter, err := a.Queue.DeadLetter(ctx, sequence)
	if err != nil {
		return err
	}
	table := p.table()
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

func oneLine(text string) string {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func (p Process) replayCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "replay SEQ | --all",
		Short: "Make new reservations, with new ids, of dead letters",
		Long: "Makes of a dead letter a new reservation with a new id, and removes the letter once that is queued. It is\n" +
			"refused like any purchase when nothing is left or the user has an order; only the window does not count,\n" +
			"because the purchase came in time. What is refused stays where it is. An order that is still processing is queued again\n" +
			"as it is.\n\n",
	}
	cmd.Flags().BoolVar(&all, "all", false, "replay every letter that holds an order")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case !all:
			return sequenceArg(cmd, args)
		case len(args) > 0:
			return misused("replay takes a sequence number or --all, not both")
		}
		return nil
	}
	return p.onLetters(cmd, func(ctx context.Context, a *app.AsyncParts, sequence uint64) error {
		sequences := []uint64{sequence}
		if all {
			sequences = nil
			err := a.Queue.DeadLetters(ctx, func(letter model.DeadLetter) error {
				if letter.Reservation != nil {
					sequences = append(sequences, letter.Sequence)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("list the dead letters: %w", err)
			}
		}
		if !a.InPlaceOfServer() {
			return p.replayLetters(ctx, a, sequences)
		}
		a.Consume() //nolint:contextcheck // until everything is closed
		return errors.Join(p.replayLetters(ctx, a, sequences), drained(ctx, a))
	})
}

// replayLetters replays letters one by one. One that is refused does not keep the others.
func (p Process) replayLetters(ctx context.Context, a *app.AsyncParts, sequences []uint64) error {
	var refused []error
	for _, sequence := range sequences {
		if err := p.replayLetter(ctx, a, sequence); err != nil {
			refused = append(refused, err)
		}
		if ctx.Err() != nil {
			return errors.Join(append(refused, ctx.Err())...)
		}
	}
	fmt.Fprintf(p.Stdout, "%d of %d dead letters were replayed\n", len(sequences)-len(refused), len(sequences))
	return errors.Join(refused...)
}

// replayLetter replays one letter. In the place of a server it loads the hot copy that the letter's voucher needs.
func (p Process) replayLetter(ctx context.Context, a *app.AsyncParts, sequence uint64) error {
	letter, err := a.Queue.DeadLetter(ctx, sequence)
	if err != nil {
		return err
	}
	reserved, err := a.Replayer.Replay(ctx, sequence, noAdmin)
	if a.InPlaceOfServer() && reserved.ID == "" && errors.Is(err, model.ErrCopyClosed) && letter.Reservation != nil {
		if err = a.Rebuilder.Do(ctx, letter.Reservation.VoucherID, model.AnyEpoch); err == nil {
			reserved, err = a.Replayer.Replay(ctx, sequence, noAdmin)
		}
	}
	if err != nil {
		return err
	}
	what := "new order"
	if reserved.ID == letter.Reservation.ID {
		what = "order" // it was persisted after all, or waits again
	}
	return p.say("dead letter %d: user %s has the %s %s\n", sequence, reserved.UserID, what, reserved.ID)
}

// drained waits until every message of the queue was persisted.
func drained(ctx context.Context, a *app.AsyncParts) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Settled)
	defer cancel()
	var waiting int64
	err := poll.Until(ctx, budget.Blink, func() (bool, error) {
		backlog, err := a.Queue.Backlog(ctx)
		waiting = backlog.Messages
		return waiting == 0, err
	})
	if waiting > 0 && ctx.Err() != nil {
		return fmt.Errorf("%d messages wait in the queue for the next start: %w", waiting, ctx.Err())
	}
	return err
}
