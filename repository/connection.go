package repository

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// endingConnector opens connections that do not outlive a COMMIT or ROLLBACK
// that failed. A server may refuse either and keep the transaction open, as a
// cluster's node without quorum does, and the next BEGIN on that connection
// would commit what was to be undone. The pool by itself closes only a
// connection that returned driver.ErrBadConn.
type endingConnector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c endingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	whole, ok := conn.(wholeConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("connection of type %T is not whole", conn)
	}
	return endingConn{wholeConn: whole, refused: new(bool)}, nil
}

// wholeConn is what the connections of both drivers can do. The pool looks for
// each of these, and would do without one that is hidden from it.
type wholeConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type endingConn struct {
	wholeConn

	// refused is set once the server refused a statement for a reason that may be
	// this connection's: it looks at the account's rights when it is opened, and
	// those that were granted since help only a new one.
	refused *bool
}

// IsValid implements driver.Validator: the pool closes a connection that is not.
func (c endingConn) IsValid() bool { return !*c.refused && c.wholeConn.IsValid() }

// ExecContext implements driver.ExecerContext.
func (c endingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.wholeConn.ExecContext(ctx, query, args)
	c.note(err)
	return result, err
}

// QueryContext implements driver.QueryerContext.
func (c endingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.wholeConn.QueryContext(ctx, query, args)
	c.note(err)
	return rows, err
}

func (c endingConn) note(err error) {
	if _, answered := errors.AsType[*mysql.MySQLError](err); answered && classify(err) == faultAway {
		*c.refused = true
	}
}

// BeginTx implements driver.ConnBeginTx.
func (c endingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.wholeConn.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return endingTx{tx}, nil
}

// CheckNamedValue implements driver.NamedValueChecker, which only MySQL's driver has.
func (c endingConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.wholeConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip // the pool's own way
}

type endingTx struct{ tx driver.Tx }

// Commit implements driver.Tx.
func (t endingTx) Commit() error { return ending(t.tx.Commit()) }

// Rollback implements driver.Tx.
func (t endingTx) Rollback() error { return ending(t.tx.Rollback()) }

// ending makes the pool close the connection, which ends its transaction.
func ending(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; %w", err, driver.ErrBadConn)
}
