package handler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"seckill/handler/wire"
	"seckill/internal/budget"
	"seckill/internal/conns"
	"seckill/model"
)

// probeRate bounds an address's health checks apart: a flood must not look like a dead instance, nor ask dependencies.
const probeRate = 100

func probePath(path string) bool { return path == "/livez" || path == "/readyz" }

// limitAddress refuses an address before anything is looked at; but see place. Administrators can mend a low limit.
func (a *api) limitAddress(c *gin.Context) {
	limit := a.options.ByAddress
	rate := limit.Rate()
	if rate.Off() {
		return
	}
	probe := probePath(c.Request.URL.Path)
	if probe {
		limit, rate = a.probes, a.probes.Rate()
	}
	call := callOf(c.Request.Context())
	wait := limit.Take(c.Request.Context(), call.address)
	switch {
	case wait == 0:
	case c.FullPath() == placePath && c.Request.Method == http.MethodPost:
		call.overLimit = wait
	case c.FullPath() == limitsPath && a.fromAdministrator(c):
	default:
		a.refuseAddress(c, rate, wait)
	}
}

func (a *api) fromAdministrator(c *gin.Context) bool {
	claims, err := a.claims(c.Request.Context(), c.Request.Header)
	return err == nil && claims.Role == model.RoleAdmin
}

// refuseAddress spreads the return: there may be a crowd behind one address.
func (a *api) refuseAddress(c *gin.Context, rate model.Rate, wait time.Duration) {
	a.refuseRate(c, "addr", rate, wait+rand.N(budget.Work), "Too many requests from this address.") //nolint:gosec // spreads the load, guards nothing
}

// refuseRate answers RATE_LIMITED with the fields of draft-ietf-httpapi-ratelimit-headers-10. Other answers go without,
// because they cost those who are within their limits. An address that goes on all the same is answered a second later.
func (a *api) refuseRate(c *gin.Context, policy string, rate model.Rate, wait time.Duration, detail string) {
	ctx := c.Request.Context()
	wait = max(wait-a.brake.Hold(ctx, callOf(ctx).address), time.Millisecond)
	header := c.Writer.Header()
	header["Ratelimit-Policy"] = []string{fmt.Sprintf(`"%s";q=%d;w=%d`, policy, rate.Events, int64(rate.Per.Seconds()))}
	header["Ratelimit"] = []string{`"` + policy + `";r=0;t=` + wire.RetryAfter(wait)}
	a.abort(c, &model.Error{Code: model.CodeRateLimited, Detail: detail, RetryAfter: wait})
}

// makeRoom closes a connection behind its answer when others wait for its place.
func makeRoom(c *gin.Context) {
	if conns.Crowded(c.Request.Context()) {
		connectionClose(c.Writer.Header())
	}
}

// handOver leaves a request to another instance while this one is not ready, for proxies without health checks.
func (a *api) handOver(c *gin.Context) {
	call := callOf(c.Request.Context())
	if call.elsewhere == "" || probePath(c.Request.URL.Path) || a.options.Health.Ready() {
		return
	}
	c.Writer.Header().Set(xAccelRedirect, call.elsewhere)
	a.abort(c, model.Unavailable("This instance is not ready.", nil))
}

// LimitsChange sets the limits that it has.
type LimitsChange struct {
	User *string `json:"user,omitempty" pattern:"^(0|[0-9]{1,9}/[smh])$" example:"20/s" doc:"What one user writes (purchases, cancellations, places, payments): a number per s, m or h, or 0 for no limit."`
	Addr *string `json:"addr,omitempty" pattern:"^(0|[0-9]{1,9}/[smh])$" example:"1000/s" doc:"All requests of one client address (of IPv6: a /64), likewise."`
}

// RateLimits are the limits in force.
type RateLimits struct {
	User string `json:"user" example:"20/s" doc:"What one user writes; 0 is no limit."`
	Addr string `json:"addr" example:"1000/s" doc:"All requests of one client address (of IPv6: a /64); 0 is no limit."`
}

func rateLimits(l model.Limits) RateLimits {
	return RateLimits{User: l.User.String(), Addr: l.Addr.String()}
}

const limitsPath = basePath + "/admin/settings/limits"

func (a *api) limitRoutes() {
	answer(a, route{
		id: "get-limits", call: "GET /admin/settings/limits", tag: tagAdmin, access: administrators,
		summary:     "Get the rate limits in force",
		description: "Those of this instance, which are the same on all of them within a second of a change.",
	}, func(context.Context, *struct{}) (RateLimits, error) {
		return rateLimits(a.options.Limits.InForce()), nil
	})
	answer(a, route{
		id: "patch-limits", call: "PATCH /admin/settings/limits", tag: tagAdmin, access: administrators,
		summary:     "Change the rate limits of all instances",
		description: "Every instance obeys within a second. What is set here wins over the settings of the instances, also after a restart.",
	}, func(ctx context.Context, in *sent[LimitsChange]) (set RateLimits, err error) {
		user, userErr := optional(in.Body.User, rateAt("body.user"))
		addr, addrErr := optional(in.Body.Addr, rateAt("body.addr"))
		if err := model.JoinInvalid(userErr, addrErr); err != nil {
			return set, err
		}
		changed, err := a.options.Limits.Change(ctx, model.LimitsPatch{User: user, Addr: addr, By: subject(ctx)})
		return rateLimits(changed), err
	})
}

func rateAt(location string) func(text string) (model.Rate, error) {
	return func(text string) (model.Rate, error) {
		rate, err := model.ParseRate(text)
		if err != nil {
			return rate, model.Invalid(location, "%s", err.Error())
		}
		return rate, nil
	}
}

// The headers in which a proxy says for whom it asks. X-Real-IP may be what the client wrote.
const (
	xForwardedFor = "X-Forwarded-For" // an address, or several with commas
	forwarded     = "Forwarded"       // RFC 7239

	// xUnready is a trusted proxy's location (nginx) for what an unready instance refuses; xAccelRedirect leads there.
	xUnready       = "X-Unready"
	xAccelRedirect = "X-Accel-Redirect"

	xForwardedProto = "X-Forwarded-Proto" // the scheme that the client uses
)

type proxies []netip.Prefix // of the proxies whose word counts

func (p proxies) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(address) })
}

// client is a request's address: the sender's or, behind a trusted proxy, the rightmost untrusted in its header, as
// each proxy appends. The unreadable counts for nothing; so do headers that differ: a proxy passes one on as is.
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

// encrypted reports whether a trusted proxy says that the client used TLS: its own word is the rightmost.
func (p proxies) encrypted(r *http.Request) bool {
	if len(p) == 0 || !p.trusts(peerOf(r)) {
		return false
	}
	last := func(values []string) string {
		list := strings.Join(values, ",")
		return strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:])
	}
	if values := r.Header.Values(xForwardedProto); len(values) > 0 {
		return strings.EqualFold(last(values), "https")
	}
	proto := parameter(last(r.Header.Values(forwarded)), "proto")
	return strings.EqualFold(strings.Trim(proto, `"`), "https")
}

// rightmost finds the rightmost address that is not trusted. When all are, the request comes from the leftmost of them.
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

// parameter reads one of an element of Forwarded; empty: it has none of this name.
func parameter(element, name string) string {
	for pair := range strings.SplitSeq(element, ";") {
		if key, value, _ := strings.Cut(strings.TrimSpace(pair), "="); strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}

// forwardedFor reads the parameter for of an element of Forwarded. Half a quoted string was cut at a comma.
func forwardedFor(element string) (netip.Addr, bool) {
	if strings.Count(element, `"`)%2 != 0 {
		return netip.Addr{}, false
	}
	value := parameter(element, "for")
	if inside, ok := strings.CutPrefix(value, `"`); ok {
		value = strings.TrimSuffix(inside, `"`)
	}
	return node(value)
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

// peerOf is the other end of the connection; invalid where there is none, as in tests without a server.
func peerOf(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return peer.Addr().Unmap().WithZone("")
}
