//go:build faults

//part:proxies

package e2e_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// proxy is one that stands before two instances, with its file in deployments/ as it is shipped.
type proxy struct {
	name, url string
	authority *x509.CertPool

	requests atomic.Int64
	failures atomic.Int64
}

// shipped are the proxies by their programs: the system's nginx, a later one from `make deps-proxies`, and HAProxy.
func shipped(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"nginx":      "nginx",
		"nginx-1.26": check.Value(filepath.Abs("../../../bin/nginx-1.26/bin/nginx"))(t), "haproxy": "haproxy",
	}
}

// network is docker-compose.yml's: the proxy is reached in its own network, all others have the other addresses.
const network = `
mount -t tmpfs tmpfs /run
ip netns add proxy
ip link add outside type veth peer name inside netns proxy
for a in 11 12 $(seq 100 110); do ip address add 172.30.47.$a/24 dev outside; done
ip -n proxy address add 172.30.47.10/24 dev inside
ip link set lo up && ip link set outside up && ip -n proxy link set lo up && ip -n proxy link set inside up
exec "$@"`

// behindEach runs a test once for each proxy, in a network of its own that has the addresses of the shipped files.
func behindEach(t *testing.T, test func(t *testing.T, name string)) {
	for name := range shipped(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testserver.Isolated(t, network) {
				test(t, name)
			}
		})
	}
}

// container starts a program as docker-compose.yml does: nobody's, with its secrets, shipped files and own /tmp.
const container = `
mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir /run/secrets /run/checkout && mount --bind "$CHECKOUT" /run/checkout
for f in "$SECRETS"/*; do touch "/run/secrets/${f##*/}"; mount --bind "$f" "/run/secrets/${f##*/}"; done
mount -t tmpfs tmpfs /etc/nginx
for f in nginx.conf problem.conf haproxy.cfg; do touch "/etc/nginx/$f"; mount --bind "/run/checkout/deployments/$f" "/etc/nginx/$f"; done
mount -t tmpfs tmpfs /tmp && mkdir -p "$CHECKOUT" && mount --bind /run/checkout "$CHECKOUT"
cd / && exec setpriv --reuid=101 --regid=101 --clear-groups "$@"`

func startShipped(t *testing.T, name string) *proxy {
	checkout := check.Value(filepath.Abs("../../.."))(t)
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "secrets.sh"),
		check.Value(os.ReadFile(filepath.Join(checkout, "deployments/secrets.sh")))(t), 0o600))
	out, err := exec.CommandContext(t.Context(), "env", "NAMES=172.30.47.10", "bash",
		filepath.Join(dir, "secrets.sh")).CombinedOutput()
	check.Need(t, err == nil, "secrets.sh: %v\n%s", err, out)
	p := &proxy{name: name, url: "https://172.30.47.10:8443", authority: x509.NewCertPool()}
	check.That(t, p.authority.AppendCertsFromPEM(check.Value(os.ReadFile(filepath.Join(dir,
		"secrets/tls_certificate")))(t)), "no certificate")
	command := []string{"--net=/run/netns/proxy", "unshare", "--mount", "sh", "-euc", container, "sh", shipped(t)[name]}
	if name == "haproxy" {
		command = append(command, "-db", "-f", "/etc/nginx/haproxy.cfg")
	} else {
		command = append(command, "-e", "stderr", "-g", "daemon off;", "-c", "/etc/nginx/nginx.conf")
	}
	testserver.Run(t, append(os.Environ(), "CHECKOUT="+checkout, "SECRETS="+filepath.Join(dir, "secrets")), "nsenter",
		command...)
	return p
}

func instance(t *testing.T, s settings, number int) *process {
	t.Helper()
	p := prepare(t, testserver.Program(t), s)
	address := fmt.Sprintf("172.30.47.1%d:8080", number)
	p.settings["SECKILL_HTTP_ADDR"], p.URL = address, "http://"+address
	return p
}

// visitor is the service behind the proxy, as one client with an address of its own sees it.
func (p *proxy) visitor(t *testing.T, behind *app, number int) *app {
	t.Helper()
	client := remote.Client(t, fmt.Sprintf("172.30.47.%d", 100+number), 4)
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: p.authority, MinVersion: tls.VersionTLS12}
	return &app{
		Service: remote.Service{URL: p.url, Client: client, Tokens: behind.Tokens},
		prefix:  behind.prefix + p.name + ":",
	}
}

// visit buys, and looks at what it bought. Each of these requests must be answered as if no instance ever stopped.
func (p *proxy) visit(t *testing.T, a *app, voucher, user string) {
	token := a.as(t, user)
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
	ok = err == nil && got.Status == want
	check.That(t, ok || p.failures.Add(1) > 10, "%s: %s %s: %d %s, %v", p.name, method, path, got.Status, got.Body, err)
	return got, ok
}

// TestShippedProxies: the unchanged files survive outages, deploys under load, large tokens, slow bodies, unreadiness.
func TestShippedProxies(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, name string) {
		s := asyncOnServers(t).with(settings{
			"SECKILL_ORDER_MODE":      "sync",
			"SECKILL_DRAIN_GRACE":     "4s", // longer than haproxy.cfg's checks take, and nginx.conf's fail_timeout
			"SECKILL_TRUSTED_PROXIES": "172.30.47.10/32",
		})
		instances := []*process{instance(t, s, 1), instance(t, s, 2)}
		p := startShipped(t, name)
		a := p.visitor(t, instances[0].app, 9)
		check.Patiently(t, "the proxy answers", func() bool { _, err := a.Get("/readyz"); return err == nil })
		p.outage(t, a)
		for _, i := range instances {
			i.serves(t)
		}
		check.Patiently(t, "the proxy sends to an instance",
			func() bool { return a.Status("/readyz") == http.StatusOK })
		p.largeHeaders(t, a)
		p.slowBody(t)
		voucher := instances[0].onSale(t, 10_000_000)
		p.deploy(t, instances, voucher.ID)
		p.oneNotReady(t, instances[1], a, voucher.ID)
		for _, i := range instances {
			i.kill()
		}
		p.outage(t, a)
	})
}

// outage: while no instance is there, every answer is a problem that says when to come again.
func (p *proxy) outage(t *testing.T, a *app) {
	t.Helper()
	for range 20 {
		got := check.Value(a.Get("/api/v1/vouchers"))(t)
		refused(t, got, model.CodeUnavailable)
		check.Equal(t, "Retry-After", got.Header.Get("Retry-After"), "1")
	}
}

// largeHeaders: 16 KB are no reason to refuse a token, over HTTP/1 and HTTP/2; more is 431.
func (p *proxy) largeHeaders(t *testing.T, a *app) {
	for _, second := range []bool{false, true} {
		client := remote.Client(t, "", 1)
		transport, _ := client.Transport.(*http.Transport)
		transport.TLSClientConfig, transport.ForceAttemptHTTP2 = &tls.Config{
			RootCAs:    p.authority,
			MinVersion: tls.VersionTLS12,
		}, second
		for size, want := range map[int]int{15 << 10: http.StatusOK, 16<<10 - 300: http.StatusOK, 24 << 10: http.StatusRequestHeaderFieldsTooLarge, 48 << 10: http.StatusRequestHeaderFieldsTooLarge} {
			got, err := api.Send(t.Context(), client, http.MethodGet, p.url+"/api/v1/vouchers", "", nil,
				"X-Roles: "+strings.Repeat("r", size))
			if err != nil {
				t.Errorf("%s, HTTP/2 %t, %d bytes: %v", p.name, second, size, err)
				continue
			}
			if want != http.StatusOK {
				refused(t, got, model.CodePayloadTooLarge, want)
			} else {
				check.Equal(t, fmt.Sprintf("a header of %d bytes, HTTP/2 %t", size, second), got.Status, want)
			}
		}
	}
}

// slowBody: whoever does not finish a body hears a problem, or the end of the connection.
func (p *proxy) slowBody(t *testing.T) {
	c := check.Value((&tls.Dialer{Config: &tls.Config{
		RootCAs: p.authority, ServerName: "localhost",
		MinVersion: tls.VersionTLS12,
	}}).DialContext(t.Context(), "tcp", "172.30.47.10:8443"))(t)
	defer c.Close()
	check.Must(t, check.ErrorOf(io.WriteString(c,
		"POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")))
	check.Must(t, c.SetReadDeadline(time.Now().Add(check.Deadline)))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		check.Equal(t, "the answer to a slow body", answer.Header.Get("Content-Type"), "application/problem+json")
		_ = answer.Body.Close()
	} else if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a slow body: %v", err)
	}
}

// oneNotReady: an instance of the other order mode costs no client an answer.
func (p *proxy) oneNotReady(t *testing.T, other *process, a *app, voucher string) {
	other.stops(t)
	other.start(t, settings{"SECKILL_ORDER_MODE": "async"})
	disagrees(t, other.app, "async")
	sold := 0
	buys := func() bool {
		sold++
		got, err := a.Send(http.MethodPost, "/vouchers/"+voucher+"/seckill", a.as(t, a.user(1_000_000+sold)), nil)
		return err == nil && got.Status == http.StatusCreated
	}
	if p.name == "haproxy" { // which asks each instance itself, once a second
		check.Patiently(t, "HAProxy leaves out the instance that is not ready", func() bool {
			for range 4 {
				if !buys() {
					return false
				}
			}
			return true
		})
	}
	for range 100 {
		check.That(t, buys(), "%s passes the refusal of an instance that is not ready", p.name)
	}
}

// deploy: two instances are stopped and started in turn while people buy, and no request fails.
func (p *proxy) deploy(t *testing.T, instances []*process, voucher string) {
	const visitors = 8
	restarts, wanted := check.Count(t, "RESTARTS", 0, 20), int64(check.Count(t, "REQUESTS", 0, 10_000))
	seen := make([]*app, visitors)
	for number := range seen {
		seen[number] = p.visitor(t, instances[0].app, number)
	}
	leave := meanwhile(visitors, func(number, n int) {
		p.visit(t, seen[number], voucher,
			seen[number].user(n*visitors+number))
	})
	defer leave()
	for n := range restarts {
		i := instances[n%2]
		i.stops(t)
		i.serves(t)
	}
	check.Patiently(t, "there were enough requests", func() bool { return p.requests.Load() >= wanted })
	leave()
	t.Logf("%d restarts, %d requests, %d failed", restarts, p.requests.Load(), p.failures.Load())
	check.Equal(t, "failed requests", p.failures.Load(), 0)
	check.Equal(t, "orders in the database", instances[0].Audit(t, voucher).Database.LiveOrders, p.requests.Load()/3)
}
