// Package conns bounds the connections of an HTTP server. Without a bound, clients that
// only connect use up the descriptors of the process, and then neither a buyer nor a
// database is reached, without a line in the log.
//
// A connection waits while it has no request under way: it is new, idle, or sends its
// header slowly. At the bound the one that has waited longest makes room for a new one,
// so that a crowd of silent connections costs no client that says something. When none
// waits, a few more connections are let in to be told so, one request each (see Beyond),
// and those beyond them are closed at once.
package conns

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"seckill/internal/ratelimit"
	"seckill/model"
)

const (
	// courtesy is how many connections beyond the bound are told that there are too
	// many. Health checks are answered on them, each within a moment.
	courtesy = 64
	// unwell is how long trouble lasts before the instance is not ready, and how long a
	// failed accept counts: a burst that is over by then is no reason to go elsewhere.
	unwell = 5 * time.Second
	// madeRoom is how many connections are closed when the process has no descriptor
	// left: the next accept must succeed, and so must a call to the database.
	madeRoom = 16
	// lineEvery is how often one kind of trouble is logged.
	lineEvery = 5 * time.Second
)

// Guard watches the connections of one server. It is safe for concurrent use.
type Guard struct {
	options Options
	metrics metrics
	lines   map[string]*rate.Sometimes // by trouble

	mu       sync.Mutex
	open     int
	waiting  *list.List // of *conn, the one that waits longest first
	networks map[string]*network
	crowded  time.Time // since when all connections are in use; zero: they are not
	failed   time.Time // the latest accept that failed
}

// network is what is known of the connections of one address, of IPv6 of one /64.
type network struct {
	open    int
	waiting *list.List
}

// conn is one connection under watch. That it is a TCPConn lets the server close its
// half of it, without which a client may lose an answer.
type conn struct {
	*net.TCPConn

	guard    *Guard
	network  *network // nil: exempt
	key      string   // of the network
	beyond   bool
	gone     bool
	place    *list.Element // in the guard's waiting; nil: a request is under way
	netPlace *list.Element // in the network's
}

// Listen opens a listener, whose end TakeNoMore can prepare: for that it must not speak Multipath TCP.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", address)
}

// Watch bounds the connections that a server accepts from a listener.
func (g *Guard) Watch(server *http.Server, listener net.Listener) net.Listener {
	server.ConnState = g.changed
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if c, ok := c.(*conn); ok && c.beyond {
			return context.WithValue(ctx, beyondKey{}, true)
		}
		return ctx
	}
	return guarded{listener, g}
}

type beyondKey struct{}

// Beyond reports whether a request came on a connection beyond the bound: it is to be
// refused, and the connection closed, unless it is a health check.
func Beyond(ctx context.Context) bool { return ctx.Value(beyondKey{}) != nil }

// Probe tells why new clients should go elsewhere.
func (g *Guard) Probe(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch now := time.Now(); {
	case now.Sub(g.failed) < unwell:
		return model.Unavailable("connections cannot be accepted", nil)
	case !g.crowded.IsZero() && now.Sub(g.crowded) >= unwell:
		return model.Unavailable("all connections are in use", nil)
	}
	return nil
}

// guarded is a listener whose connections are watched.
type guarded struct {
	net.Listener

	guard *Guard
}

// Accept implements net.Listener. The server itself pauses after an error that passes.
func (l guarded) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			l.guard.notAccepted(err)
			return nil, err
		}
		tcp, ok := accepted.(*net.TCPConn)
		if !ok {
			return accepted, nil
		}
		if c := l.guard.admit(tcp); c != nil {
			return c, nil
		}
	}
}

func (g *Guard) notAccepted(err error) {
	if errors.Is(err, net.ErrClosed) {
		return // the stop
	}
	g.metrics.acceptErrors.Inc()
	g.say("connections cannot be accepted", slog.Any("error", err))
	g.mu.Lock()
	g.failed = time.Now()
	var victims []*conn
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		for len(victims) < madeRoom && g.waiting.Len() > 0 {
			victims = append(victims, g.oldest(g.waiting))
		}
	}
	g.mu.Unlock()
	g.close(victims, "descriptors")
}

// admit makes room for a new connection, or closes it and returns nil.
func (g *Guard) admit(tcp *net.TCPConn) *conn {
	c := &conn{TCPConn: tcp, guard: g}
	c.key = g.keyOf(tcp)
	g.mu.Lock()
	victims, why := g.place(c)
	g.mu.Unlock()
	g.close(victims, "room")
	if why == "" {
		return c
	}
	g.metrics.closed.WithLabelValues(why).Inc()
	g.say("connections are refused: too many are open", slog.String("bound", why), slog.String("address", tcp.RemoteAddr().String()))
	_ = tcp.SetLinger(0) // nothing is kept of it
	_ = tcp.Close()
	return nil
}

// place counts a connection among the waiting ones, and says which must close for it,
// or which bound refuses it.
func (g *Guard) place(c *conn) (victims []*conn, refused string) {
	if c.key != "" {
		c.network = g.networks[c.key]
		if c.network == nil {
			c.network = &network{waiting: list.New()}
			g.networks[c.key] = c.network
		}
		if c.network.open >= g.options.PerNetwork {
			if c.network.waiting.Len() == 0 {
				return nil, "address"
			}
			victims = append(victims, g.oldest(c.network.waiting))
			g.networks[c.key] = c.network // it may have been the last one
		}
	}
	if g.open >= g.options.Max {
		switch {
		case g.waiting.Len() > 0:
			victims = append(victims, g.oldest(g.waiting))
			if c.network != nil {
				g.networks[c.key] = c.network
			}
		case g.open < g.options.Max+courtesy:
			c.beyond = true
			g.full()
		default:
			g.full()
			if c.network != nil && c.network.open == 0 {
				delete(g.networks, c.key)
			}
			return victims, "whole"
		}
	}
	g.open++
	if c.network != nil {
		c.network.open++
	}
	g.wait(c)
	return victims, ""
}

// full notes that all connections are in use.
func (g *Guard) full() {
	if g.crowded.IsZero() {
		g.crowded = time.Now()
	}
}

// changed follows the states that the server tells.
func (g *Guard) changed(changed net.Conn, state http.ConnState) {
	c, ok := changed.(*conn)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch state {
	case http.StateActive:
		g.busy(c)
	case http.StateIdle:
		g.wait(c)
		g.crowded = time.Time{}
	case http.StateNew, http.StateHijacked, http.StateClosed: // see admit and Close
	}
}

// wait puts a connection behind those that wait already.
func (g *Guard) wait(c *conn) {
	if c.gone || c.place != nil {
		return
	}
	c.place = g.waiting.PushBack(c)
	if c.network != nil {
		c.netPlace = c.network.waiting.PushBack(c)
	}
}

func (g *Guard) busy(c *conn) {
	if c.place == nil {
		return
	}
	g.waiting.Remove(c.place)
	if c.network != nil {
		c.network.waiting.Remove(c.netPlace)
	}
	c.place, c.netPlace = nil, nil
}

// oldest takes the connection that waits longest out of the count.
func (g *Guard) oldest(waiting *list.List) *conn {
	c, _ := waiting.Front().Value.(*conn) // nothing else is in there
	g.forget(c)
	return c
}

// forget takes a connection out of the count, once.
func (g *Guard) forget(c *conn) {
	if c.gone {
		return
	}
	g.busy(c)
	c.gone = true
	g.open--
	if c.network != nil {
		if c.network.open--; c.network.open == 0 {
			delete(g.networks, c.key)
		}
	}
	if g.open < g.options.Max {
		g.crowded = time.Time{}
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.guard.mu.Lock()
	c.guard.forget(c)
	c.guard.mu.Unlock()
	return c.TCPConn.Close()
}

func (g *Guard) close(victims []*conn, why string) {
	for _, c := range victims {
		g.metrics.closed.WithLabelValues(why).Inc()
		_ = c.TCPConn.Close()
	}
	if len(victims) > 0 {
		g.say("connections that waited were closed to make room", slog.Int("open", g.Open()))
	}
}

// Open is how many connections are open.
func (g *Guard) Open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// keyOf names the network of a connection's other end; empty where it is exempt.
func (g *Guard) keyOf(c net.Conn) string {
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return ""
	}
	address := peer.Addr().Unmap()
	if slices.ContainsFunc(g.options.Exempt, func(p netip.Prefix) bool { return p.Contains(address) }) {
		return ""
	}
	return ratelimit.Network(address)
}

// say logs one kind of trouble now and then.
//
//nolint:sloglint // the callers' texts are constants
func (g *Guard) say(trouble string, attrs ...slog.Attr) {
	g.mu.Lock()
	line := g.lines[trouble]
	if line == nil {
		line = &rate.Sometimes{Interval: lineEvery}
		g.lines[trouble] = line
	}
	g.mu.Unlock()
	line.Do(func() {
		g.options.Log.LogAttrs(context.Background(), slog.LevelWarn, trouble,
			append(attrs, slog.String("listener", g.options.Name))...)
	})
}
