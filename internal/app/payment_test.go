package app

import (
	"log/slog"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// Of several instances on one database one has the simulator, and with it the ledger; the start of a second one says what
// to set. When the first has stopped, another one has it.
func TestOneInstanceHasTheSimulator(t *testing.T) {
	t.Parallel()
	settings := []string{
		"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + testserver.SharedRedis(t),
		"SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more", "SECKILL_CODE_KEY=a key of codes in tests, 32 bytes or more",
		"SECKILL_WEBHOOK_SECRETS=a secret of webhooks of 24 bytes or more", "SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0",
	}
	start := func(setting string, warns bool) *Instance {
		var log check.Log
		cfg := check.Value(config.Load(append([]string{setting, "SECKILL_DATA_DIR=" + t.TempDir()}, settings...)))(t)
		instance := check.Value(Start(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil))))(t)
		if warned := strings.Contains(log.String(), "SECKILL_PAYMENT_URL to the other"); warned != warns {
			t.Errorf("%s: warned %t, want %t", setting, warned, warns)
		}
		return instance
	}
	const simulator = "SECKILL_PAYMENT_SIMULATOR=on"
	first := start(simulator, false)
	second := start(simulator, true)
	sharing := start("SECKILL_PAYMENT_URL=http://127.0.0.1:9", false)
	for _, instance := range []*Instance{first, second} {
		stopNow(instance)
	}
	next := start(simulator, false)
	stopNow(next)
	stopNow(sharing)
}

// Whoever forgets the payments hears of it at the start, and not from the first buyer: one line names the settings.
func TestAStartWithoutPaymentsSaysSo(t *testing.T) {
	t.Parallel()
	for setting, lines := range map[string]int{
		"SECKILL_PAYMENT_SIMULATOR=off":          1,
		"SECKILL_PAYMENT_SIMULATOR=on":           0,
		"SECKILL_PAYMENT_URL=http://127.0.0.1:9": 0,
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			var log check.Log
			cfg := check.Value(config.Load([]string{
				setting, "SECKILL_WEBHOOK_SECRETS=a secret of webhooks of 24 bytes or more", "SECKILL_DATA_DIR=" + t.TempDir(),
				"SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0",
			}))(t)
			stopNow(check.Value(Start(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil))))(t))
			warned := 0
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "level=WARN") && strings.Contains(line, "SECKILL_PAYMENT_URL") && strings.Contains(line, "SECKILL_PAYMENT_SIMULATOR=on") {
					warned++
				}
			}
			check.Equal(t, "lines", warned, lines)
		})
	}
}
