// Package conns bounds the connections of an HTTP server: else clients that only connect use up the process's
// descriptors, and neither a buyer nor a database is reached, without a line in the log. A connection waits while no
// request is under way: it is new, idle, or sends its header slowly. At the bound the one that has waited longest makes
// room, so that silent connections cost no client that says something; but each has a second to say it. What finds no
// place stays in the kernel's queue, all of which is answered: meanwhile answers close their connections (see Crowded).
package conns

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/ratelimit"
	"seckill/model"
)

const (
	madeRoom        = 16      // closed when no descriptor is left: the next accept and database call must succeed
	most            = 10_000  // of one server: of those that wait each takes some 20 kB, which makes 200 MB
	reserve         = 512     // left to the database, Redis, the queue and files; of few it is two thirds
	few             = 1024    // with fewer descriptors the start warns
	maxParked       = 64      // wait for a place of their network, beyond those that are open
	manyDescriptors = 1 << 20 // taken for the limit where the system does not tell one
)

// What is logged of trouble.
const (
	noneAccepted = "connections cannot be accepted"
	tooMany      = "connections wait for others to end: too many are open"
	roomMade     = "connections that waited were closed to make room"
)

// Options say how many connections a server may have; Name, Metrics and Log are required.
type Options struct {
	Name       string         // of the listener, in metrics and logs
	Max        int            // open connections; zero: as many as memory and the process's limit of descriptors allow
	PerNetwork int            // from one address, of IPv6 from one /64; zero: half, as an office has one address
	Exempt     []netip.Prefix // may have them all: the trusted proxies
	Metrics    prometheus.Registerer
	Log        *slog.Logger
}

// Guard watches the connections of one server. It is safe for concurrent use.
type Guard struct {
	options      Options
	acceptErrors prometheus.Counter
	closed       *prometheus.CounterVec     // by reason
	lines        map[string]*rate.Sometimes // by trouble
	rest         time.Duration
	longest      time.Duration // that an answer of the server may take
	freed        chan struct{} // somebody has left, or has begun a request

	mu       sync.Mutex
	open     int
	parked   int
	waiting  *list.List     // of *conn, the one that waits longest first
	networks map[string]int // open connections of an address, of IPv6 of a /64
	crowded  time.Time      // since when all connections are in use; zero: they are not
	failed   time.Time      // the latest accept that failed
}

// New makes a guard for one server.
func New(o Options) *Guard {
	limit := Descriptors()
	if o.Max == 0 {
		o.Max = min(most, max(limit-min(reserve, limit*2/3), 1))
		say := o.Log.Info
		if limit < few {
			say = o.Log.Warn
		}
		say("connections of clients are bounded; a higher limit of descriptors (ulimit -n, LimitNOFILE) allows more",
			slog.Int("connections", o.Max), slog.Int("descriptors", limit))
	} else {
		o.Max = min(o.Max, max(limit/16, 1))
	}
	o.PerNetwork = cmp.Or(o.PerNetwork, max(o.Max/2, 1))
	g := &Guard{
		options: o, rest: budget.Look, freed: make(chan struct{}, 1), waiting: list.New(),
		networks: map[string]int{},
	}
	g.lines = map[string]*rate.Sometimes{}
	for _, trouble := range []string{noneAccepted, tooMany, roomMade} {
		g.lines[trouble] = &rate.Sometimes{Interval: budget.Answer}
	}
	g.register(prometheus.Labels{"listener": o.Name})
	return g
}

func (g *Guard) register(labels prometheus.Labels) {
	g.acceptErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "seckill_connections_accept_errors_total", ConstLabels: labels,
		Help: "Connections that could not be accepted, for example for want of descriptors.",
	})
	g.closed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "seckill_connections_closed_total", ConstLabels: labels,
		Help: "Connections closed because of a bound, by reason: waiting ones that made room for others, " +
			"or for want of descriptors.",
	}, []string{"reason"})
	for _, reason := range []string{"descriptors", "room"} {
		g.closed.WithLabelValues(reason) // from zero: of a series that is born with 1 Prometheus sees no increase
	}
	g.options.Metrics.MustRegister(g.acceptErrors, g.closed,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "seckill_connections_open", ConstLabels: labels, Help: "Connections that are open.",
		}, func() float64 { return float64(g.Open()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "seckill_connections_max", ConstLabels: labels, Help: "Connections that may be open.",
		}, func() float64 { return float64(g.options.Max) }))
}

// Watch bounds the connections that a server accepts from a listener.
func (g *Guard) Watch(server *http.Server, listener net.Listener) net.Listener {
	server.ConnState, g.longest = g.changed, server.WriteTimeout
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	ctx, end := context.WithCancel(context.Background())
	return &guarded{listener, g, ctx.Done(), end}
}

type connKey struct{}

// Crowded reports whether the connection of a request should not outlast its answer, because others wait for its place.
func Crowded(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return false
	}
	c.guard.mu.Lock()
	defer c.guard.mu.Unlock()
	return c.guard.fullFor(c.network)
}

// Probe tells why new clients should go elsewhere.
func (g *Guard) Probe(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch now := time.Now(); {
	case now.Sub(g.failed) < budget.Answer:
		return model.Unavailable(noneAccepted, nil)
	case !g.crowded.IsZero() && now.Sub(g.crowded) >= budget.Answer:
		return model.Unavailable("all connections are in use", nil)
	}
	return nil
}

// Open is how many connections are open.
func (g *Guard) Open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

type guarded struct {
	net.Listener

	guard *Guard
	ended <-chan struct{}
	end   context.CancelFunc
}

func (l *guarded) Close() error {
	l.end()
	return l.Listener.Close()
}

// Accept implements net.Listener: a new connection waits for a place. The server pauses after an error that passes.
func (l *guarded) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		l.guard.notAccepted(err)
		return nil, err
	}
	tcp, ok := accepted.(*net.TCPConn)
	if !ok {
		return accepted, nil
	}
	c := &conn{TCPConn: tcp, guard: l.guard, network: l.guard.networkOf(tcp), moved: make(chan struct{}, 1)}
	again := time.NewTicker(budget.Blink)
	defer again.Stop()
	for !l.guard.place(c) {
		l.guard.say(tooMany, slog.String("address", tcp.RemoteAddr().String()))
		if l.guard.park(c) {
			break
		}
		select {
		case <-l.guard.freed:
		case <-again.C:
		case <-l.ended:
			return nil, errors.Join(net.ErrClosed, tcp.Close())
		}
	}
	return c, nil
}

// park lets a connection wait in its first Read for a place that only its own network lacks: nobody waits behind it.
func (g *Guard) park(c *conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.full() || g.parked >= maxParked {
		return false
	}
	g.parked++
	c.parked.Store(true)
	return true
}

// leave takes a connection out of those that are parked.
func (g *Guard) leave(c *conn) {
	if c.parked.CompareAndSwap(true, false) {
		g.parked--
	}
}

func (g *Guard) notAccepted(err error) {
	if errors.Is(err, net.ErrClosed) {
		return // the stop
	}
	g.acceptErrors.Inc()
	g.say(noneAccepted, slog.Any("error", err))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = time.Now()
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		for range min(madeRoom, g.waiting.Len()) {
			c, _ := g.waiting.Front().Value.(*conn)
			g.remove(c, "descriptors")
		}
	}
}

// place counts a connection among the waiting ones, if there is room or others make it. A closed one needs none.
func (g *Guard) place(c *conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.makeRoom(c.network)
	if g.full() && g.crowded.IsZero() {
		g.crowded = time.Now()
	}
	if c.closed || g.fullFor(c.network) {
		return c.closed
	}
	g.leave(c)
	c.counted = true
	g.open++
	g.networks[c.network]++
	g.wait(c)
	return true
}

// makeRoom closes connections that have waited long enough, while one of a network has no place: those of a network that
// has all it may have are its own.
func (g *Guard) makeRoom(network string) {
	for next := g.waiting.Front(); next != nil && g.fullFor(network); {
		c, _ := next.Value.(*conn) // nothing else is in there
		if next = next.Next(); time.Since(c.since) < g.rest {
			return
		}
		if c.network == network || !g.greedy(network) {
			g.remove(c, "room")
		}
	}
}

func (g *Guard) full() bool { return g.open >= g.options.Max }

// greedy reports whether a network has all the connections that it may have; an exempt one has no name.
func (g *Guard) greedy(network string) bool {
	return network != "" && g.networks[network] >= g.options.PerNetwork
}

func (g *Guard) fullFor(network string) bool { return g.full() || g.greedy(network) }

func (g *Guard) remove(c *conn, why string) {
	g.forget(c)
	g.closed.WithLabelValues(why).Inc()
	_ = c.TCPConn.Close()
	g.say(roomMade, slog.Int("open", g.open))
}

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
	case http.StateNew, http.StateHijacked, http.StateClosed: // see Accept and Close
	}
}

func (g *Guard) wait(c *conn) {
	if c.counted && c.waits == nil {
		c.since = time.Now()
		c.waits = g.waiting.PushBack(c)
	}
}

func (g *Guard) busy(c *conn) {
	if c.waits != nil {
		g.waiting.Remove(c.waits)
		c.waits = nil
		poll.Wake(g.freed) // somebody may wait for a place
	}
}

func (g *Guard) forget(c *conn) {
	g.leave(c)
	c.closed = true
	if !c.counted {
		return
	}
	g.busy(c)
	c.counted = false
	g.open--
	if g.networks[c.network]--; g.networks[c.network] == 0 {
		delete(g.networks, c.network)
	}
	if !g.full() {
		g.crowded = time.Time{}
	}
	poll.Wake(g.freed) // somebody may wait for a place
}

// networkOf names the network of a connection's other end; empty where it is exempt.
func (g *Guard) networkOf(c *net.TCPConn) string {
	peer, _ := c.RemoteAddr().(*net.TCPAddr)
	address := peer.AddrPort().Addr().Unmap()
	if slices.ContainsFunc(g.options.Exempt, func(p netip.Prefix) bool { return p.Contains(address) }) {
		return ""
	}
	return ratelimit.Network(address)
}

// say logs one kind of trouble now and then.
//
//nolint:sloglint // the callers' texts are constants
func (g *Guard) say(trouble string, attrs ...slog.Attr) {
	g.lines[trouble].Do(func() {
		g.options.Log.LogAttrs(context.Background(), slog.LevelWarn, trouble,
			append(attrs, slog.String("listener", g.options.Name))...)
	})
}

// Listen opens a listener, whose end TakeNoMore can prepare: for that it must not speak Multipath TCP.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", address)
}

// conn is one connection under watch. As a TCPConn it can close its half, without which an answer may be lost.
type conn struct {
	*net.TCPConn

	guard   *Guard
	network string        // empty: exempt
	parked  atomic.Bool   // it has no place yet; changed under the guard's mutex
	watched atomic.Bool   // a Read has no deadline
	moved   chan struct{} // has an element when the deadline was moved, or the connection closed

	// The guard's mutex guards these.
	counted bool // it has a place
	closed  bool
	since   time.Time     // it waits
	waits   *list.Element // in the guard's waiting; nil: a request is under way
}

func (c *conn) Close() error {
	c.guard.mu.Lock()
	c.guard.forget(c)
	c.guard.mu.Unlock()
	defer poll.Wake(c.moved)
	return c.TCPConn.Close()
}

// Read implements net.Conn. A client that closes its half behind its request may still read the answer (RFC 9293, 3.6),
// but net/http, which watches the connection, would cancel the request. So the end is kept back until it stops to
// watch, or as long as an answer may take; but where the server has set a deadline, it reads the end at once.
func (c *conn) Read(p []byte) (int, error) {
	if c.parked.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), budget.Answer)
		defer cancel()
		if err := poll.Until(ctx, budget.Blink, func() (bool, error) { return c.guard.place(c), nil }); err != nil {
			return 0, err
		}
	}
	n, err := c.TCPConn.Read(p)
	if err != io.EOF || !c.watched.Load() { //nolint:errorlint // package net never wraps it
		return n, err
	}
	patience := time.NewTimer(c.guard.longest)
	defer patience.Stop()
	for err == io.EOF && c.watched.Load() { //nolint:errorlint // likewise
		select {
		case <-c.moved:
			n, err = c.TCPConn.Read(p)
		case <-patience.C:
			return n, err
		}
	}
	return n, err
}

func (c *conn) SetReadDeadline(at time.Time) error {
	c.watched.Store(at.IsZero())
	err := c.TCPConn.SetReadDeadline(at)
	poll.Wake(c.moved)
	return err
}

// unread are the refusals that net/http writes itself, in plain text, and the problem documents in their place.
//
//nolint:gochecknoglobals // constants
var unread = map[string]string{
	"HTTP/1.1 400": `{"type":"/problems/validation","title":"Validation failed","status":400,"detail":"The request cannot be read.","code":"VALIDATION"}`,
	"HTTP/1.1 431": `{"type":"/problems/payload-too-large","title":"Payload too large","status":431,"detail":"The header is larger than 16 KiB.","code":"PAYLOAD_TOO_LARGE"}`,
}

func (c *conn) Write(data []byte) (int, error) {
	status, rest, _ := bytes.Cut(data, []byte("\r\n"))
	problem, ok := unread[string(status[:min(len(status), len("HTTP/1.1 400"))])]
	if !ok || !bytes.HasPrefix(rest, []byte("Content-Type: text/plain")) {
		return c.TCPConn.Write(data)
	}
	_, err := fmt.Fprintf(c.TCPConn, "%s\r\nContent-Type: application/problem+json\r\nCache-Control: no-store\r\n"+
		"X-Request-Id: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		status, rand.Text(), len(problem)+1, problem)
	return len(data), err
}

// Set is the open connections to one server, to be closed at once. The zero Set is empty, and safe for concurrent use.
type Set struct{ open sync.Map }

// Keep puts a connection into the set until it is closed: what it returns is used in its place.
func (s *Set) Keep(conn net.Conn) net.Conn {
	s.open.Store(conn, nil)
	kept := &member{conn, s}
	if raw, ok := conn.(syscall.Conn); ok {
		return rawMember{kept, raw}
	}
	return kept
}

// Cut closes every connection, also those that wait for an answer. Their owners close them again.
func (s *Set) Cut() {
	for conn := range s.open.Range {
		if open, ok := conn.(net.Conn); ok {
			_ = open.Close()
		}
	}
}

type member struct {
	net.Conn

	of *Set
}

func (m *member) Close() error {
	m.of.open.Delete(m.Conn)
	return m.Conn.Close()
}

// rawMember is one whose socket a client looks at before it is used again. (Not at that of a TLS connection.)
type rawMember struct {
	*member
	syscall.Conn
}
