//go:build faults

//part:proxies

package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// proxy is one that stands before two instances, as a configuration in deployments/ makes it.
type proxy struct {
	name, url string
	authority *x509.CertPool

	requests atomic.Int64
	failures atomic.Int64
}

// configured writes a configuration of deployments/ with the places of this test in it.
func configured(t *testing.T, name string, places map[string]string) (path string) {
	t.Helper()
	text := string(check.Value(os.ReadFile(filepath.Join("../../../deployments", name)))(t))
	var pairs []string
	for from, to := range places {
		check.That(t, strings.Contains(text, from), "%s lacks %q", name, from)
		pairs = append(pairs, from, to)
	}
	path = filepath.Join(t.TempDir(), name)
	check.Must(t, os.WriteFile(path, []byte(strings.NewReplacer(pairs...).Replace(text)), 0o600))
	return path
}

// throughProxies starts nginx and HAProxy before the same two instances.
func throughProxies(t *testing.T, first, second *process) []*proxy {
	t.Helper()
	certificates := testserver.NewCertificates(t, "shop.test")
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(check.Value(os.ReadFile(certificates.CA))(t))
	both := filepath.Join(t.TempDir(), "tls.pem")
	check.Must(t, os.WriteFile(both, append(check.Value(os.ReadFile(certificates.Cert))(t), check.Value(os.ReadFile(certificates.Key))(t)...), 0o600))
	dir := t.TempDir()
	one, other := strings.TrimPrefix(first.URL, "http://"), strings.TrimPrefix(second.URL, "http://")

	nginx := &proxy{name: "nginx", url: testserver.Address(t), authority: authority}
	foreground := "daemon off;"
	if os.Geteuid() == 0 {
		foreground += " user root;" // who may read the test's directories
	}
	testserver.Run(t, nil, "nginx", "-g", foreground, "-c", configured(t, "nginx.conf", map[string]string{
		"172.30.47.11:8080": one, "172.30.47.12:8080": other, "listen 8443 ": "listen " + nginx.url + " ", "listen 8080 ": "listen " + testserver.Address(t) + " ",
		"/run/secrets/tls_certificate": certificates.Cert, "/run/secrets/tls_key": certificates.Key,
		"/etc/nginx/problem.conf": check.Value(filepath.Abs("../../../deployments/problem.conf"))(t), "/tmp/": dir + "/",
		"http2 on;": "", // which nginx knows since 1.25
	}))
	haproxy := &proxy{name: "HAProxy", url: testserver.Address(t), authority: authority}
	testserver.Run(t, nil, "haproxy", "-db", "-f", configured(t, "haproxy.cfg", map[string]string{
		"172.30.47.11:8080": one, "172.30.47.12:8080": other, "bind :8443 ": "bind " + haproxy.url + " ", "/run/secrets/tls.pem": both,
	}))
	for _, p := range []*proxy{nginx, haproxy} {
		p.url = "https://" + p.url
		visitor := p.visitor(t, first.app, 0)
		check.Patiently(t, p.name+" serves", func() bool { return visitor.Status("/readyz") == http.StatusOK })
	}
	return []*proxy{nginx, haproxy}
}

// visitor is the service behind the proxy, as one client with an address of its own sees it.
func (p *proxy) visitor(t *testing.T, behind *app, number int) *app {
	t.Helper()
	client := remote.Client(t, fmt.Sprintf("127.0.1.%d", number+1), 4)
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: p.authority, ServerName: "shop.test", MinVersion: tls.VersionTLS12}
	return &app{Service: remote.Service{URL: p.url, Client: client, Tokens: behind.Tokens}, prefix: behind.prefix + p.name + ":"}
}

// visit buys, and looks at what it bought. Each of these requests must be answered as if no instance ever stopped.
func (p *proxy) visit(t *testing.T, a *app, voucher, user string) {
	t.Helper()
	token := a.Token(t, user, model.RoleUser)
	got, ok := p.expect(t, a, http.StatusCreated, http.MethodPost, "/vouchers/"+voucher+"/seckill", token)
	if !ok {
		return
	}
	order := remote.Decode[model.Order](t, got)
	p.expect(t, a, http.StatusOK, http.MethodGet, "/orders/"+order.ID+"?wait=10s", token)
	p.expect(t, a, http.StatusOK, http.MethodGet, "/vouchers/"+voucher, "")
}

func (p *proxy) expect(t *testing.T, a *app, want int, method, path, token string) (got api.Answer, ok bool) {
	t.Helper()
	got, err := a.Send(method, path, token, nil)
	p.requests.Add(1)
	if ok = err == nil && got.Status == want; !ok && p.failures.Add(1) <= 10 {
		t.Errorf("%s: %s %s: %d %s, %v", p.name, method, path, got.Status, got.Body, err)
	}
	return got, ok
}

// TestRestartsBehindProxiesLoseNoRequest: two instances are stopped and started in turn, as a deploy does it, while people buy
// through nginx and HAProxy.
func TestRestartsBehindProxiesLoseNoRequest(t *testing.T) {
	t.Parallel()
	const visitors = 8 // of each proxy
	restarts, wanted := check.Count(t, "RESTARTS", 0, 20), int64(check.Count(t, "REQUESTS", 0, 20_000))
	s := onServers(t).with(settings{
		"SECKILL_DRAIN_GRACE":     "4s", // longer than haproxy.cfg's checks take, and nginx.conf's fail_timeout
		"SECKILL_TRUSTED_PROXIES": "127.0.0.0/8",
	})
	instances := []*process{launch(t, s), launch(t, s)}
	voucher := instances[0].onSale(t, 10_000_000)
	proxies := throughProxies(t, instances[0], instances[1])
	var crowd sync.WaitGroup
	var over atomic.Bool
	leave := func() { over.Store(true); crowd.Wait() }
	defer leave()
	for _, p := range proxies {
		for number := range visitors {
			a := p.visitor(t, instances[0].app, number)
			crowd.Go(func() {
				for n := 0; !over.Load(); n++ {
					p.visit(t, a, voucher.ID, a.user(n*visitors+number))
				}
			})
		}
	}
	sent := func() (requests, failures int64) {
		for _, p := range proxies {
			requests, failures = requests+p.requests.Load(), failures+p.failures.Load()
		}
		return requests, failures
	}
	for n := range restarts {
		p := instances[n%2]
		check.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
		p.ends(t)
		p.start(t)
		p.awaitReady(t)
	}
	check.Patiently(t, "there were enough requests", func() bool {
		requests, _ := sent()
		return requests >= wanted
	})
	leave()
	requests, failures := sent()
	t.Logf("%d restarts, %d requests, %d failed", restarts, requests, failures)
	check.Equal(t, "failed requests", failures, 0)
	audit := instances[0].Audit(t, voucher.ID)
	check.Equal(t, "orders in the database", audit.Database.LiveOrders, requests/3)
}
