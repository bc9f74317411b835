package app

import (
	"log/slog"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// Without its connection to the queue an instance can keep no promise: when the
// client library has given it up, the instance ends, in every role.
func TestInstanceEndsWithoutItsQueue(t *testing.T) {
	t.Parallel()
	for _, role := range []config.Role{config.RoleAPI, config.RoleWorker, config.RoleAll} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			proxy := testserver.NewProxy(t, strings.TrimPrefix(testserver.SharedNATS(t), "nats://"), nil)
			cfg, err := config.Load([]string{
				"SECKILL_ORDER_MODE=async", "SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + testserver.SharedRedis(t),
				"SECKILL_NATS_URL=nats://" + proxy.Addr(), "SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more",
				"SECKILL_ROLE=" + string(role), "SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0", "SECKILL_DATA_DIR=" + t.TempDir(),
			})
			check.Must(t, err)
			instance, err := Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
			check.Must(t, err)
			defer stopNow(instance)
			proxy.Say(t, "-ERR 'nobody knows this one'\r\n")
			if err := check.Receive(t, "the end of the instance", instance.Failed()); err == nil || !strings.Contains(err.Error(), "queue") {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}
