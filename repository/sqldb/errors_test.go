package sqldb

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func mysqlError(number uint16, state string) error {
	e := &mysql.MySQLError{Number: number}
	copy(e.SQLState[:], state)
	return e
}

// All errors of MariaDB and MySQL are classified. A number that a server learns one day means "later", like most.
func TestClassifyServerErrors(t *testing.T) {
	t.Parallel()
	classes := map[string]fault{"away": faultAway, "data": faultData, "duplicate": faultDuplicate, "retry": faultRetry}
	listed := map[int]bool{}
	seen := map[fault]int{}
	table := check.Value(os.ReadFile("testdata/server_errors.tsv"))(t)
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(strings.TrimSpace(line), "\t")
		number, err := strconv.Atoi(row[0])
		want, known := classes[row[4]]
		check.Need(t, err == nil && known, "not a row of the table: %q", line)
		listed[number] = true
		seen[want]++
		check.Equal(t, strings.TrimSpace(line), classify(mysqlError(uint16(number), row[3])), want)
		if class := row[3][:2]; want == faultData && class != "22" && class != "23" && number != 1366 &&
			number != 3819 {
			t.Errorf("%s: class %s does not say that the data are to blame", line, class)
		}
	}
	check.That(t, len(seen) == len(classes) && seen[faultAway] >= 2500, "classes of the table: %v", seen)
	for number := range 1 << 16 {
		if listed[number] {
			continue
		}
		for _, state := range []string{"", "HY000", "45000", "08S01", "28000", "XX000"} {
			got := classify(mysqlError(uint16(number), state))
			check.That(t, got == faultAway, "unknown error %d (%s): %d", number, state, got)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want fault
	}{
		{mysqlError(1644, "23000"), faultAway}, // a trigger's SIGNAL
		{mysqlError(1406, ""), faultAway},      // a proxy that sends no SQLSTATE
		{mysql.ErrInvalidConn, faultAway},
		{driver.ErrBadConn, faultAway},
		{fmt.Errorf("%w; %w", mysqlError(1213, "40001"), driver.ErrBadConn), faultRetry},
		{io.ErrUnexpectedEOF, faultAway},
		{context.DeadlineExceeded, faultAway},
		{context.Canceled, faultAway},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, faultAway},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, faultAway},
		{gorm.ErrRecordNotFound, faultAway},
		{errors.New("what is this"), faultAway},
		{commitError(mysqlError(1180, "HY000")), faultAway}, // not simply again
		{nil, faultNone},
		{model.Conflict("no"), faultNone},
		{model.ErrSuperseded, faultNone},
	} {
		errs := []error{test.err}
		if test.err != nil {
			errs = append(errs, fmt.Errorf("wrapped: %w", test.err))
		}
		for _, err := range errs {
			check.Equal(t, fmt.Sprint(err), classify(err), test.want)
		}
	}
}

func TestClassifySQLite(t *testing.T) {
	t.Parallel()
	db := check.Value(openSQLite(sql.OpenDB, filepath.Join(t.TempDir(), "errors")))(t)
	defer db.Close()
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), `CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT UNIQUE NOT NULL, c INT CHECK (c > 0)) STRICT;
		INSERT INTO t VALUES (1, 'x', 1);
		CREATE TRIGGER no BEFORE INSERT ON t WHEN NEW.b = 'trigger' BEGIN SELECT RAISE(ABORT, 'no'); END`)))
	for statement, want := range map[string]fault{
		"INSERT INTO t VALUES (1, 'y', 1)":       faultDuplicate,
		"INSERT INTO t VALUES (2, 'x', 1)":       faultDuplicate,
		"INSERT INTO t VALUES (2, NULL, 1)":      faultData,
		"INSERT INTO t VALUES (2, 'y', 0)":       faultData,
		"INSERT INTO t VALUES (2, 'y', 'z')":     faultData,
		"INSERT INTO t VALUES (2, 'trigger', 1)": faultAway,
		"INSERT INTO t VALUES (2)":               faultAway,
		"INSERT INTO absent VALUES (2)":          faultAway,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		check.That(t, classify(err) == want, "%s: %v is %d, want %d", statement, err, classify(err), want)
	}
}

// TestFail: what is not known to be the data's fault is UNAVAILABLE.
func TestFail(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		code model.Code
		data bool
	}{
		{mysqlError(1146, "42S02"), model.CodeUnavailable, false},
		{mysqlError(1062, "23000"), model.CodeUnavailable, false},
		{mysqlError(9001, "HY000"), model.CodeUnavailable, false},
		{errors.New("what is this"), model.CodeUnavailable, false},
		{ErrContended, model.CodeUnavailable, false},
		{mysqlError(1406, "22001"), model.CodeInternal, true},
		{model.Conflict("no"), model.CodeConflict, false},
		{model.ErrSuperseded, model.CodeInternal, false},
	} {
		err := Named("try", test.err)
		check.That(t, model.CodeOf(err) == test.code && errors.Is(err, model.ErrDataRefused) == test.data &&
			errors.Is(err, test.err), "%v: %v", test.err, err)
	}
}

// TestCommitError: only a transaction that was rolled back for certain is a no.
func TestCommitError(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err     error
		unknown bool
	}{
		{nil, false},
		{mysqlError(1213, "40001"), false},
		{mysqlError(3101, "40000"), false},
		{mysqlError(9999, "40003"), true}, // completion unknown
		{mysqlError(1047, "08S01"), true},
		{mysqlError(1290, "HY000"), true},
		{mysqlError(1053, "08S01"), true},
		{mysqlError(1317, "70100"), true},
		{mysqlError(1180, "HY000"), true},
		{mysqlError(1213, ""), true},
		{mysql.ErrInvalidConn, true},
		{driver.ErrBadConn, true},
		{io.EOF, true},
		{errors.New("who knows"), true},
	} {
		got := commitError(test.err)
		check.That(t, errors.Is(got, model.ErrUnknownOutcome) == test.unknown && (got == nil) == (test.err == nil) &&
			errors.Is(got, test.err), "%v: %v", test.err, got)
	}
}

func TestSupportedVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"10.11.19-MariaDB-0+deb12u1": true, "10.6.0-MariaDB": true, "10.5.29-MariaDB": false, "5.5.5-10.4.1-MariaDB": false,
		"11.8.3-MariaDB": true, "8.0.16": true, "8.0.15": false, "8.4.5": true, "9.1.0": true, "5.7.44-log": false, "odd": true,
		"5.7.25-TiDB-v7.1.5": false, "5.7.25-TiDB-v7.2.0": true, "8.0.11-TiDB-v8.5.1": true, "8.0.11-TiDB-v6.5.0-serverless": false,
	} {
		check.Equal(t, version+" is supported", supported(version), want)
	}
}

// TiDB was not run. It answers LOCK IN SHARE MODE with 1235 (42000), which says nothing about an order.
func TestTiDBIsNotAskedForWhatItLacks(t *testing.T) {
	t.Parallel()
	check.Equal(t, "the lock of a row that must not change", mysqlDialect().onTiDB().Share, " FOR UPDATE")
	check.Equal(t, "a refused lock", classify(mysqlError(1235, "42000")), faultAway)
}

func TestLockNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	long := "a_schema_whose_name_is_as_long_as_it_can_be_in_mysql_which_is_64"
	for _, schema := range []string{"a", "b", long, long[:63] + "5"} {
		for _, name := range []string{"migrate", "embedded"} {
			lock := lockName(schema, name)
			check.That(t, len(lock) <= longestLockName && !seen[lock], "%s and %s: %s", schema, name, lock)
			seen[lock] = true
		}
	}
}

// TestOneWriter: SQLite is written through one connection of this process, whatever reads besides.
func TestOneWriter(t *testing.T) {
	t.Parallel()
	d := check.Value(Open(t.Context(), Options{SQLiteFile: filepath.Join(t.TempDir(), "x.db")}))(t)
	defer func() { check.Must(t, d.Close()) }()
	check.Must(t, d.Transaction(t.Context(), func(*gorm.DB) error {
		check.That(t, d.writer.Stats().InUse == 1 && d.sql.Stats().InUse == 0,
			"writer %+v, readers %+v", d.writer.Stats(), d.sql.Stats())
		return d.sql.PingContext(t.Context())
	}))
}

// A start meets what passes again, and only that.
func TestAStartIsPatient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		for what, c := range map[string]struct {
			err   error
			calls int
		}{
			"a connection takes too long":  {fmt.Errorf("connect to migrate: %w", slow), startAttempts},
			"a connection broke":           {fmt.Errorf("migrate: %w", mysql.ErrInvalidConn), startAttempts},
			"a proxy has no server":        {fmt.Errorf("migrate: %w", driver.ErrBadConn), startAttempts},
			"a row is locked":              {mysqlError(lockWait, "HY000"), startAttempts},
			"nobody listens":               {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 1},
			"a statement that is no good":  {mysqlError(1064, "42000"), 1},
			"the answer of another server": {model.Unavailable("too old", nil), 1},
		} {
			calls := 0
			err := patiently(t.Context(), func() error { calls++; return c.err })
			check.Is(t, what, err, c.err)
			check.Equal(t, what+": attempts", calls, c.calls)
		}
		for _, passing := range []error{slow, mysql.ErrInvalidConn} {
			calls := 0
			check.Must(t, patiently(t.Context(), func() error {
				if calls++; calls < 3 {
					return passing
				}
				return nil
			}))
		}
	})
}
