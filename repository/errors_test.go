package repository

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"seckill/model"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	number := func(n uint16) error { return &mysql.MySQLError{Number: n} }
	for _, test := range []struct {
		err  error
		want fault
	}{
		{number(1062), faultDuplicate},
		{number(1213), faultRetry},
		{number(1205), faultRetry},
		{number(1020), faultRetry},
		{number(1290), faultUnavailable},
		{number(1792), faultUnavailable},
		{number(1836), faultUnavailable},
		{number(1040), faultUnavailable},
		{number(1053), faultUnavailable},
		{number(1045), faultUnavailable},
		{number(4025), faultOther}, // CHECK
		{number(1406), faultOther}, // too long
		{number(1146), faultOther}, // no such table
		{mysql.ErrInvalidConn, faultUnavailable},
		{driver.ErrBadConn, faultUnavailable},
		{io.ErrUnexpectedEOF, faultUnavailable},
		{context.DeadlineExceeded, faultUnavailable},
		{context.Canceled, faultUnavailable},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, faultUnavailable},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, faultUnavailable},
		{errors.New("a bug"), faultOther},
		{nil, faultOther},
	} {
		for _, err := range []error{test.err, fmt.Errorf("wrapped: %w", test.err)} {
			if got := classify(err); got != test.want {
				t.Errorf("%v: %d, want %d", err, got, test.want)
			}
		}
	}
}

// TestCommitError: a refusal by the server is a no, silence is unknown.
func TestCommitError(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err     error
		unknown bool
	}{
		{nil, false},
		{&mysql.MySQLError{Number: 1213}, false},
		{&mysql.MySQLError{Number: 1290}, false},
		{&mysql.MySQLError{Number: 1053}, true},
		{&mysql.MySQLError{Number: 1317}, true},
		{mysql.ErrInvalidConn, true},
		{driver.ErrBadConn, true},
		{io.EOF, true},
		{errors.New("who knows"), true},
	} {
		got := commitError(test.err)
		if errors.Is(got, model.ErrUnknownOutcome) != test.unknown || (got == nil) != (test.err == nil) || !errors.Is(got, test.err) {
			t.Errorf("%v: %v", test.err, got)
		}
	}
}

func TestSupportedVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"10.11.19-MariaDB-0+deb12u1": true, "10.6.0-MariaDB": true, "10.5.29-MariaDB": false, "5.5.5-10.4.1-MariaDB": false,
		"11.8.3-MariaDB": true, "8.0.16": true, "8.0.15": false, "8.4.5": true, "9.1.0": true, "5.7.44-log": false, "odd": true,
	} {
		if supported(version) != want {
			t.Errorf("%s: %v", version, !want)
		}
	}
}

func TestLockNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	long := "a_schema_whose_name_is_as_long_as_it_can_be_in_mysql_which_is_64"
	for _, schema := range []string{"a", "b", long, long[:63] + "5"} {
		for _, name := range []string{"migrate", "embedded"} {
			lock := lockName(schema, name)
			if len(lock) > longestLockName || seen[lock] {
				t.Errorf("%s and %s: %s", schema, name, lock)
			}
			seen[lock] = true
		}
	}
}
