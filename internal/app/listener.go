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
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	// opsConnections is enough for some scrapers and profiles.
	opsConnections = 100
)

// listener is one HTTP server on its address.
type listener struct {
	name     string
	server   *http.Server
	address  net.Addr
	patience time.Duration // with the requests under way at a stop
	done     chan struct{}
	log      *slog.Logger
}

// listenerOptions say what is served where.
type listenerOptions struct {
	name     string
	address  string
	handler  http.Handler
	guard    *conns.Guard
	slowest  time.Duration // what an answer may take beside writeTimeout
	patience time.Duration
}

// listen binds the address before it returns, so that a port in use stops the
// start, and serves until it is stopped.
func (i *Instance) listen(ctx context.Context, o listenerOptions) (*listener, error) {
	var lc net.ListenConfig
	socket, err := lc.Listen(ctx, "tcp", o.address)
	if err != nil {
		return nil, fmt.Errorf("open the %s listener: %w", o.name, err)
	}
	l := &listener{
		name:     o.name,
		address:  socket.Addr(),
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
	socket = o.guard.Watch(l.server, socket)
	go func() {
		defer close(l.done)
		if err := l.server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			i.failed <- fmt.Errorf("the %s listener ended: %w", o.name, err)
		}
	}()
	i.onClose(o.name+" listener", l.stop)
	return l, nil
}

// stop lets the requests under way finish. Clients that take longer than the
// listener has patience are cut off: that is their fault, not the stop's.
func (l *listener) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
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
	host, port, err := net.SplitHostPort(l.address.String())
	if err != nil {
		return "http://" + l.address.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
