package sqldb

import "fmt"

// Dialect is what differs between the databases in the service's SQL,
// which is written for MySQL.
type Dialect struct {
	Name string
	// Now is the database's clock, in the type of the DATETIME columns.
	Now string
	// HourAgo is an hour before now, and InAnHour an hour after it.
	HourAgo, InAnHour string
	// Share ends a SELECT whose rows must not change until the transaction ends.
	// SQLite's transactions are alone anyway.
	Share string
	// ByPrimaryKey follows the name of a table that is read through its primary key alone.
	// SQLite locks no rows, so that it does not matter there.
	ByPrimaryKey string
	// Purge makes a statement that deletes the oldest rows of a table, by a column that
	// tells their time: those before an instant, at most so many.
	Purge func(table, column string) string
}

func mysqlDialect() Dialect {
	return Dialect{
		Name:     MySQL,
		Now:      "NOW(6)",
		HourAgo:  "(NOW(6) - INTERVAL 1 HOUR)",
		InAnHour: "(NOW(6) + INTERVAL 1 HOUR)",
		Share:    " LOCK IN SHARE MODE", // MariaDB knows no FOR SHARE

		ByPrimaryKey: " FORCE INDEX (PRIMARY)",
		Purge: func(table, column string) string {
			return fmt.Sprintf("DELETE FROM %[1]s WHERE %[2]s < ? ORDER BY %[2]s LIMIT ?", table, column)
		},
	}
}

// onTiDB is the dialect of TiDB, which refuses LOCK IN SHARE MODE (1235) because it has
// no such lock. The lock that excludes others as well lets transactions wait for each
// other that need not, and nothing else changes. GET_LOCK with no time to wait, which
// claims and migrations use, waits a second there.
func (d Dialect) onTiDB() Dialect {
	d.Share = " FOR UPDATE"
	return d
}

// sqliteDialect: columns hold microseconds since 1970. SQLite's clock counts
// milliseconds; its result is rounded because it is a floating point number.
// A DELETE with a LIMIT is an option that SQLite is built without.
func sqliteDialect() Dialect {
	const now = "(CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) * 1000)"
	return Dialect{
		Name:     SQLite,
		Now:      now,
		HourAgo:  "(" + now + " - 3600000000)",
		InAnHour: "(" + now + " + 3600000000)",

		Purge: func(table, column string) string {
			return fmt.Sprintf("DELETE FROM %[1]s WHERE rowid IN (SELECT rowid FROM %[1]s WHERE %[2]s < ? ORDER BY %[2]s LIMIT ?)", table, column)
		},
	}
}

// Through names a table that is read through an index, whatever the optimizer thinks:
// by its estimates it would now and then read all vouchers of a window and sort them.
func (d Dialect) Through(table, index string) string {
	if d.Name == SQLite {
		return table + " INDEXED BY " + index
	}
	return table + " FORCE INDEX (" + index + ")"
}
