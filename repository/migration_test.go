package repository_test

import (
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// A version goes on with a schema to which a later one has added: it asks for its own migrations, and undoes none.
func TestANewerSchemaIsTaken(t *testing.T) {
	t.Parallel()
	for _, s := range dialects() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			f := freshFixture(t, s)
			f.exec(t, "ALTER TABLE vouchers ADD COLUMN later INT NOT NULL DEFAULT 7")
			f.exec(t, "INSERT INTO schema_versions (version_id, is_applied) VALUES (99999, 1)")
			check.Must(t, f.db.Migrate(t.Context()))
			for _, migration := range check.Value(f.db.MigrationStatus(t.Context()))(t) {
				if !migration.Applied {
					t.Errorf("%s counts as missing", migration.Name)
				}
			}
			f.onSale(t, 3)
			var kept int
			check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM vouchers WHERE later = 7").Scan(&kept))
			check.Equal(t, "vouchers with the later column", kept, 1)
		})
	}
}

// A database from before the first version is refused with a sentence, and left as it is.
func TestADatabaseOfBeforeIsRefused(t *testing.T) {
	t.Parallel()
	for _, s := range dialects() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			f := openFixture(t, s, emptyDatabase(t, s))
			f.exec(t, "CREATE TABLE schema_migrations (version_id BIGINT NOT NULL)")
			f.exec(t, "INSERT INTO schema_migrations (version_id) VALUES (31)")
			err := f.db.Migrate(t.Context())
			wantCode(t, err, model.CodeUnavailable)
			check.That(t, err != nil && strings.Contains(err.Error(), "before version 1.0.0"), "%v", err)
			wantCode(t, f.db.SchemaProbe()(t.Context()), model.CodeUnavailable)
			if f.db.SQL().QueryRowContext(t.Context(), "SELECT 1 FROM vouchers").Scan(new(int)) == nil {
				t.Error("a table was made in it")
			}
		})
	}
}
