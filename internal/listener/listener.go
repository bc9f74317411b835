// Package listener is one HTTP server on its address: the limits that it sets its clients, how it leaves, and from
// where it may be asked.
package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"seckill/internal/budget"
	"seckill/internal/conns"
)

// Limits of the HTTP servers. The slowest honest client has a phone on a bad network. An answer is written within the
// wait for a lock and writeTimeout; the handlers of those that take longer move the deadline.
const (
	writeTimeout   = 2 * budget.Step
	maxHeaderBytes = 16 << 10
	// idleTimeout is longer than any load balancer keeps a connection that it does not use (Google's 600 s). Were it
	// shorter, a request would now and then meet the end of its connection, and a purchase is not sent again.
	idleTimeout = 620 * time.Second
)

// Listener is one HTTP server on its address.
type Listener struct {
	name     string
	server   *http.Server
	socket   net.Listener
	patience time.Duration // with the requests under way at a stop
	done     chan struct{}
	log      *slog.Logger
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
		name:     o.Name,
		socket:   socket,
		patience: o.Patience,
		done:     make(chan struct{}),
		log:      o.Log,
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

// Stop takes no new connections, and lets the requests under way finish. Clients that
// take longer than the listener has patience are cut off: that is their fault, not the stop's.
func (l *Listener) Stop(ctx context.Context) error {
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

// URL is where clients on this machine reach the listener.
func (l *Listener) URL() string {
	host, port, err := net.SplitHostPort(l.socket.Addr().String())
	if err != nil {
		return "http://" + l.socket.Addr().String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Addr is where it listens.
func (l *Listener) Addr() net.Addr { return l.socket.Addr() }
