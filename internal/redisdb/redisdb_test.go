package redisdb

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// A Redis that would stop while a sale expires is named; one that does not, or does not tell, is not.
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
			client := check.Value(NewClient(testserver.Redis(t, tt.args...).URL(), nil))(t)
			defer client.Close()
			var said bytes.Buffer
			AdviseExpiry(t.Context(), client, slog.New(slog.NewTextHandler(&said, nil)))
			if named := strings.Contains(said.String(), "lazyfree-lazy-expire yes"); named != tt.named {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}
