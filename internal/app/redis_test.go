package app

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"

	"seckill/internal/testserver"
	"seckill/repository"
	"seckill/repository/hotcopy"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// A Redis that would stop while a sale expires is named; one that does not, or does
// not tell, is not.
func TestARedisThatStopsToExpireIsNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args  []string
		named bool
	}{
		"as shipped": {nil, false},
		"off":        {[]string{"--lazyfree-lazy-expire", "no"}, true},
		"silent":     {[]string{"--lazyfree-lazy-expire", "no", "--rename-command", "CONFIG", "none"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := hotcopy.NewClient(testserver.Redis(t, tt.args...).URL(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			var said bytes.Buffer
			adviseExpiry(t.Context(), client, slog.New(slog.NewTextHandler(&said, nil)))
			if named := strings.Contains(said.String(), "lazyfree-lazy-expire yes"); named != tt.named {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}

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
