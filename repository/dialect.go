package repository

import (
	"strings"
	"time"
)

// dialect is what differs between the databases in the SQL of this package,
// which is written for MySQL.
type dialect struct {
	name string
	// now is the database's clock, in the type of the DATETIME columns.
	now string
	// hourAgo is an hour before now, and inAnHour an hour after it.
	hourAgo, inAnHour string
	// share ends a SELECT whose rows must not change until the transaction ends.
	// SQLite's transactions are alone anyway.
	share string
	// purge deletes the oldest idempotency keys before an instant, at most so
	// many.
	purge string
}

func mysqlDialect() dialect {
	return dialect{
		name:     dialectMySQL,
		now:      "NOW(6)",
		hourAgo:  "(NOW(6) - INTERVAL 1 HOUR)",
		inAnHour: "(NOW(6) + INTERVAL 1 HOUR)",
		share:    " LOCK IN SHARE MODE", // MariaDB knows no FOR SHARE
		purge:    "DELETE FROM idempotency_keys WHERE created_at < ? ORDER BY created_at LIMIT ?",
	}
}

// sqliteDialect: columns hold microseconds since 1970. SQLite's clock counts
// milliseconds; its result is rounded because it is a floating point number.
// A DELETE with a LIMIT is an option that SQLite is built without.
func sqliteDialect() dialect {
	const now = "(CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) * 1000)"
	return dialect{
		name:     dialectSQLite,
		now:      now,
		hourAgo:  "(" + now + " - 3600000000)",
		inAnHour: "(" + now + " + 3600000000)",
		purge: "DELETE FROM idempotency_keys WHERE rowid IN " +
			"(SELECT rowid FROM idempotency_keys WHERE created_at < ? ORDER BY created_at LIMIT ?)",
	}
}

// mode is the order mode as a value within a SELECT. It says that it locks: under
// READ COMMITTED a subselect locks nothing by itself, not even in an UPDATE.
func (d dialect) mode() string { return "(SELECT mode FROM order_mode WHERE id = 1" + d.share + ")" }

// sql makes a statement of an embedded file: without its comments, and with
// the dialect's clock in place of NOW(6).
func (d dialect) sql(file string) string {
	var lines []string
	for line := range strings.Lines(file) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, " "), "NOW(6)", d.now)
}

// resolution is what the DATETIME columns keep; times are cut to it before
// they are compared with what the database gives back.
const resolution = time.Microsecond

// stored is an instant as the database keeps it.
func stored(t time.Time) time.Time { return t.UTC().Truncate(resolution) }
