package app

import (
	"log/slog"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/testserver"
)

// Of several instances on one database one has the simulator, and with it the ledger; a second one says what to set. When
// the first has stopped, another one may have it.
func TestOneInstanceHasTheSimulator(t *testing.T) {
	t.Parallel()
	settings := []string{
		"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + testserver.SharedRedis(t),
		"SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more", "SECKILL_CODE_KEY=a key of codes in tests, 32 bytes or more",
		"SECKILL_WEBHOOK_SECRETS=a secret of webhooks, 24 bytes or more", "SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0",
	}
	start := func(more ...string) (*Instance, error) {
		cfg := testserver.Value(config.Load(append(append(more, "SECKILL_DATA_DIR="+t.TempDir()), settings...)))(t)
		return Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	}
	first := testserver.Value(start("SECKILL_PAYMENT_SIMULATOR=on"))(t)
	if _, err := start("SECKILL_PAYMENT_SIMULATOR=on"); err == nil || !strings.Contains(err.Error(), "SECKILL_PAYMENT_URL") {
		t.Errorf("a second simulator: %v", err)
	}
	sharing := testserver.Value(start("SECKILL_PAYMENT_URL=http://127.0.0.1:9"))(t)
	testserver.Must(t, first.Stop(t.Context()))
	next := testserver.Value(start("SECKILL_PAYMENT_SIMULATOR=on"))(t)
	testserver.Must(t, next.Stop(t.Context()))
	testserver.Must(t, sharing.Stop(t.Context()))
}
