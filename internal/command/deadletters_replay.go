package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/model"
	"seckill/service"
)

const (
	// drainPatience is how long what was replayed may take into the database
	// when this process must do that itself.
	drainPatience = 30 * time.Second
	// drainPause is between two looks at the queue meanwhile.
	drainPause = 50 * time.Millisecond
)

func (p Process) replayLettersCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "replay SEQ | --all",
		Short: "Make new reservations, with new ids, of dead letters",
		Long: "Makes of a dead letter a new reservation with a new id, and removes the letter once that is queued. It is\n" +
			"refused like any purchase when nothing is left or the user has an order; only the window does not count,\n" +
			"because he came in time. What is refused stays where it is. An order that is still processing is queued again\n" +
			"as it is.\n\n" + deadLettersHelp,
	}
	cmd.Flags().BoolVar(&all, "all", false, "replay every letter that holds an order")
	flags := settingFlags(cmd, "SECKILL_DATA_DIR")
	var sequence uint64
	cmd.Args = func(_ *cobra.Command, args []string) (err error) {
		if all && len(args) == 0 {
			return nil
		}
		if all {
			return misused("replay takes a sequence number or --all, not both")
		}
		sequence, err = oneSequence(args)
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		return p.withLetters(ctx, flags(), func(i *Instance, b *backstage, cfg config.Config) error {
			sequences := []uint64{sequence}
			if all {
				var err error
				if sequences, err = replayable(ctx, b); err != nil {
					return err
				}
			}
			if cfg.RedisURL != "" {
				return p.replayLetters(ctx, b, sequences, false)
			}
			i.consume(b) //nolint:contextcheck // until everything is closed
			return errors.Join(p.replayLetters(ctx, b, sequences, true), drained(ctx, b))
		})
	}
	return cmd
}

// replayable lists the letters that hold an order.
func replayable(ctx context.Context, b *backstage) (sequences []uint64, err error) {
	err = b.queue.DeadLetters(ctx, func(letter model.DeadLetter) error {
		if letter.Reservation != nil {
			sequences = append(sequences, letter.Sequence)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the dead letters: %w", err)
	}
	return sequences, nil
}

// replayLetters replays letters one by one. One that is refused does not keep
// the others. With load it loads the hot copies, because no server runs that could.
func (p Process) replayLetters(ctx context.Context, b *backstage, sequences []uint64, load bool) error {
	replayer := service.NewReplayer(b.queue, b.hot, b.orders)
	var refused []error
	for _, sequence := range sequences {
		letter, err := b.queue.DeadLetter(ctx, sequence)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		reserved, err := replayer.Replay(ctx, sequence)
		if load && reserved.ID == "" && errors.Is(err, model.ErrCopyClosed) {
			if err = loadFor(ctx, b, sequence); err == nil {
				reserved, err = replayer.Replay(ctx, sequence)
			}
		}
		if ctx.Err() != nil {
			return errors.Join(append(refused, ctx.Err())...)
		}
		if err != nil {
			refused = append(refused, err)
			continue
		}
		what := "new order"
		if reserved.ID == letter.Reservation.ID {
			what = "order" // it was persisted after all, or waits again
		}
		fmt.Fprintf(p.Stdout, "dead letter %d: user %s has the %s %s\n", sequence, reserved.UserID, what, reserved.ID)
	}
	fmt.Fprintf(p.Stdout, "%d of %d dead letters were replayed\n", len(sequences)-len(refused), len(sequences))
	return errors.Join(refused...)
}

// loadFor loads the hot copy of the voucher that a letter is about.
func loadFor(ctx context.Context, b *backstage, sequence uint64) error {
	letter, err := b.queue.DeadLetter(ctx, sequence)
	if err != nil || letter.Reservation == nil {
		return err
	}
	return b.rebuilder.Rebuild(ctx, letter.Reservation.VoucherID)
}

// drained waits until everything that is queued was persisted.
func drained(ctx context.Context, b *backstage) error {
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	ticker := time.NewTicker(drainPause)
	defer ticker.Stop()
	for {
		backlog, err := b.queue.Backlog(ctx)
		if err != nil || backlog.Messages == 0 {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%d messages wait in the queue for the next start: %w", backlog.Messages, ctx.Err())
		}
	}
}
