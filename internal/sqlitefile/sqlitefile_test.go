package sqlitefile_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"seckill/internal/sqlitefile"
	"seckill/internal/workshop/check"
)

// TestANewFileIsBusy: connecting waits until another process has written into a new file, which is no WAL yet.
func TestANewFileIsBusy(t *testing.T) {
	t.Parallel()
	writing, db := besideAWriter(t)
	connected := make(chan error, 1)
	go func() { connected <- db.PingContext(t.Context()) }()
	check.Stays(t, "nobody is connected beside a writer", func() bool { return len(connected) == 0 })
	check.Value(writing.ExecContext(t.Context(), "COMMIT"))(t)
	check.Must(t, check.Receive(t, "the connection", connected))
	var mode string
	check.Must(t, db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	check.Equal(t, "the mode", mode, "wal")
}

// TestAFileStaysBusy: a writer that does not end is not waited for forever.
func TestAFileStaysBusy(t *testing.T) {
	t.Parallel()
	_, db := besideAWriter(t)
	err := db.PingContext(t.Context())
	check.That(t, sqlitefile.Busy(err), "connected beside a writer: %v", err)
}

func besideAWriter(t *testing.T) (writing *sql.Conn, db *sql.DB) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "new.db")
	other := check.Value(sql.Open("sqlite", "file:"+file+"?_busy_timeout=3000"))(t)
	t.Cleanup(func() { check.Must(t, other.Close()) })
	writing = check.Value(other.Conn(t.Context()))(t)
	t.Cleanup(func() { check.Must(t, writing.Close()) })
	check.Value(writing.ExecContext(t.Context(), "CREATE TABLE t (x INTEGER)"))(t)
	check.Value(writing.ExecContext(t.Context(), "BEGIN IMMEDIATE"))(t)

	db = sql.OpenDB(check.Value(sqlitefile.Connector(file, nil))(t))
	t.Cleanup(func() { check.Must(t, db.Close()) })
	return writing, db
}
