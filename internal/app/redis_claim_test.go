package app

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"

	"seckill/internal/testserver"
	"seckill/repository"
)

// The database's clock is set back when another server takes its place. The claim is
// renewed all the same: it must not look abandoned until the clock has caught up.
func TestRedisClaimIsRenewedWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	dsn := testserver.Schema(t)
	db, err := repository.Open(t.Context(), repository.Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	_, err = raw.ExecContext(t.Context(), "UPDATE redis_claim SET identity = 'ours', renewed_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR")
	if err != nil {
		t.Fatal(err)
	}
	r := &redisClaim{claims: repository.NewRedisClaims(db), log: slog.New(slog.DiscardHandler)}
	r.identity = func(context.Context) (string, error) { return "ours", nil }
	if err := r.look(t.Context()); err != nil || r.Selling() != nil {
		t.Errorf("%v, %v", err, r.Selling())
	}
	if _, age, err := r.claims.Read(t.Context()); err != nil || age < 0 {
		t.Errorf("renewed %v ago: %v", age, err)
	}
}
