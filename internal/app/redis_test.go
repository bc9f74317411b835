package app

import (
	"context"
	"testing"

	"seckill/internal/workshop/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// stopNow stops an instance without the grace in which others notice.
func stopNow(instance *Instance) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	instance.Stop(now)
}
