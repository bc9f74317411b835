package repository

import (
	"fmt"
	"strings"
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
	// byPrimaryKey follows the name of a table that is read through its primary key alone.
	// SQLite locks no rows, so that it does not matter there.
	byPrimaryKey string
	// purge makes a statement that deletes the oldest rows of a table, by a column that
	// tells their time: those before an instant, at most so many.
	purge func(table, column string) string
}

func mysqlDialect() dialect {
	return dialect{
		name:     dialectMySQL,
		now:      "NOW(6)",
		hourAgo:  "(NOW(6) - INTERVAL 1 HOUR)",
		inAnHour: "(NOW(6) + INTERVAL 1 HOUR)",
		share:    " LOCK IN SHARE MODE", // MariaDB knows no FOR SHARE

		byPrimaryKey: " FORCE INDEX (PRIMARY)",
		purge: func(table, column string) string {
			return fmt.Sprintf("DELETE FROM %[1]s WHERE %[2]s < ? ORDER BY %[2]s LIMIT ?", table, column)
		},
	}
}

// onTiDB is the dialect of TiDB, which refuses LOCK IN SHARE MODE (1235) because it has
// no such lock. The lock that excludes others as well lets transactions wait for each
// other that need not, and nothing else changes. GET_LOCK with no time to wait, which
// claims and migrations use, waits a second there.
func (d dialect) onTiDB() dialect {
	d.share = " FOR UPDATE"
	return d
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

		purge: func(table, column string) string {
			return fmt.Sprintf("DELETE FROM %[1]s WHERE rowid IN (SELECT rowid FROM %[1]s WHERE %[2]s < ? ORDER BY %[2]s LIMIT ?)", table, column)
		},
	}
}

// mode is the order mode as a value within a SELECT. It says that it locks: under
// READ COMMITTED a subselect locks nothing by itself, not even in an UPDATE.
func (d dialect) mode() string { return "(SELECT mode FROM order_mode WHERE id = 1" + d.share + ")" }

// sql makes a statement of the file of a name: without its comments, and with
// the dialect's clock in place of NOW(6). It panics when the program was built without
// that file.
func (d dialect) sql(name string) string {
	file, err := statements.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	var lines []string
	for line := range strings.Lines(string(file)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, " "), "NOW(6)", d.now)
}

// through names a table that is read through an index, whatever the optimizer thinks:
// by its estimates it would now and then read all vouchers of a window and sort them.
func (d dialect) through(table, index string) string {
	if d.name == dialectSQLite {
		return table + " INDEXED BY " + index
	}
	return table + " FORCE INDEX (" + index + ")"
}
