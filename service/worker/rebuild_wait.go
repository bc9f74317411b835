package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// floorPoll is between two questions how far the queue's consumer has come: the
	// sale is closed meanwhile, and an answer takes a millisecond.
	floorPoll = 50 * time.Millisecond
	// floorShare is between two such questions of a process for single vouchers, on the
	// average: after the loss of a whole Redis a thousand rebuilds wait at once.
	floorShare = 10 * time.Millisecond
	// longestFloorPoll bounds how much later than the queue a rebuild learns, beside
	// many others, that it is its turn.
	longestFloorPoll = 250 * time.Millisecond
	// floorReadShare and floorReadMost keep the reading that all share to a tenth of the
	// time: beside 10,000 vouchers with messages it takes 10 ms.
	floorReadShare = 10
	floorReadMost  = time.Second
	// longestBlind is how long a rebuild waits on while this process cannot see the queue.
	// Then it ends, so that another instance, which may see it, takes the voucher over.
	longestBlind = rebuildAbandoned
)

// floors is how the rebuilds of one process wait for their vouchers' messages. A few of
// them ask for their own, each as often as if it were alone. Many share one reading that
// names all vouchers with messages: one that is named waits on, and one that is not asks
// for its own, which alone can tell that it has come to its end. One that is named asks too,
// in its turn, because the messages that are left may have come later.
type floors struct {
	queue   Queue
	log     *slog.Logger
	trouble telemetry.Trouble

	mu      sync.Mutex
	waiting int              // rebuilds
	reading bool             // somebody asks the queue for the reading
	tried   time.Time        // when that was last begun
	took    time.Duration    // by the last one
	read    time.Time        // before the queue named those below; zero: not yet
	named   map[string]int64 // vouchers with messages
}

// await waits until every message of a voucher is acknowledged, up to a sequence. A look
// that fails is not the end of it: a rebuild that began anew would have to wait for
// everything that came meanwhile. It ends with ctx, and when all looks have failed for too long.
func (f *floors) await(ctx context.Context, voucherID string, sequence uint64) error {
	f.enter(1)
	defer f.enter(-1)
	seen := time.Now() // when the queue last answered
	for {
		asked := time.Now()
		backlog, failed := f.queue.BacklogOf(ctx, voucherID)
		if failed == nil {
			seen = asked
			if done, err := passed(backlog, sequence); done || err != nil {
				return err
			}
		}
		if failed != nil && time.Since(seen) > longestBlind {
			return fmt.Errorf("wait for the queue, which does not tell how far it has come: %w", failed)
		}
		if ctx.Err() == nil {
			f.trouble.Note(ctx, f.log, failed, "rebuilds cannot see how far the queue has come, and wait",
				"rebuilds see again how far the queue has come", slog.String("voucher_id", voucherID))
			f.pause(ctx, voucherID, asked)
		}
		switch {
		case ctx.Err() == nil:
		case failed != nil:
			return fmt.Errorf("wait for the queue: %w; it was last looked at in vain: %w", context.Cause(ctx), failed)
		default:
			return fmt.Errorf("wait for the queue: %w", context.Cause(ctx))
		}
	}
}

// awaitFloor waits until every message that look counts is acknowledged, up to a
// sequence.
func awaitFloor(ctx context.Context, look func(context.Context) (model.Backlog, error), sequence uint64) error {
	var failed error
	err := poll.Until(ctx, floorPoll, func() (done bool, _ error) {
		backlog, err := look(ctx)
		if err != nil {
			failed = fmt.Errorf("look at the queue: %w", err)
			return false, failed
		}
		done, failed = passed(backlog, sequence)
		return done, failed
	})
	if err != nil && failed == nil {
		return fmt.Errorf("wait for the queue: %w", context.Cause(ctx))
	}
	return failed
}

// passed reports whether every message is acknowledged, up to a sequence. It is not
// enough that the message of that sequence is: those before it may still be under way.
func passed(backlog model.Backlog, sequence uint64) (bool, error) {
	if backlog.LastSequence < sequence {
		return false, fmt.Errorf("the queue ends at %d and had %d: it is another one", backlog.LastSequence, sequence)
	}
	return backlog.AckFloor >= sequence, nil
}

func (f *floors) enter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting += n
}

// pauses tells how long one of those that wait now pauses before it asks for its own
// voucher again, and before it looks whether it is named still.
func (f *floors) pauses() (own, step time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	each := func(of time.Duration) time.Duration { return max(floorPoll, time.Duration(f.waiting)*of) }
	return each(floorShare), min(each(time.Millisecond), longestFloorPoll)
}

// pause waits until a voucher is to be asked for again: in its turn, or when a reading
// from after it was asked for does not name it.
func (f *floors) pause(ctx context.Context, voucherID string, asked time.Time) {
	for ctx.Err() == nil {
		own, step := f.pauses()
		poll.Pause(ctx, min(step, own-time.Since(asked)))
		if time.Since(asked) >= own || f.gone(ctx, voucherID, asked) {
			return
		}
	}
}

// gone reports whether a reading from after an instant does not name a voucher.
func (f *floors) gone(ctx context.Context, voucherID string, after time.Time) bool {
	if f.mayRead() {
		f.readNamed(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read.After(after) && f.named[voucherID] == 0 && f.named[model.AnyVoucher] == 0
}

// mayRead reports whether the caller is to make the next reading: nobody makes one, or
// made one a moment ago.
func (f *floors) mayRead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reading || time.Since(f.tried) < max(floorPoll, min(floorReadShare*f.took, floorReadMost)) {
		return false
	}
	f.reading, f.tried = true, time.Now()
	return true
}

// readNamed asks the queue. When it fails, those that wait ask in their turn.
func (f *floors) readNamed(ctx context.Context) {
	asked := time.Now()
	named, err := f.queue.Waiting(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading, f.took = false, time.Since(asked)
	if err == nil {
		f.read, f.named = asked, named
	}
}
