// Package listener is one HTTP server on its address: limits for clients, how it leaves, and who may ask it.
package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"seckill/internal/budget"
	"seckill/internal/conns"
)

// Limits of the HTTP servers, for a phone on a bad network. Handlers with longer answers move the write deadline.
const (
	writeTimeout   = 2 * budget.Step
	maxHeaderBytes = 16 << 10
	// idleTimeout exceeds any load balancer's (Google: 600 s): a purchase on a closed connection is not repeated.
	idleTimeout = 620 * time.Second
)

// Listener is one HTTP server on its address.
type Listener struct {
	options Options
	server  *http.Server
	socket  net.Listener
	done    chan struct{}
}

// Options say what is served where.
type Options struct {
	Name     string
	Address  string
	Handler  http.Handler
	Leaving  func() bool // the stop has begun: answers close their connections; nil: they do not
	Guard    *conns.Guard
	Slowest  time.Duration   // what an answer may take beside 20 s
	Patience time.Duration   // with the requests under way at a stop
	Failed   func(err error) // it ended by itself
	Log      *slog.Logger
}

// Open binds the address before it returns, so that a port in use stops the start, and serves until it is stopped.
func Open(ctx context.Context, o Options) (*Listener, error) {
	socket, err := conns.Listen(ctx, o.Address)
	if err != nil {
		return nil, fmt.Errorf("open the %s listener: %w", o.Name, err)
	}
	l := &Listener{
		options: o, socket: socket, done: make(chan struct{}),
		server: &http.Server{
			Handler:           o.Handler,
			ReadHeaderTimeout: budget.Answer,
			ReadTimeout:       budget.Step,
			WriteTimeout:      o.Slowest + writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
			// net/http would answer OPTIONS * itself, without an id, limits and metrics.
			DisableGeneralOptionsHandler: true,
		},
	}
	if o.Leaving != nil {
		l.server.Handler = closing(o.Handler, o.Leaving)
	}
	watched := o.Guard.Watch(l.server, socket)
	go func() {
		defer close(l.done)
		if err := l.server.Serve(watched); !errors.Is(err, http.ErrServerClosed) {
			o.Failed(fmt.Errorf("the %s listener ended: %w", o.Name, err))
		}
	}()
	return l, nil
}

// Stop takes no new connections, and lets requests finish. Clients beyond the patience are cut off: their fault.
func (l *Listener) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.options.Patience)
	defer cancel()
	conns.TakeNoMore(ctx, l.socket)
	err := l.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		l.options.Log.WarnContext(ctx, "connections were cut off at the stop", slog.String("listener", l.options.Name))
		err = l.server.Close()
	}
	<-l.done
	return err
}

// URL is where clients on this machine reach the listener.
func (l *Listener) URL() string {
	host, port, _ := net.SplitHostPort(l.socket.Addr().String()) // an address of TCP has both
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// closing asks the clients of a leaving instance to use another connection (net/http makes HTTP/2's GOAWAY of the
// header), so that no proxy sends a request at the end. It asks when an answer begins: some take half a minute.
func closing(next http.Handler, leaving func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&closingWriter{w, leaving, false}, r)
	})
}

type closingWriter struct {
	http.ResponseWriter

	leaving func() bool
	begun   bool
}

func (w *closingWriter) WriteHeader(status int) {
	if w.leaving() {
		w.Header().Set("Connection", "close")
	}
	w.begun = w.begun || status >= http.StatusOK
	w.ResponseWriter.WriteHeader(status)
}

func (w *closingWriter) Write(data []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(data)
}

// Flush implements http.Flusher, which Gin asks for.
func (w *closingWriter) Flush() {
	w.begin()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap gives http.ResponseController the connection's deadlines.
func (w *closingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *closingWriter) begin() {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
}

// AdviseInner says that the operations listener can be reached from the internet, as far as addresses are known.
func (l *Listener) AdviseInner(ctx context.Context) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		l.options.Log.DebugContext(ctx, "the addresses of this machine are not known", slog.Any("error", err))
	}
	if public := publicAddresses(l.socket.Addr(), own); len(public) > 0 {
		l.options.Log.WarnContext(ctx,
			"the operations listener can be reached at a public address, and anybody who reaches it "+
				"reads metrics and profiles: set SECKILL_OPS_ADDR to an address of the inner network",
			slog.String("listens", l.socket.Addr().String()), slog.Any("public", public))
	}
}

// OnMachine is this machine's name, and the listener's port: a machine may have several instances.
func (l *Listener) OnMachine() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	_, port, _ := net.SplitHostPort(l.socket.Addr().String())
	return net.JoinHostPort(host, port)
}

// publicAddresses are a listener's, or its machine's, outside of RFC 1918, RFC 4193, RFC 6598 and link-local ones.
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

// KnownHosts answers only requests for a name that no foreign page can have. By DNS rebinding a page of evil.example
// makes a browser inside ask this listener and reads the answer; the Host is still evil.example. Allowed are:
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
			http.Error(w, "this listener is asked by address, or by a name of the inner network",
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf is the name in a Host header, without a port and the root's dot.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.Trim(header, "[]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// innerName reports whether a name cannot be registered. The empty one is HTTP/1.0's without a Host header.
func innerName(host string) bool {
	_, err := netip.ParseAddr(host)
	below := func(domain string) bool { return strings.HasSuffix(host, domain) }
	return err == nil || !strings.Contains(host, ".") ||
		slices.ContainsFunc([]string{".localhost", ".local", ".internal", ".svc"}, below)
}
