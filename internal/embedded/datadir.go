package embedded

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// DataDir is a data directory that this process alone serves from.
type DataDir struct {
	path  string
	guard *flock.Flock
}

// ClaimDataDir makes the directory if it is missing and keeps every other
// process from opening it until Close or the end of this process: two servers
// on one SQLite file, each with a Redis of its own, would not exclude each
// other's buyers. Reading and changing the database from another command
// (`audit`, `admin create`) needs no DataDir.
func ClaimDataDir(path string) (*DataDir, error) {
	if err := MakeDir(path); err != nil {
		return nil, err
	}
	guard := flock.New(filepath.Join(path, "serve.lock"), flock.SetPermissions(0o600))
	locked, err := guard.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the data directory %s: %w", path, err)
	}
	if !locked {
		return nil, fmt.Errorf("another seckill serves from the data directory %s: "+
			"stop it, or choose another directory with SECKILL_DATA_DIR", path)
	}
	return &DataDir{path: path, guard: guard}, nil
}

// Path is the directory.
func (d *DataDir) Path() string { return d.path }

// Close lets others serve from the directory. It is safe to call twice.
func (d *DataDir) Close() error {
	if err := d.guard.Close(); err != nil {
		return fmt.Errorf("unlock the data directory %s: %w", d.path, err)
	}
	return nil
}

// SQLiteFile is where the embedded database of a data directory lies.
func SQLiteFile(dir string) string { return filepath.Join(dir, "seckill.db") }

// MakeDir makes a directory that no other user of the machine may read: it holds
// password hashes and the secret that makes administrators.
func MakeDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return nil
}
