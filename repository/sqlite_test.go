package repository

import (
	"path/filepath"
	"testing"

	"gorm.io/gorm"
)

// TestOneWriter: SQLite is written through one connection of this process,
// whatever reads besides.
func TestOneWriter(t *testing.T) {
	t.Parallel()
	d, err := Open(t.Context(), Options{SQLiteFile: filepath.Join(t.TempDir(), "x.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	err = d.transaction(t.Context(), func(*gorm.DB) error {
		if d.writer.Stats().InUse != 1 || d.sql.Stats().InUse != 0 {
			t.Errorf("writer %+v, readers %+v", d.writer.Stats(), d.sql.Stats())
		}
		return d.sql.PingContext(t.Context())
	})
	if err != nil {
		t.Error(err)
	}
}
