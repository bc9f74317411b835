package listener

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"seckill/internal/workshop/check"
)

func TestOperationsAreAskedByInnerNames(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(KnownHosts(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "ops.example.com:8081"))
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
		if answer.StatusCode != want {
			t.Errorf("Host %q: %d, want %d", host, answer.StatusCode, want)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	network := func(text string) net.Addr {
		ip, mask, err := net.ParseCIDR(text)
		check.Must(t, err)
		return &net.IPNet{IP: ip, Mask: mask.Mask}
	}
	container := []net.Addr{network("127.0.0.1/8"), network("::1/128"), network("172.30.47.11/24"), network("fe80::1/64")}
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
		if got := publicAddresses(listens, test.machine); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
