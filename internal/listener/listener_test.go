package listener

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"testing"

	"seckill/internal/workshop/check"
)

// leavingServer answers at once, those of /wait when it is told to, and may begin to leave.
type leavingServer struct {
	*httptest.Server

	leaving         atomic.Bool
	waits, released chan struct{}
}

func newLeavingServer(t *testing.T, protocol string) *leavingServer {
	t.Helper()
	s := &leavingServer{waits: make(chan struct{}), released: make(chan struct{})}
	handler := closing(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(s.waits)
			<-s.released
		}
		_, _ = io.WriteString(w, "served")
	}), s.leaving.Load)
	s.Server = httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = protocol == "HTTP/2.0"
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ask makes a request, and tells whether its connection had served another one before, and serves no other.
func (s *leavingServer) ask(t *testing.T, path, protocol string) (reused, closes bool) {
	t.Helper()
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
	request := check.Value(http.NewRequestWithContext(httptrace.WithClientTrace(check.Context(t), trace),
		http.MethodGet, s.URL+path, nil))(t)
	answer, err := s.Client().Do(request)
	check.Must(t, err)
	defer answer.Body.Close()
	check.Equal(t, path, string(check.Value(io.ReadAll(answer.Body))(t)), "served")
	check.Equal(t, "the protocol", answer.Proto, protocol)
	return reused, answer.Close
}

// From an instance's leaving on, every answer closes its connection. A waiting connection has one more answer.
func TestAnswersOfALeavingInstanceCloseTheirConnections(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := newLeavingServer(t, protocol)
			s.ask(t, "/", protocol)
			reused, closes := s.ask(t, "/", protocol)
			check.Equal(t, "connections stay open before", reused && !closes, true)
			slow := make(chan bool)
			go func() {
				_, closes := s.ask(t, "/wait", protocol)
				slow <- closes
			}()
			check.Receive(t, "a slow request", s.waits)
			if protocol == "HTTP/1.1" {
				s.ask(t, "/", protocol) // now there is one that waits
			}
			s.leaving.Store(true)
			reused, closes = s.ask(t, "/", protocol)
			check.Equal(t, "the waiting connection has one more answer", reused, true)
			check.Equal(t, "which closes it", closes, protocol == "HTTP/1.1")
			reused, _ = s.ask(t, "/", protocol)
			check.Equal(t, "the next one has a connection that is not new", reused, false)
			close(s.released)
			check.Equal(t, "the slow answer closes its connection", check.Receive(t, "the slow answer", slow),
				protocol == "HTTP/1.1")
		})
	}
}

func TestOperationsAreAskedByInnerNames(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(KnownHosts(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"ops.example.com:8081"))
	t.Cleanup(server.Close)
	for host, want := range map[string]int{
		"127.0.0.1:8081": 200, "[::1]:8081": 200, "10.2.3.4": 200, "localhost": 200, "localhost:8081": 200, "LOCALHOST.": 200,
		"seckill-1:8081": 200, "seckill.default.svc": 200, "seckill.default.svc.cluster.local:8081": 200, "db.internal": 200,
		"ops.example.com:8081": 200, "OPS.example.com": 200,
		"evil.example": 421, "evil.example:8081": 421, "127.0.0.1.evil.example": 421, "local.evil.example": 421,
		"example.com": 421, "evil.local.": 200, "10.2.3.4.nip.io": 421,
	} {
		request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/metrics", nil))(t)
		request.Host = host
		answer, err := server.Client().Do(request)
		check.Must(t, err)
		_ = answer.Body.Close()
		check.That(t, answer.StatusCode == want, "Host %q: %d, want %d", host, answer.StatusCode, want)
	}
}

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	network := func(text string) net.Addr {
		ip, mask, err := net.ParseCIDR(text)
		check.Must(t, err)
		return &net.IPNet{IP: ip, Mask: mask.Mask}
	}
	container := []net.Addr{
		network("127.0.0.1/8"), network("::1/128"), network("172.30.47.11/24"),
		network("fe80::1/64"),
	}
	machine := append(slices.Clip(container), network("203.0.113.7/24"), network("2001:db8::7/64"))
	for name, test := range map[string]struct {
		listens string
		machine []net.Addr
		want    []string
	}{
		"loopback":               {"127.0.0.1:8081", machine, nil},
		"loopback of IPv6":       {"[::1]:8081", machine, nil},
		"an inner address":       {"10.0.0.5:8081", machine, nil},
		"all of a container":     {"[::]:8081", container, nil},
		"all of a public server": {"[::]:8081", machine, []string{"203.0.113.7", "2001:db8::7"}},
		"a public address":       {"203.0.113.7:8081", machine, []string{"203.0.113.7"}},
		"a carrier's network":    {"100.64.1.2:8081", machine, nil},
	} {
		listens := check.Value(net.ResolveTCPAddr("tcp", test.listens))(t)
		got := publicAddresses(listens, test.machine)
		check.That(t, slices.Equal(got, test.want), "%s: %v, want %v", name, got, test.want)
	}
}
