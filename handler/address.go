package handler

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// The two headers in which a proxy says for whom it asks. X-Real-IP and its like are
// not among them: a proxy that does not set them passes on what the client wrote.
const (
	xForwardedFor = "X-Forwarded-For" // an address, or several with commas
	forwarded     = "Forwarded"       // RFC 7239

	// xUnready is where a trusted proxy wants a request to go that an instance does not take because it is not ready: to a
	// location of nginx, which is told in xAccelRedirect, and asks another instance.
	xUnready       = "X-Unready"
	xAccelRedirect = "X-Accel-Redirect"

	xForwardedProto = "X-Forwarded-Proto" // the scheme that the client uses
)

// proxies are the networks of the proxies whose word counts.
type proxies []netip.Prefix

func (p proxies) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(address) })
}

// client is the address that a request comes from. That is the sender's, unless it is a
// trusted proxy: then it is the rightmost address in its header that is not trusted,
// because each proxy writes to the right of what it was told, and the leftmost may be
// the client's invention. What cannot be read counts for nothing, and so do the two
// headers when they differ: a proxy sets one of them and passes the other one on as the
// client has written it.
func (p proxies) client(r *http.Request) netip.Addr {
	peer := peerOf(r)
	if !p.trusts(peer) {
		return peer
	}
	var found netip.Addr
	for _, header := range []struct {
		values []string
		read   func(string) (netip.Addr, bool)
	}{{r.Header.Values(xForwardedFor), node}, {r.Header.Values(forwarded), forwardedFor}} {
		if len(header.values) == 0 {
			continue
		}
		address, ok := p.rightmost(header.values, header.read)
		if !ok || found.IsValid() && found != address {
			return peer
		}
		found = address
	}
	if !found.IsValid() {
		return peer
	}
	return found
}

// encrypted reports whether a trusted proxy says that the client speaks TLS with it: its
// own word is the rightmost, as with addresses.
func (p proxies) encrypted(r *http.Request) bool {
	if len(p) == 0 || !p.trusts(peerOf(r)) {
		return false
	}
	if values := r.Header.Values(xForwardedProto); len(values) > 0 {
		last := values[len(values)-1]
		return strings.EqualFold(strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:]), "https")
	}
	values := r.Header.Values(forwarded)
	if len(values) == 0 {
		return false
	}
	last := values[len(values)-1]
	for pair := range strings.SplitSeq(last[strings.LastIndexByte(last, ',')+1:], ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if strings.EqualFold(name, "proto") {
			return strings.EqualFold(strings.Trim(value, `"`), "https")
		}
	}
	return false
}

// rightmost finds the rightmost address that is not trusted. When all are, the request
// comes from the leftmost of them.
func (p proxies) rightmost(values []string, read func(string) (netip.Addr, bool)) (address netip.Addr, ok bool) {
	for _, value := range slices.Backward(values) {
		elements := strings.Split(value, ",")
		for _, element := range slices.Backward(elements) {
			if address, ok = read(strings.TrimSpace(element)); !ok || !p.trusts(address) {
				return address, ok
			}
		}
	}
	return address, ok
}

// forwardedFor reads the parameter for of an element of Forwarded. An element with half
// a quoted string in it was cut at a comma of that string, and says nothing.
func forwardedFor(element string) (netip.Addr, bool) {
	if strings.Count(element, `"`)%2 != 0 {
		return netip.Addr{}, false
	}
	for pair := range strings.SplitSeq(element, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if !strings.EqualFold(name, "for") {
			continue
		}
		if inside, ok := strings.CutPrefix(value, `"`); ok {
			value = strings.TrimSuffix(inside, `"`)
		}
		return node(value)
	}
	return netip.Addr{}, false
}

// node reads an address with or without brackets and a port (RFC 7239, section 6).
func node(text string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	} else if inside, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inside, "]")
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.IsUnspecified() {
		return netip.Addr{}, false
	}
	return address.Unmap().WithZone(""), true
}

// peerOf is the other end of the connection; invalid where there is none, as in tests
// without a server.
func peerOf(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return peer.Addr().Unmap().WithZone("")
}
