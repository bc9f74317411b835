package sqldb

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"seckill/internal/sqlitefile"
	"seckill/model"
)

// fault is what an error means to the transaction that met it.
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

// MySQL's numbers for what is not there or not to be looked at, and for a row that is locked.
const (
	lockWait        = 1205
	tableDenied     = 1142
	noSuchTable     = 1146
	unknownVariable = 1193
)

// demoted says that the server takes no writes, and that another one may: it is
// read-only (1290, 1836), or a member of a cluster without quorum (1047, errNoMajority).
func demoted(err error) bool { return isMySQL(err, 1290, 1836, 1047) || errors.Is(err, errNoMajority) }

// full says that the server cannot write, because its disk is full (1021, and 3, 1026, 1030 and 1114 with the system's
// reason) or fails.
func full(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		primary := e.Code() & 0xff
		return primary == sqlite3.SQLITE_FULL || primary == sqlite3.SQLITE_IOERR
	}
	return isMySQL(err, 3, 1021, 1026, 1030, 1114)
}

// isMySQL says that the server has answered with one of these numbers.
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

// Repeatable says that a transaction did nothing and may fare better next time.
// After a duplicate it reads what it had not seen.
func Repeatable(err error) bool {
	if errors.Is(err, ErrContended) {
		return true
	}
	kind := classify(err)
	return kind == faultRetry || kind == faultDuplicate
}

// classifyMySQL goes by the SQLSTATE that the server has sent, and by the error's number where the state is too coarse.
// testdata/server_errors.tsv lists what becomes of every number of MariaDB and MySQL.
func classifyMySQL(number uint16, state string) fault {
	switch number {
	case 1022, 1062, 1169, 1586, 1859: // unique keys; class 23
		return faultDuplicate
	case lockWait,
		1020, // record has changed since last read
		1180: // error during COMMIT
		return faultRetry
	case 1366, // a value of the wrong kind: class 22 in MariaDB, HY000 in MySQL
		3819: // MySQL's CHECK; MariaDB's is of class 23
		return faultData
	case 1052, // an ambiguous column, class 23: the schema has changed
		1644: // SIGNAL in a trigger: the state is its author's word, not the server's
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
	switch code & 0xff { // the primary code
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return faultRetry
	}
	return faultAway
}

// commitError tells whether a failed COMMIT is a no or unknown. It is a no only
// when the error says that the transaction was rolled back.
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
