package testserver

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/workshop/check"
)

// What MariaDB and MySQL 8 tell of themselves, asked the way that each understands. The pools are an administrator's.

// Hostile gives a server global settings that operators have for good or bad reasons, and that a service cannot work with
// unless its sessions have their own.
func Hostile(t testing.TB, db *sql.DB) {
	t.Helper()
	for _, setting := range []string{
		"sql_safe_updates = 1", "autocommit = 0", "completion_type = 2", "sql_big_selects = 0", "max_join_size = 3", "sql_select_limit = 1", "sql_auto_is_null = 1",
		"unique_checks = 0", "time_zone = '-11:30'", "innodb_lock_wait_timeout = 1000", "group_concat_max_len = 4", "div_precision_increment = 0",
		"sql_mode = 'ANSI,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO,HIGH_NOT_PRECEDENCE'",
		"character_set_server = latin1", "collation_server = latin1_general_cs", "default_storage_engine = MyISAM", "foreign_key_checks = 0",
		"check_constraint_checks = 0", "TRANSACTION ISOLATION LEVEL SERIALIZABLE", "TRANSACTION READ ONLY",
	} {
		_, err := db.ExecContext(t.Context(), "SET GLOBAL "+setting)
		if known, ok := errors.AsType[*mysql.MySQLError](err); !ok || known.Number != 1193 { // each engine lacks some
			check.Must(t, err)
		}
	}
}

// Status is the sum of a server's counters, by the names that SHOW GLOBAL STATUS has.
func Status(t testing.TB, db *sql.DB, names ...string) (sum int64) {
	t.Helper()
	rows := check.Value(db.QueryContext(t.Context(), "SHOW GLOBAL STATUS WHERE variable_name IN ('"+strings.Join(names, "', '")+"')"))(t)
	defer rows.Close()
	found := 0
	for ; rows.Next(); found++ {
		var name string
		var value int64
		check.Must(t, rows.Scan(&name, &value))
		sum += value
	}
	check.Must(t, rows.Err())
	check.Equal(t, "counters found", found, len(names))
	return sum
}

// Deadlocks is how many deadlocks a server has ended.
func Deadlocks(t testing.TB, db *sql.DB) (n int64) {
	t.Helper()
	if !OnMySQL() {
		return Status(t, db, "Innodb_deadlocks")
	}
	check.Must(t, db.QueryRowContext(t.Context(), "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks' AND status = 'enabled'").Scan(&n))
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
	check.Must(t, db.QueryRowContext(t.Context(), question, "%"+text+"%").Scan(&n))
	return n > 0
}

// Step is how a database reads one table of a statement.
type Step struct{ Table, Key, Extra string }

// Plan is how a database would carry a statement out.
func Plan(t testing.TB, db *sql.DB, statement string, args ...any) (steps []Step) {
	t.Helper()
	rows := check.Value(db.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+statement, args...))(t)
	defer rows.Close()
	columns := check.Value(rows.Columns())(t)
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		check.Must(t, rows.Scan(into...))
		said := map[string]string{}
		for i, column := range columns {
			said[strings.ToLower(column)] = values[i].String
		}
		steps = append(steps, Step{said["table"], said["key"], said["extra"]})
	}
	check.Must(t, rows.Err())
	return steps
}

// Numbers is a table with the numbers from first to last in its column seq, to select from.
func Numbers(first, last int) string {
	if !OnMySQL() {
		return fmt.Sprintf("seq_%d_to_%d", first, last)
	}
	const digit = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5" +
		" UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) AS d%d"
	var sum, digits []string
	for place, weight := 0, 1; weight <= last-first || place == 0; place, weight = place+1, weight*10 {
		sum = append(sum, fmt.Sprintf("%d * d%d.n", weight, place))
		digits = append(digits, fmt.Sprintf(digit, place))
	}
	offset := strings.Join(sum, " + ")
	return fmt.Sprintf("(SELECT %d + %s AS seq FROM %s WHERE %s <= %d) AS numbers", first, offset, strings.Join(digits, " JOIN "), offset, last-first)
}
