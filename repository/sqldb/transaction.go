package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/sqlitefile"
	"seckill/model"
)

const (
	// firstPause and longestPause before a repeated transaction: about a short one, and a part of a call.
	firstPause   = 2 * time.Millisecond
	longestPause = 2 * budget.Blink
	// startAttempts bounds what a start repeats: a server that takes no connection within so many seconds is away.
	startAttempts = 5
)

// ErrContended sends a transaction back to its beginning: others changed what it had read.
var ErrContended = errors.New("changed by others meanwhile")

// ErrNothingToWrite ends a transaction that has only read.
var ErrNothingToWrite = errors.New("nothing to write")

// Pause waits before attempt n (from 0) is repeated: exponentially and at random, against repeated collisions.
func Pause(ctx context.Context, n int) error {
	longest := backoff.Doubled(firstPause, longestPause, n)
	poll.Pause(ctx, rand.N(longest)+longest/4) //nolint:gosec // spreads the load, guards nothing
	return ctx.Err()
}

// patiently repeats at a start what a slow connection or a locked row stopped, on a busy machine, and what a connection
// that broke stopped, while a proxy changes its server: each passes.
func patiently(ctx context.Context, work func() error) error {
	for n := 1; ; n++ {
		err := work()
		slow, ok := errors.AsType[net.Error](err)
		broke := errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn)
		if passes := broke || ok && slow.Timeout() || classify(err) == faultRetry; !passes || n == startAttempts {
			return err
		}
		if broke {
			poll.Pause(ctx, time.Duration(n)*budget.Look) // budget.Step together: a proxy looks twice, for 2 s each
		}
		if Pause(ctx, n) != nil {
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

// Browse is Read for lists, counts and exports, on a few connections of their own: a call without one within
// budget.Look is UNAVAILABLE. It is free when its server is done: who leaves and returns has no more statements run.
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

// Write runs a transaction, again if it was a victim, within Budget. model.ErrUnknownOutcome: maybe.
func (d *Database) Write(ctx context.Context, action string, work func(*gorm.DB) error) error {
	return d.write(ctx, action, false, func(tx *gorm.DB, _ bool) error { return work(tx) })
}

// WriteRepeatable is Write for work that notices what it has done already, and then does nothing more: a COMMIT without
// an answer is decided by doing it again, and so is a row that another transaction inserted meanwhile. Doubtful says
// that an earlier attempt may have been committed. ErrNothingToWrite from work ends the call without a write.
func (d *Database) WriteRepeatable(
	ctx context.Context, action string, work func(tx *gorm.DB, doubtful bool) error,
) error {
	return d.write(ctx, action, true, work)
}

func (d *Database) write(ctx context.Context, action string, repeatable bool, work func(*gorm.DB, bool) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.Budget())
	defer cancel()
	var lost error // once a COMMIT got no answer
	for n := 0; ; n++ {
		err := d.Transaction(ctx, func(tx *gorm.DB) error { return work(tx, lost != nil) })
		if errors.Is(err, ErrNothingToWrite) {
			return nil
		}
		if errors.Is(err, ErrLost) {
			lost = err
		}
		again := Repeatable(err)
		if repeatable {
			again = again || lost != nil && (classify(err) == faultAway || model.CodeOf(err) == model.CodeUnavailable)
		} else {
			again = again && !Duplicate(err)
		}
		if err == nil || !again {
			return Named(action, err)
		}
		if Pause(ctx, n) != nil {
			if lost != nil {
				err = fmt.Errorf("%w; last tried: %w", lost, err)
			}
			return Named(action, err)
		}
	}
}

// Snapshot runs work in a transaction that only reads, as of one instant. Errors are the driver's and work's.
func (d *Database) Snapshot(ctx context.Context, work func(*gorm.DB) error) error {
	// The first reading of REPEATABLE READ makes the snapshot; SQLite's readers begin without the writer's turn.
	options := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	return d.gorm.WithContext(ctx).Transaction(work, options)
}

// Transaction runs work between BEGIN and COMMIT. Errors are the driver's, or ErrLost for an unknown COMMIT.
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

// commit sends COMMIT and leaves with "unknown" when ctx ends; the driver waits on. It calls leave at its end.
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

type fault int

const (
	// faultAway says nothing about the order: later. It is what every error means of which no more is known.
	faultAway      fault = iota
	faultNone            // no error, or an answer of the domain
	faultData            // the order's own data were refused
	faultDuplicate       // a unique key refused the row
	faultRetry           // the transaction was the victim of another: it runs again
)

// ErrLost marks a COMMIT whose outcome is unknown.
var ErrLost = fmt.Errorf("COMMIT without a certain answer: %w", model.ErrUnknownOutcome)

// classify tells what an error means. It is the only place that knows the drivers' codes.
func classify(err error) fault {
	_, ours := errors.AsType[*model.Error](err)
	if err == nil || ours || errors.Is(err, model.ErrSuperseded) {
		return faultNone
	}
	if errors.Is(err, ErrLost) {
		return faultAway // whatever the server has said: it must not simply run again
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return classifyMySQL(e.Number, string(e.SQLState[:]))
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return classifySQLite(e.Code())
	}
	return faultAway
}

// MySQL's error numbers.
const (
	lockWait        = 1205
	tableDenied     = 1142
	noSuchTable     = 1146
	unknownVariable = 1193
)

// demoted: the server takes no writes, another may: read-only (1290, 1836), or no quorum (1047, errNoMajority).
func demoted(err error) bool { return isMySQL(err, 1290, 1836, 1047) || errors.Is(err, errNoMajority) }

// full says that the server cannot write: its disk is full (1021, and 3, 1026, 1030, 1114) or fails.
func full(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		primary := e.Code() & 0xff
		return primary == sqlite3.SQLITE_FULL || primary == sqlite3.SQLITE_IOERR
	}
	return isMySQL(err, 3, 1021, 1026, 1030, 1114)
}

func isMySQL(err error, numbers ...uint16) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, e.Number)
}

// TooLarge says that a statement is larger than the server takes (max_allowed_packet). Nothing of it was sent.
func TooLarge(err error) bool { return errors.Is(err, mysql.ErrPktTooLarge) }

// LockWait says that another transaction kept a row locked for too long.
func LockWait(err error) bool { return isMySQL(err, lockWait) }

// Duplicate says that a unique key refused the row.
func Duplicate(err error) bool { return classify(err) == faultDuplicate }

// Repeatable says that a transaction did nothing and may be repeated. After a duplicate it reads what is new.
func Repeatable(err error) bool {
	if errors.Is(err, ErrContended) {
		return true
	}
	kind := classify(err)
	return kind == faultRetry || kind == faultDuplicate
}

// classifyMySQL goes by SQLSTATE, or by the number where that is too coarse: testdata/server_errors.tsv has them all.
func classifyMySQL(number uint16, state string) fault {
	switch number {
	case 1022, 1062, 1169, 1586, 1859: // unique keys; class 23
		return faultDuplicate
	case lockWait, 1020, 1180: // record has changed since last read, error during COMMIT
		return faultRetry
	case 1366, 3819: // a value of the wrong kind: class 22 in MariaDB, HY000 in MySQL; MySQL's CHECK
		return faultData
	// 1052: a column is ambiguous since the schema changed. 1644: a trigger's SIGNAL, with its author's state.
	case 1052, 1644:
		return faultAway
	}
	switch state[:2] {
	case "22", "23": // data exception, integrity constraint violation
		return faultData
	case "40": // transaction rollback
		return faultRetry
	}
	return faultAway
}

// classifySQLite goes by the extended result codes, see https://www.sqlite.org/rescode.html.
func classifySQLite(code int) fault {
	switch code {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID:
		return faultDuplicate
	case sqlite3.SQLITE_CONSTRAINT_CHECK, sqlite3.SQLITE_CONSTRAINT_NOTNULL, sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY,
		sqlite3.SQLITE_CONSTRAINT_DATATYPE: // not _TRIGGER: see SIGNAL
		return faultData
	}
	if primary := code & 0xff; primary == sqlite3.SQLITE_BUSY || primary == sqlite3.SQLITE_LOCKED {
		return faultRetry
	}
	return faultAway
}

// commitError tells whether a failed COMMIT is a no or unknown: a no only if the error says so.
func commitError(err error) error {
	if err == nil || rolledBack(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

func rolledBack(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		state := string(e.SQLState[:])
		return strings.HasPrefix(state, "40") && state != "40003" // completion unknown
	}
	return sqlitefile.Busy(err) // documented: the transaction stays open, and is rolled back
}

// Named gives the domain's name to what went wrong, and says what was being done.
func Named(action string, err error) error {
	kind := classify(err)
	switch {
	case err == nil:
		return nil
	case kind == faultNone: // named already
	case errors.Is(err, model.ErrUnknownOutcome):
		err = model.Unavailable("The database did not answer; whether the change was made is not known yet.", err)
	case kind == faultData:
		err = fmt.Errorf("%w: %w", model.ErrDataRefused, err)
	case Repeatable(err):
		err = model.Unavailable("The database is too busy.", err)
	case full(err):
		err = model.Unavailable("The database cannot write: its disk is full, or fails.", err)
	case demoted(err):
		err = model.Unavailable("The database takes no writes.", err)
	default:
		err = model.Unavailable("The database does not answer, or not as it should.", err)
	}
	return fmt.Errorf("%s: %w", action, err)
}
