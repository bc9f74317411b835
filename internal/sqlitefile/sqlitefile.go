// Package sqlitefile opens a file of SQLite that several processes may use.
package sqlitefile

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"seckill/internal/budget"
	"seckill/internal/poll"
)

const busyTimeout = 3 * budget.Look // for a writer of another process

// Connector connects to the file, and makes it when missing, with the settings given and these of the driver
// (https://pkg.go.dev/modernc.org/sqlite#Driver.Open): WAL, so that readers and the writer do not wait for each other;
// synchronous=FULL, so that an answer survives a power cut; BEGIN IMMEDIATE, as a transaction that reads and then
// writes would fail when another wrote in between; busy_timeout, 3 s for another process's writer.
func Connector(file string, settings url.Values) (driver.Connector, error) {
	query := url.Values{
		"_busy_timeout": {strconv.FormatInt(busyTimeout.Milliseconds(), 10)},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"FULL"},
		"_txlock":       {"immediate"},
	}
	maps.Copy(query, settings)
	name := url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: query.Encode()}
	connector, err := sqlite.NewConnector(name.String())
	if err != nil {
		return nil, errors.New("the name of SQLite's file is no good")
	}
	return waitingConnector{connector}, nil
}

// Open opens the file with its repeatable schema. One connection works at a time: its queue is fair, SQLite's is not.
func Open(ctx context.Context, file, schema string) (*sql.DB, error) {
	connector, err := Connector(file, nil)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", file, err), db.Close())
	}
	return db, nil
}

// waitingConnector waits for another process's writer also while it makes a new file a WAL: SQLite has read it by then
// and waits for no lock (https://www.sqlite.org/c3ref/busy_handler.html), so instances that start together could fail.
type waitingConnector struct{ driver.Connector }

func (c waitingConnector) Connect(ctx context.Context) (conn driver.Conn, err error) {
	patience, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	_ = poll.Until(patience, budget.Blink, func() (done bool, _ error) {
		conn, err = c.Connector.Connect(ctx)
		return !Busy(err), nil
	}) // when the time is up, the last try's error is the answer
	return conn, err
}

// Busy tells whether SQLite was refused a lock, because of another process's.
func Busy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_BUSY
}
