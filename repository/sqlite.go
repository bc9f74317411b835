package repository

import (
	"database/sql"
	"errors"
	"net/url"

	"modernc.org/sqlite"
)

// sqliteDriver is the name under which modernc.org/sqlite registers itself:
// SQLite without cgo.
const sqliteDriver = "sqlite"

// openSQLite makes a pool on a file.
//   - WAL: readers do not wait for the writer, nor it for them.
//   - synchronous=FULL: what was answered survives a power cut.
//   - BEGIN IMMEDIATE: a transaction that reads and then writes would
//     otherwise fail when another wrote in between.
//   - busy_timeout: the wait, in milliseconds, for a writer of another process;
//     like innodb_lock_wait_timeout.
//   - Times are microseconds since 1970: they sort and compare exactly.
//
// Foreign keys are not used, so their setting does not matter.
func openSQLite(file string) (*sql.DB, error) {
	query := url.Values{
		"_busy_timeout":        {"3000"},
		"_journal_mode":        {"WAL"},
		"_synchronous":         {"FULL"},
		"_txlock":              {"immediate"},
		"_time_integer_format": {"unix_micro"},
		"_inttotime":           {"1"},
		"_timezone":            {"UTC"},
		"_dqs":                 {"0"},
	}
	name := url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: query.Encode()}
	connector, err := sqlite.NewConnector(name.String())
	if err != nil {
		return nil, errors.New("the name of SQLite's file is no good")
	}
	return sql.OpenDB(endingConnector{connector}), nil
}
