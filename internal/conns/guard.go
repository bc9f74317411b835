// Package conns bounds the connections of an HTTP server. Without a bound, clients that
// only connect use up the descriptors of the process, and then neither a buyer nor a
// database is reached, without a line in the log.
//
// A connection waits while it has no request under way: it is new, idle, or sends its
// header slowly. At the bound the one that has waited longest makes room for a new one,
// so that a crowd of silent connections costs no client that says something; but each has
// a second to say it. When none waits, a few extra connections are accepted only to answer
// 503, one request each (see Beyond). A connection that finds no place at all stays in the kernel's
// queue, and every one of that queue is answered. Meanwhile answers close their connections
// (see Crowded), so that each request of a crowd has its turn.
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
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"seckill/internal/ratelimit"
	"seckill/model"
)

const (
	// rest is what a connection has to say something before it makes room for another.
	rest = time.Second
	// lookAgain is how often a connection that waits for a place looks whether another one has rested
	// for long enough.
	lookAgain = 50 * time.Millisecond
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
	rest    time.Duration
	longest time.Duration // that an answer of the server may take
	freed   chan struct{} // somebody has left, or has begun a request

	mu       sync.Mutex
	open     int
	beyond   int        // of them, those beyond the bound
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
	watched  atomic.Bool   // a Read has no deadline
	moved    chan struct{} // has an element when the deadline was moved, or the connection closed
	since    time.Time     // it waits
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
	server.ConnState, g.longest = g.changed, server.WriteTimeout
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	return &guarded{Listener: listener, guard: g, ended: make(chan struct{})}
}

type connKey struct{}

// Beyond reports whether a request came on a connection beyond the bound: it is to be
// refused, and the connection closed, unless it is a health check.
func Beyond(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*conn)
	return ok && c.beyond
}

// Crowded reports whether the connection of a request should not outlast its answer,
// because others wait for its place.
func Crowded(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*conn)
	return ok && c.crowded()
}

func (c *conn) crowded() bool {
	g := c.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open >= g.options.Max || c.network != nil && c.network.open >= g.options.PerNetwork
}

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
	ended chan struct{}
	end   sync.Once
}

// Close implements net.Listener.
func (l *guarded) Close() error {
	l.end.Do(func() { close(l.ended) })
	return l.Listener.Close()
}

// Accept implements net.Listener. The server itself pauses after an error that passes.
func (l *guarded) Accept() (net.Conn, error) {
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
		if c := l.guard.admit(tcp, l.ended); c != nil {
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

// admit finds a place for a new connection, and waits for one. It returns nil when the listener has ended meanwhile.
func (g *Guard) admit(tcp *net.TCPConn, ended <-chan struct{}) *conn {
	c := &conn{TCPConn: tcp, guard: g, moved: make(chan struct{}, 1)}
	c.key = g.keyOf(tcp)
	for {
		g.mu.Lock()
		victims, placed := g.place(c)
		g.mu.Unlock()
		g.close(victims, "room")
		if placed {
			return c
		}
		g.say("connections wait for others to end: too many are open", slog.String("address", tcp.RemoteAddr().String()))
		again := time.NewTimer(lookAgain)
		select {
		case <-g.freed:
		case <-again.C:
		case <-ended:
			_ = tcp.Close()
		}
		again.Stop()
		select {
		case <-ended:
			return nil
		default:
		}
	}
}

// place counts a connection among the waiting ones, if there is room, and says which must close for it.
func (g *Guard) place(c *conn) (victims []*conn, placed bool) {
	own := g.networks[c.key]
	full := false // nothing is to be had but courtesy
	if own != nil && own.open >= g.options.PerNetwork {
		victims = g.rested(victims, own.waiting, func() bool { return own.open >= g.options.PerNetwork })
		full = own.open >= g.options.PerNetwork
		if full && own.waiting.Len() > 0 {
			return victims, false
		}
	}
	victims = g.rested(victims, g.waiting, func() bool { return g.open >= g.options.Max })
	if g.open >= g.options.Max {
		g.full()
		if g.waiting.Len() > 0 {
			return victims, false
		}
		full = true
	}
	if full && g.beyond >= g.options.courtesy {
		return victims, false
	}
	g.count(c, full)
	return victims, true
}

// rested takes those out of the count that have waited for long enough, while room is needed.
func (g *Guard) rested(victims []*conn, waiting *list.List, needed func() bool) []*conn {
	for needed() && waiting.Len() > 0 && time.Since(first(waiting).since) >= g.rest {
		victims = append(victims, g.oldest(waiting))
	}
	return victims
}

func first(waiting *list.List) *conn {
	c, _ := waiting.Front().Value.(*conn) // nothing else is in there
	return c
}

// count begins to count a connection.
func (g *Guard) count(c *conn, beyond bool) {
	if c.key != "" {
		c.network = g.networks[c.key] // those that made room may have been the last ones
		if c.network == nil {
			c.network = &network{waiting: list.New()}
			g.networks[c.key] = c.network
		}
		c.network.open++
	}
	g.open++
	if c.beyond = beyond; beyond {
		g.beyond++
	}
	g.wait(c)
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
	c.since = time.Now()
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
	g.tellFreed()
}

// tellFreed wakes who waits for a place.
func (g *Guard) tellFreed() {
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

// oldest takes the connection that waits longest out of the count.
func (g *Guard) oldest(waiting *list.List) *conn {
	c := first(waiting)
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
	if c.beyond {
		g.beyond--
	}
	g.tellFreed()
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
	defer c.wake()
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
