//go:build faults

//part:clusters

package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// secured is an engine of Redis servers that speak TLS only with who shows a certificate, also among each other.
type secured struct {
	url, plain string
	// kill ends the primary that holds a voucher's hot copy, and returns when another one has its place.
	kill func(t *testing.T, voucherID string)
}

// securedEngines are those of several servers.
func securedEngines(files testserver.Certificates) map[string]func(*testing.T) secured {
	return map[string]func(*testing.T) secured{
		"cluster": func(t *testing.T) secured {
			t.Helper()
			c := testserver.RedisClusterOverTLS(t, files, "--cluster-node-timeout", shortElection, "--appendonly", "no")
			return secured{url: c.URL(), plain: "rediss+cluster://" + c.Primaries[0].Addr(), kill: func(t *testing.T, voucherID string) {
				t.Helper()
				i := c.Owner(t, "{"+voucherID+"}")
				c.Primaries[i].Kill()
				check.Eventually(t, "the replica is promoted", func() bool { return testserver.Primary(t, c.Replicas[i]) })
			}}
		},
		"sentinels": func(t *testing.T) secured {
			t.Helper()
			s := testserver.RedisSentinelsOverTLS(t, files, testserver.UntilDown, "--appendonly", "no")
			plain := "rediss+sentinel://" + s.Sentinels[0].Addr() + "/" + testserver.SentinelPrimary
			return secured{url: s.URL(), plain: plain, kill: func(t *testing.T, _ string) {
				t.Helper()
				s.Settle(t)
				replacePrimary(t, s)
			}}
		},
	}
}

// A sale in both order modes through a Redis Cluster, and through Sentinels, over TLS with a certificate of the service
// and a name that the settings say. The primary dies during it. Each node and each Sentinel is spoken to so, also those
// that the settings do not name. What does not fit is refused at the start with a sentence.
func TestRedisServersOverTLS(t *testing.T) {
	t.Parallel()
	files, stranger := testserver.NewCertificates(t, "servers.test"), testserver.NewCertificates(t, "servers.test")
	for name, engine := range securedEngines(files) {
		for mode, on := range failovers(t) {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				e := engine(t)
				s := on(t).with(settings{
					"SECKILL_REDIS_URL":     e.url,
					"SECKILL_REDIS_TLS_CA":  files.CA,
					"SECKILL_REDIS_TLS_KEY": files.ClientKey, "SECKILL_REDIS_TLS_CERT": files.ClientCert,
					"SECKILL_REDIS_TLS_SERVER_NAME": "servers.test",
				})
				if mode == "sync" { // the start is the same in async
					refusedAtStart(t, s, stranger, e.plain)
				}
				a := start(t, s)
				f := a.flowing(t, a.onSale(t, 100_000).ID, 3, a.user)
				f.sold(t, ordersBefore(t))
				killed := time.Now()
				e.kill(t, f.voucher)
				elected := time.Now()
				f.sold(t, ordersBefore(t))
				f.failedOver(t, "over TLS", killed, elected)
				f.conservedFlow(t)
			})
		}
	}
}

// refusedAtStart: no service starts with settings that do not fit servers that want TLS. Plain is one that does not speak it.
func refusedAtStart(t *testing.T, s settings, stranger testserver.Certificates, plain string) {
	t.Helper()
	const (
		url, ca, serverName = "SECKILL_REDIS_URL", "SECKILL_REDIS_TLS_CA", "SECKILL_REDIS_TLS_SERVER_NAME"
		cert, key           = "SECKILL_REDIS_TLS_CERT", "SECKILL_REDIS_TLS_KEY"
	)
	lacks := []string{"remote error: tls", "does not take the service's certificate"} // the servers say it and hang up, which may overtake it
	for name, wrong := range map[string]struct {
		change settings
		why    []string // one of them
	}{
		"another authority":          {settings{ca: stranger.CA}, []string{"signed by unknown authority"}},
		"no name":                    {settings{serverName: ""}, []string{"for 127.0.0.1"}},
		"another name":               {settings{serverName: "other.test"}, []string{"not other.test"}},
		"no certificate":             {settings{cert: "", key: ""}, lacks},
		"a stranger's certificate":   {settings{cert: stranger.ClientCert, key: stranger.ClientKey}, lacks},
		"plain text":                 {settings{url: strings.ReplaceAll(s[url], "rediss", "redis"), ca: "", cert: "", key: "", serverName: ""}, []string{"write rediss://"}},
		"TLS where nobody speaks it": {settings{url: plain}, []string{"speaks no TLS"}},
	} {
		instance, err := begin(t, s.with(wrong.change))
		if err == nil {
			t.Errorf("%s: it starts", name)
			instance.Stop(t.Context())
			continue
		}
		said := func(why string) bool { return strings.Contains(err.Error(), why) }
		if !said(url) || !slices.ContainsFunc(wrong.why, said) {
			t.Errorf("%s: %v, want one of %q", name, err, wrong.why)
		}
	}
}
