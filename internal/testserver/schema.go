package testserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"
)

// dropBudget bounds the removal of a test's schema. A test that left a transaction open holds its tables:
// the drop waits for them, and without a bound for ever.
const dropBudget = 30 * time.Second

// Schema returns the DSN of a fresh, empty schema in the MariaDB that all tests of this binary share. It is
// dropped when the test is over. That server flushes lazily: nobody kills it.
func Schema(t testing.TB) string {
	t.Helper()
	shared := &process.database
	if err := shared.open(); err != nil {
		t.Fatalf("testserver: shared MariaDB: %v", err)
	}
	name := "test_" + strconv.FormatInt(process.serial.Add(1), 10)
	if err := shared.exec("CREATE DATABASE " + name); err != nil {
		t.Fatalf("testserver: %v", err)
	}
	t.Cleanup(func() {
		if err := shared.exec("DROP DATABASE " + name); err != nil {
			t.Errorf("testserver: %v (is a transaction of the test still open?)", err)
		}
	})
	return shared.server.DSN(name)
}

// sharedDatabase starts on the first call.
type sharedDatabase struct {
	once   sync.Once
	server *Server
	db     *sql.DB
	err    error
}

func (d *sharedDatabase) open() error {
	d.once.Do(func() {
		d.server, d.err = launch(stderr{}, mariadbEngine(), []string{
			"--innodb-flush-log-at-trx-commit=0",
			"--innodb-doublewrite=OFF",
			// Many parallel tests with a pool each.
			"--max-connections=2000",
		})
		if d.err == nil {
			d.db, d.err = connect(d.server.AdminDSN(""))
		}
	})
	return d.err
}

func (d *sharedDatabase) exec(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dropBudget)
	defer cancel()
	if _, err := d.db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func (d *sharedDatabase) close() error {
	var errs []error
	if d.db != nil {
		errs = append(errs, d.db.Close())
	}
	if d.server != nil {
		d.server.discard()
	}
	return errors.Join(errs...)
}
