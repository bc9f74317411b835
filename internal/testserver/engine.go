package testserver

import (
	"database/sql"
	"strings"
	"testing"
)

// What MariaDB and MySQL 8 tell of themselves, asked the way that each understands. The pools are an administrator's.

// Status is the sum of a server's counters, by the names that SHOW GLOBAL STATUS has.
func Status(t testing.TB, db *sql.DB, names ...string) (sum int64) {
	t.Helper()
	rows := Value(db.QueryContext(t.Context(), "SHOW GLOBAL STATUS WHERE variable_name IN ('"+strings.Join(names, "', '")+"')"))(t)
	defer rows.Close()
	found := 0
	for ; rows.Next(); found++ {
		var name string
		var value int64
		Must(t, rows.Scan(&name, &value))
		sum += value
	}
	Must(t, rows.Err())
	Equal(t, "counters found", found, len(names))
	return sum
}

// Deadlocks is how many deadlocks a server has ended.
func Deadlocks(t testing.TB, db *sql.DB) (n int64) {
	t.Helper()
	if !OnMySQL() {
		return Status(t, db, "Innodb_deadlocks")
	}
	Must(t, db.QueryRowContext(t.Context(), "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks' AND status = 'enabled'").Scan(&n))
	return n
}

// Waiting tells whether a statement that contains a text waits for a row that another transaction has locked. MariaDB
// says that exactly only to those who look rarely, so that there a statement is taken to wait when it has run for so long.
func Waiting(t testing.TB, db *sql.DB, text string) bool {
	t.Helper()
	question := "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Query' AND time_ms > 50 AND id <> CONNECTION_ID() AND info LIKE ?"
	if OnMySQL() {
		question = "SELECT COUNT(*) FROM performance_schema.data_lock_waits JOIN performance_schema.threads ON thread_id = requesting_thread_id WHERE processlist_info LIKE ?"
	}
	var n int
	Must(t, db.QueryRowContext(t.Context(), question, "%"+text+"%").Scan(&n))
	return n > 0
}

// Step is how a database reads one table of a statement.
type Step struct{ Table, Key, Extra string }

// Plan is how a database would carry a statement out.
func Plan(t testing.TB, db *sql.DB, statement string, args ...any) (steps []Step) {
	t.Helper()
	rows := Value(db.QueryContext(t.Context(), "EXPLAIN "+statement, args...))(t)
	defer rows.Close()
	columns := Value(rows.Columns())(t)
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		Must(t, rows.Scan(into...))
		said := map[string]string{}
		for i, column := range columns {
			said[strings.ToLower(column)] = values[i].String
		}
		steps = append(steps, Step{said["table"], said["key"], said["extra"]})
	}
	Must(t, rows.Err())
	return steps
}
