package listener

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// AdviseInner says that the operations listener can be reached from the internet, where it can. When this machine's
// addresses are not known, only the listener's own is looked at.
func (l *Listener) AdviseInner(ctx context.Context) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		l.log.DebugContext(ctx, "the addresses of this machine are not known", slog.Any("error", err))
	}
	if public := publicAddresses(l.Addr(), own); len(public) > 0 {
		l.log.WarnContext(ctx, "the operations listener can be reached at a public address, and anybody who reaches it "+
			"reads metrics and profiles: set SECKILL_OPS_ADDR to an address of the inner network",
			slog.String("listens", l.Addr().String()), slog.Any("public", public))
	}
}

// OnMachine is this machine's name, and the listener's port: a machine may have several instances.
func (l *Listener) OnMachine() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	_, port, err := net.SplitHostPort(l.socket.Addr().String())
	if err != nil {
		return host
	}
	return net.JoinHostPort(host, port)
}

// publicAddresses are those of the internet at which a listener is reached: its own, or the machine's when it listens
// on all of them. Addresses of private networks (RFC 1918, RFC 4193), of shared ones (RFC 6598) and of a link are not.
func publicAddresses(listener net.Addr, machine []net.Addr) []string {
	at, err := netip.ParseAddrPort(listener.String())
	if err != nil {
		return nil
	}
	candidates := []netip.Addr{at.Addr()}
	if at.Addr().IsUnspecified() {
		candidates = nil
		for _, address := range machine {
			if prefix, err := netip.ParsePrefix(address.String()); err == nil {
				candidates = append(candidates, prefix.Addr())
			}
		}
	}
	shared := netip.MustParsePrefix("100.64.0.0/10")
	var public []string
	for _, ip := range candidates {
		ip = ip.Unmap()
		if ip.IsGlobalUnicast() && !ip.IsPrivate() && !shared.Contains(ip) {
			public = append(public, ip.String())
		}
	}
	return public
}

// KnownHosts answers only requests for a name that a foreign web page cannot have. By DNS rebinding, a page of
// evil.example makes a browser inside the network ask this listener as a part of that page, and reads the answer. The
// Host of such a request is still evil.example. A monitoring system asks for an address, or for a name that only the
// inner network has:
//   - an IP address,
//   - localhost, or any other name without a dot (a service of Docker or Kubernetes),
//   - a name below .localhost, .local, .internal or .svc, which no registry sells,
//   - this machine's own name, and the one in the configured address.
//
// Anything else is 421 (RFC 9110, section 15.5.20).
func KnownHosts(next http.Handler, configured string) http.Handler {
	var own []string
	if name, err := os.Hostname(); err == nil {
		own = append(own, strings.ToLower(name))
	}
	if name, _, err := net.SplitHostPort(configured); err == nil && name != "" {
		own = append(own, strings.ToLower(name))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !innerName(hostOf(r.Host)) && !slices.Contains(own, hostOf(r.Host)) {
			http.Error(w, "this listener is asked by address, or by a name of the inner network", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf is the name in a Host header, without a port and the root's dot.
func hostOf(header string) string {
	host := header
	if name, _, err := net.SplitHostPort(header); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// innerName reports whether a name cannot be registered on the internet. The empty one is that of
// HTTP/1.0 without a Host header, which no browser sends.
func innerName(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") {
		return true
	}
	for _, suffix := range []string{".localhost", ".local", ".internal", ".svc"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}
