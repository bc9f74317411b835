package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"gorm.io/gorm"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	// firstPause and longestPause, before a transaction runs again: as long as
	// a short transaction takes, and a fraction of what a call may take.
	firstPause   = 2 * time.Millisecond
	longestPause = 2 * budget.Blink
	// startAttempts bounds what a start repeats: a server that takes no connection within so many seconds is away.
	startAttempts = 5
)

// ErrContended sends a transaction back to its beginning: what it had read was
// changed by others before it could act on it.
var ErrContended = errors.New("changed by others meanwhile")

// ErrNothingToWrite ends a transaction that has only read.
var ErrNothingToWrite = errors.New("nothing to write")

// Pause waits before attempt n (from 0) is repeated: exponentially longer and
// at random, so that transactions that collided do not collide again.
func Pause(ctx context.Context, n int) error {
	longest := backoff.Doubled(firstPause, longestPause, n)
	poll.Pause(ctx, rand.N(longest)+longest/4) //nolint:gosec // spreads the load, guards nothing
	return ctx.Err()
}

// patiently does at a start what can be repeated, again when a connection took too long
// or a row was locked: on a busy machine either passes.
func patiently(ctx context.Context, work func() error) error {
	for n := 1; ; n++ {
		err := work()
		slow, ok := errors.AsType[net.Error](err)
		passes := ok && slow.Timeout() || classify(err) == faultRetry
		if !passes || n == startAttempts || Pause(ctx, n) != nil {
			return err
		}
	}
}

// Read runs queries outside a transaction.
func (d *Database) Read(ctx context.Context, action string, query func(*gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.Budget())
	defer cancel()
	leave, err := d.enter(ctx)
	if err != nil {
		return Named(action, err)
	}
	defer leave()
	return Named(action, query(d.gorm.WithContext(ctx)))
}

// share is a number of connections. A call takes one of them first, because a pool by itself has no bound for the wait.
type share chan struct{}

// take waits for one of them until ctx ends, and no longer than a time. Who comes first gets the first.
func (s share) take(ctx context.Context, wait time.Duration, refusal string) (leave func(), err error) {
	enough := time.NewTimer(wait)
	defer enough.Stop()
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-enough.C:
		return nil, model.Unavailable(refusal, nil)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// enter takes a connection of the buyers' share for work that is marked by model.OfBuyers.
func (d *Database) enter(ctx context.Context) (leave func(), err error) {
	marked, patient := model.ForBuyers(ctx)
	if !marked {
		return func() {}, nil
	}
	wait := budget.Look
	if patient {
		wait = operationBudget
	}
	return d.buyers.take(ctx, wait+d.Slack, "Too much is being written.")
}

// Browse is Read for lists, counts and exports, on connections of their own. Those
// are few: a call that gets none within budget.Look is UNAVAILABLE. A connection counts as long as its server works
// for it: a caller who goes away, and comes back, cannot have more statements run.
func (d *Database) Browse(ctx context.Context, action string, query func(*gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.Budget())
	defer cancel()
	leave, err := d.browsers.take(ctx, budget.Look+d.Slack, "Too many lists are being read.")
	if err != nil {
		return Named(action, err)
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return Named(action, err)
	}
	if deadline, ok := ctx.Deadline(); ok && d.Dialect.Name == MySQL { // SQLite ends a statement with its context
		ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
	}
	session := d.gorm.WithContext(ctx)
	session.Statement.ConnPool = d.browsing
	return Named(action, query(session))
}

// Write runs a transaction, again when it was the victim of another one, and within operationBudget. An error that
// wraps model.ErrUnknownOutcome says that it may have happened.
func (d *Database) Write(ctx context.Context, action string, work func(*gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.Budget())
	defer cancel()
	for n := 0; ; n++ {
		err := d.Transaction(ctx, work)
		again := classify(err) == faultRetry || errors.Is(err, ErrContended)
		if err == nil || !again || Pause(ctx, n) != nil {
			return Named(action, err)
		}
	}
}

// WriteRepeatable is write for work that finds out by itself what it has done already, and then does nothing more: a
// COMMIT without an answer is decided by doing it again, and so is a row that another transaction has inserted
// meanwhile. Work is told when an earlier attempt of this call may have been committed, and says with ErrNothingToWrite
// that there is nothing to write.
func (d *Database) WriteRepeatable(ctx context.Context, action string, work func(tx *gorm.DB, doubtful bool) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.Budget())
	defer cancel()
	var lost error // once a COMMIT got no answer
	for n := 0; ; n++ {
		err := d.Transaction(ctx, func(tx *gorm.DB) error { return work(tx, lost != nil) })
		if err == nil || errors.Is(err, ErrNothingToWrite) {
			return nil
		}
		if errors.Is(err, ErrLost) {
			lost = err
		}
		undecided := Repeatable(err) || lost != nil && (classify(err) == faultAway || model.CodeOf(err) == model.CodeUnavailable)
		if undecided && Pause(ctx, n) == nil {
			continue
		}
		if undecided && lost != nil {
			err = fmt.Errorf("%w; last tried: %w", lost, err)
		}
		return Named(action, err)
	}
}

// Snapshot runs work in a transaction that only reads, in which everything is of one instant. It holds no lock. Its
// errors are the driver's and work's.
func (d *Database) Snapshot(ctx context.Context, work func(*gorm.DB) error) error {
	// Under REPEATABLE READ the first reading makes the snapshot, and read-only
	// transactions of SQLite begin without the writer's turn.
	options := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	return d.gorm.WithContext(ctx).Transaction(work, options)
}

// Transaction runs work between BEGIN and COMMIT. Its errors are the driver's, or ErrLost when the outcome of the
// COMMIT is unknown.
func (d *Database) Transaction(ctx context.Context, work func(*gorm.DB) error) error {
	err := d.transaction(ctx, work)
	if full(err) {
		d.unwritten.Note(err, func() {
			d.log.ErrorContext(ctx, "the database cannot write: its disk is full, or fails", slog.Any("error", err))
		})
	}
	return err
}

func (d *Database) transaction(ctx context.Context, work func(*gorm.DB) error) error {
	leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	session := d.gorm.WithContext(ctx)
	if d.writer != nil {
		session.Statement.ConnPool = d.writer
	}
	tx := session.Begin()
	if tx.Error != nil {
		leave()
		return tx.Error
	}
	ended := false
	defer func() {
		if !ended { // an error, or a panic on its way up
			tx.Rollback() // if that fails, the pool closes the connection: see endingConnector
			leave()
		}
	}()
	if err := work(tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // not sent, so it did not happen
	}
	ended = true
	return d.commit(ctx, tx, leave)
}

// commit sends COMMIT. The driver waits for its answer without regard to ctx; the caller does not have that time, so it
// leaves with "unknown" when ctx ends. Leave is called when the connection is free.
func (d *Database) commit(ctx context.Context, tx *gorm.DB, leave func()) error {
	if d.writer != nil { // a local file: neither slow nor lost on the way
		defer leave()
		return commitError(tx.Commit().Error)
	}
	answer := make(chan error, 1)
	d.commits.Go(func() {
		defer leave()
		answer <- tx.Commit().Error
	})
	select {
	case err := <-answer:
		return commitError(err)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrLost, ctx.Err())
	}
}
