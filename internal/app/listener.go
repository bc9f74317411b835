package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"seckill/internal/conns"
)

// Limits of the HTTP servers. The slowest honest client has a phone on a bad
// network. An answer is written within the wait for a lock and writeTimeout;
// the handlers of those that take longer move the deadline.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 20 * time.Second
	maxHeaderBytes    = 16 << 10
	// idleTimeout is longer than any load balancer keeps a connection that it does not use (Google's 600 s). Were it
	// shorter, a request would now and then meet the end of its connection, and a purchase is not sent again.
	idleTimeout = 620 * time.Second
	// opsConnections is enough for some scrapers and profiles.
	opsConnections = 100
)

// listener is one HTTP server on its address.
type listener struct {
	name     string
	server   *http.Server
	socket   net.Listener
	patience time.Duration // with the requests under way at a stop
	done     chan struct{}
	log      *slog.Logger
}

// listenerOptions say what is served where.
type listenerOptions struct {
	name     string
	address  string
	handler  http.Handler
	leaving  func() bool // the stop has begun: answers close their connections; nil: they do not
	guard    *conns.Guard
	slowest  time.Duration // what an answer may take beside writeTimeout
	patience time.Duration
}

// listen binds the address before it returns, so that a port in use stops the
// start, and serves until it is stopped.
func (i *Instance) listen(ctx context.Context, o listenerOptions) (*listener, error) {
	socket, err := conns.Listen(ctx, o.address)
	if err != nil {
		return nil, fmt.Errorf("open the %s listener: %w", o.name, err)
	}
	l := &listener{
		name:     o.name,
		socket:   socket,
		patience: o.patience,
		done:     make(chan struct{}),
		log:      i.log,
		server: &http.Server{
			Handler:           o.handler,
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      o.slowest + writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(i.log.Handler(), slog.LevelDebug),
			// net/http would answer OPTIONS * itself, without an id, limits and metrics.
			DisableGeneralOptionsHandler: true,
		},
	}
	if o.leaving != nil {
		l.server.Handler = closing(o.handler, o.leaving)
	}
	watched := o.guard.Watch(l.server, socket)
	go func() {
		defer close(l.done)
		if err := l.server.Serve(watched); !errors.Is(err, http.ErrServerClosed) {
			i.failed <- fmt.Errorf("the %s listener ended: %w", o.name, err)
		}
	}()
	i.onClose(o.name+" listener", l.stop)
	return l, nil
}

// stop takes no new connections, and lets the requests under way finish. Clients that
// take longer than the listener has patience are cut off: that is their fault, not the stop's.
func (l *listener) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	conns.TakeNoMore(ctx, l.socket)
	err := l.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		l.log.WarnContext(ctx, "connections were cut off at the stop", slog.String("listener", l.name))
		err = l.server.Close()
	}
	<-l.done
	return err
}

// url is where clients on this machine reach the listener.
func (l *listener) url() string {
	host, port, err := net.SplitHostPort(l.socket.Addr().String())
	if err != nil {
		return "http://" + l.socket.Addr().String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
