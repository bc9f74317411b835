package sqlitefile_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"seckill/internal/sqlitefile"
	"seckill/internal/testserver"
)

// TestANewFileIsBusy: another process writes into a new file, which is no WAL yet. Connecting waits until it has written.
func TestANewFileIsBusy(t *testing.T) {
	t.Parallel()
	writing, db := besideAWriter(t)
	connected := make(chan error, 1)
	go func() { connected <- db.PingContext(t.Context()) }()
	select {
	case err := <-connected:
		t.Errorf("connected beside a writer: %v", err)
	case <-time.After(500 * time.Millisecond):
		testserver.Value(writing.ExecContext(t.Context(), "COMMIT"))(t)
		testserver.Must(t, <-connected)
	}
	var mode string
	testserver.Must(t, db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	testserver.Equal(t, "the mode", mode, "wal")
}

// TestAFileStaysBusy: a writer that does not end is not waited for forever.
func TestAFileStaysBusy(t *testing.T) {
	t.Parallel()
	_, db := besideAWriter(t)
	if err := db.PingContext(t.Context()); !sqlitefile.Busy(err) {
		t.Errorf("connected beside a writer: %v", err)
	}
}

// besideAWriter opens a new file, into which another connection writes.
func besideAWriter(t *testing.T) (writing *sql.Conn, db *sql.DB) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "new.db")
	other := testserver.Value(sql.Open("sqlite", "file:"+file+"?_busy_timeout=3000"))(t)
	t.Cleanup(func() { testserver.Must(t, other.Close()) })
	writing = testserver.Value(other.Conn(t.Context()))(t)
	t.Cleanup(func() { testserver.Must(t, writing.Close()) })
	testserver.Value(writing.ExecContext(t.Context(), "CREATE TABLE t (x INTEGER)"))(t)
	testserver.Value(writing.ExecContext(t.Context(), "BEGIN IMMEDIATE"))(t)

	db = sql.OpenDB(testserver.Value(sqlitefile.Connector(file, nil))(t))
	t.Cleanup(func() { testserver.Must(t, db.Close()) })
	return writing, db
}
