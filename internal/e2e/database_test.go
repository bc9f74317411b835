package e2e_test

import (
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql"
)

// holdRow keeps a voucher's row locked, so that orders for it are on their way
// until the returned function lets them go.
func holdRow(t *testing.T, s settings, voucherID string) (release func()) {
	t.Helper()
	db, err := sql.Open("mysql", s["SECKILL_DATABASE_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT id FROM vouchers WHERE id = ? FOR UPDATE", voucherID); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Errorf("let the row go: %v", err)
		}
	}
}
