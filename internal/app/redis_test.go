package app

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"seckill/internal/redisdb"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/repository/hotcopy"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// stopNow stops an instance without the grace in which others notice.
func stopNow(instance *Instance) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	instance.Stop(now)
}

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
			client := check.Value(hotcopy.NewClient(testserver.Redis(t, tt.args...).URL(), nil))(t)
			defer client.Close()
			var said bytes.Buffer
			redisdb.AdviseExpiry(t.Context(), client, slog.New(slog.NewTextHandler(&said, nil)))
			if named := strings.Contains(said.String(), "lazyfree-lazy-expire yes"); named != tt.named {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}
