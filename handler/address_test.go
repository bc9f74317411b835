package handler

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func trusted(networks ...string) proxies {
	var p proxies
	for _, network := range networks {
		p = append(p, netip.MustParsePrefix(network))
	}
	return p
}

// from is a request of a peer; headers are "Name: value".
func from(peer string, headers ...string) *http.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	p := trusted("10.0.0.0/8", "fd00::/8")
	const proxy, proxy6, stranger = "10.0.0.1:4711", "[fd00::1]:4711", "203.0.113.9:4711"
	for _, tt := range []struct {
		name, peer string
		headers    []string
		want       string
	}{
		{"nobody's proxy", stranger, []string{"X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1"}, "203.0.113.9"},
		{"no header", proxy, nil, "10.0.0.1"},
		{"X-Real-IP", proxy, []string{"X-Real-IP: 192.0.2.1", "X-Forwarded-For: 198.51.100.7"}, "198.51.100.7"},
		{"X-Real-IP alone", proxy, []string{"X-Real-IP: 192.0.2.1", "True-Client-IP: 192.0.2.1"}, "10.0.0.1"},
		{"a port", proxy, []string{"X-Forwarded-For: 198.51.100.7:55555"}, "198.51.100.7"},
		{"IPv6", proxy6, []string{"X-Forwarded-For: 2001:db8::7"}, "2001:db8::7"},
		{"IPv6 in brackets", proxy, []string{"X-Forwarded-For: [2001:db8::7]"}, "2001:db8::7"},
		{"IPv6 with a port", proxy, []string{"X-Forwarded-For: [2001:db8::7]:55555"}, "2001:db8::7"},
		{"IPv4 in IPv6", "[::ffff:10.0.0.1]:1", []string{"X-Forwarded-For: ::ffff:198.51.100.7"}, "198.51.100.7"},
		{"the rightmost", proxy, []string{"X-Forwarded-For: 192.0.2.1, 198.51.100.7"}, "198.51.100.7"},
		{"behind two proxies", proxy, []string{"X-Forwarded-For: 192.0.2.1, 198.51.100.7,10.9.9.9"}, "198.51.100.7"},
		{
			"in two lines", proxy,
			[]string{"X-Forwarded-For: 192.0.2.1, 198.51.100.7", "X-Forwarded-For: 10.9.9.9"},
			"198.51.100.7",
		},
		{"all trusted", proxy, []string{"X-Forwarded-For: 10.1.1.1, 10.2.2.2"}, "10.1.1.1"},
		{"garbage on the left", proxy, []string{"X-Forwarded-For: <script>, 198.51.100.7"}, "198.51.100.7"},
		{"garbage on the right", proxy, []string{"X-Forwarded-For: 192.0.2.1, unknown"}, "10.0.0.1"},
		{"empty", proxy, []string{"X-Forwarded-For: "}, "10.0.0.1"},
		{"unspecified", proxy, []string{"X-Forwarded-For: 0.0.0.0"}, "10.0.0.1"},
		{
			"Forwarded", proxy,
			[]string{"Forwarded: for=192.0.2.1, for=198.51.100.7;proto=https;by=10.0.0.1"},
			"198.51.100.7",
		},
		{"Forwarded with IPv6", proxy, []string{`Forwarded: proto=http; For="[2001:db8::7]:4711"`}, "2001:db8::7"},
		{"Forwarded without an address", proxy, []string{"Forwarded: for=_hidden"}, "10.0.0.1"},
		{"Forwarded for nobody", proxy, []string{"Forwarded: proto=https"}, "10.0.0.1"},
		{"a comma in quotes", proxy, []string{`Forwarded: for=198.51.100.7;host="x,for=192.0.2.1;y="`}, "10.0.0.1"},
		{"both agree", proxy, []string{"Forwarded: for=198.51.100.7", "X-Forwarded-For: 198.51.100.7"}, "198.51.100.7"},
		{"both differ", proxy, []string{"Forwarded: for=192.0.2.1", "X-Forwarded-For: 198.51.100.7"}, "10.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := p.client(from(tt.peer, tt.headers...)).String(); got != tt.want {
				t.Errorf("%s with %q is %s, want %s", tt.peer, tt.headers, got, tt.want)
			}
		})
	}
}

// Behind a proxy that appends the client's address, that address or the proxy's is found; a stranger stays a stranger.
func FuzzClientAddress(f *testing.F) {
	for _, seed := range []string{
		"", "192.0.2.1", "192.0.2.1:80, 10.0.0.3", `for="[2001:db8::1]:80"`, `for="`, `host="a,for=1.2.3.4;b="`, "[::1", "1.2.3.4%eth0", ",,;=", "unknown",
	} {
		f.Add(seed, seed)
	}
	p := trusted("10.0.0.0/8")
	proxy, client := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("198.51.100.7")
	f.Fuzz(func(t *testing.T, list, element string) {
		stranger := from("203.0.113.9:1", "X-Forwarded-For: "+list, "Forwarded: "+element)
		if got := p.client(stranger); got.String() != "203.0.113.9" {
			t.Errorf("a stranger is taken for %s", got)
		}
		for header, appended := range map[string]string{
			xForwardedFor: list + ", 198.51.100.7", forwarded: element + ", for=198.51.100.7",
		} {
			only := from("10.0.0.1:1", header+": "+appended)
			if got := p.client(only); got != client {
				t.Errorf("%s: %q is %s", header, appended, got)
			}
			other := map[string]string{xForwardedFor: forwarded, forwarded: xForwardedFor}[header]
			both := from("10.0.0.1:1", header+": "+appended, other+": "+list)
			if got := p.client(both); !slices.Contains([]netip.Addr{proxy, client}, got) {
				t.Errorf("%s: %q beside %s: %q is %s", header, appended, other, list, got)
			}
		}
	})
}
