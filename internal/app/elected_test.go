package app

import (
	"database/sql"
	"log/slog"
	"testing"

	"seckill/config"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// With an embedded Redis beside a real database there is one instance, and it expires orders in sync too.
func TestExpiryInSyncWithAnEmbeddedRedis(t *testing.T) {
	t.Parallel()
	dsn := testserver.Schema(t)
	cfg := check.Value(config.Load([]string{
		"SECKILL_DATABASE_DSN=" + dsn, "SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more",
		"SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0", "SECKILL_DATA_DIR=" + t.TempDir(),
	}))(t)
	instance := check.Value(Start(t.Context(), cfg, slog.New(slog.DiscardHandler)))(t)
	defer stopNow(instance)
	db := check.Value(sql.Open("mysql", dsn))(t)
	defer db.Close()
	for _, statement := range []string{
		"SET sql_mode = ''",
		"INSERT INTO vouchers (id, title, price, currency, stock, remaining, begin_at, end_at) VALUES ('v', 'v', 1, 'CNY', 1, 0, '2020-01-01', '2030-01-01')",
		"INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, expires_at, unpaid_at) " +
			"VALUES ('o.v', 'v', 'u', 'unpaid', 1, 'CNY', '2020-01-01', '2020-01-01', '2020-01-01')",
	} {
		db.SetMaxOpenConns(1) // sql_mode is of a connection
		check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
	}
	check.Eventually(t, "the order expires", func() bool {
		var status string
		return db.QueryRowContext(t.Context(), "SELECT status FROM orders").Scan(&status) == nil && status == "expired"
	})
}
