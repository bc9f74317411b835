package sqldb

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

func TestHostsOfADSN(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"u:p@tcp(h1:3306)/x":                           "h1:3306",
		"u:p@tcp(h1:3306,h2:3307)/x":                   "h1:3306 h2:3307",
		"u:p@tcp(h1,h2,h3:9)/x?tls=skip-verify":        "h1:3306 h2:3306 h3:9",
		"u:p@tcp([::1]:3306,[fe80::1]:3307)/x":         "[::1]:3306 [fe80::1]:3307",
		"u:a,b)/@tcp(c,d@tcp(h1:3306, h2:3306)/x":      "h1:3306 h2:3306",
		"u@unix(/run/a,b.sock)/x":                      "/run/a,b.sock",
		"/x":                                           "127.0.0.1:3306",
		"u:p@/x":                                       "127.0.0.1:3306",
		"u:p@tcp/x":                                    "127.0.0.1:3306",
		"u:p@tcp(h1:3306,,h2:3306)/x":                  "",
		"u:p@tcp(h1:3306,)/x":                          "",
		"u:p@tcp(h1:3306,h2:3306/x":                    "",
		"u:p@tcp(" + strings.Repeat("h,", 16) + "h)/x": "",
	} {
		configs, err := mysqlConfigs(Options{DSN: dsn, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			if want != "" || strings.Contains(err.Error(), "p@") {
				t.Errorf("%s: %v", dsn, err)
			}
			continue
		}
		var addresses []string
		for _, cfg := range configs {
			addresses = append(addresses, cfg.Addr)
		}
		check.Equal(t, dsn, strings.Join(addresses, " "), want)
	}
	names := check.Value(mysqlConfigs(Options{DSN: "u@tcp(h1,h2)/x?tls=true", Log: slog.New(slog.DiscardHandler)}))(t)
	if got := []string{names[0].TLS.ServerName, names[1].TLS.ServerName}; !slices.Equal(got, []string{"h1", "h2"}) {
		t.Errorf("the names that certificates must have: %q", got)
	}
	if hostLookEvery+hostLookBudget >= time.Second {
		t.Error("a server that hangs is not left within a second")
	}
}
