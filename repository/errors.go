package repository

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"seckill/model"
)

// fault is what a driver's error means to us.
type fault int

const (
	faultOther       fault = iota // a bug, or a value the schema refuses
	faultDuplicate                // a unique key refused the row
	faultRetry                    // the transaction was the victim of another: it runs again
	faultUnavailable              // the database cannot be reached, or does not write
)

// errLost marks a COMMIT that was sent and not answered.
var errLost = fmt.Errorf("COMMIT without an answer: %w", model.ErrUnknownOutcome)

// classify tells what an error means. It is the only place that knows the
// drivers' codes.
func classify(err error) fault {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return classifyMySQL(e.Number)
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return classifySQLite(e.Code())
	}
	for _, target := range []error{
		context.DeadlineExceeded, context.Canceled,
		driver.ErrBadConn, mysql.ErrInvalidConn, mysql.ErrPktSync, mysql.ErrPktSyncMul, mysql.ErrMalformPkt, mysql.ErrBusyBuffer,
		sql.ErrConnDone, sql.ErrTxDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
	} {
		if errors.Is(err, target) {
			return faultUnavailable
		}
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return faultUnavailable
	}
	return faultOther
}

// classifyMySQL goes by the server's error numbers, see
// https://mariadb.com/kb/en/mariadb-error-codes/ and
// https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html.
func classifyMySQL(number uint16) fault {
	switch number {
	case 1062, 1586:
		return faultDuplicate
	case 1213, // deadlock
		1205, // lock wait
		1020: // record has changed since last read
		return faultRetry
	case 1290, 1792, 1836, // read-only
		1040, 1203, 1226, 1129, // too many connections, limits of the account, blocked host
		1044, 1045, 1049, 1130, 1698, // refused: the account or schema is gone, or its password changed
		1053, 1077, 1079, 3032, // shutdown, offline mode
		1158, 1159, 1160, 1161, 1184, 1152, // the server lost the connection
		1317, 1927, 1969, 3024, 4031, // query or connection killed, or took too long
		1021, 1037, 1038, 1041, 1114, 1135, // disk, memory, table, threads full
		1047, 1180, 1181: // cluster not ready; error during COMMIT or ROLLBACK
		return faultUnavailable
	default:
		return faultOther
	}
}

// classifySQLite goes by the extended result codes, see
// https://www.sqlite.org/rescode.html.
func classifySQLite(code int) fault {
	switch code {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return faultDuplicate
	}
	switch code & 0xff { // the primary code
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return faultRetry
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY,
		sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL:
		return faultUnavailable
	default:
		return faultOther
	}
}

// commitError tells whether a failed COMMIT is a no or unknown. The server's
// own refusal is a no, unless it says that it is going away or was interrupted:
// then the row may be there. A transaction whose context had ended before was
// never sent.
func commitError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		switch e.Number {
		case 1053, 1077, 1079, 1152, 1317, 1927, 1969, 3024, 1158, 1159, 1160, 1161, 1180:
			return fmt.Errorf("%w: %w", errLost, err)
		default:
			return err
		}
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == sqlite3.SQLITE_BUSY {
		return err // documented: the transaction stays open, and is rolled back
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// fail gives the domain's name to what went wrong, and says what was being done.
func (d *Database) fail(action string, err error) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*model.Error](err); ours {
		return fmt.Errorf("%s: %w", action, err)
	}
	switch {
	case errors.Is(err, model.ErrUnknownOutcome):
		err = model.Unavailable("The database did not answer; whether the change was made is not known yet.", err)
	case classify(err) == faultUnavailable || d.closed.Load():
		err = model.Unavailable("The database does not answer.", err)
	case classify(err) == faultRetry || errors.Is(err, errContended):
		err = model.Unavailable("The database is too busy.", err)
	default:
		err = fmt.Errorf("%w: %w", model.ErrDataRefused, err)
	}
	return fmt.Errorf("%s: %w", action, err)
}

// notFound makes an absent row the domain's NOT_FOUND.
func notFound(err error, what string) error {
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return model.NotFound(what)
	}
	return err
}
