package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
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
)

// listener is one HTTP server on its address.
type listener struct {
	server  *http.Server
	address net.Addr
	done    chan struct{}
}

// listen binds the address before it returns, so that a port in use stops the
// start, and serves until it is stopped.
func (i *Instance) listen(ctx context.Context, name, address string, lockWait time.Duration, h http.Handler) (*listener, error) {
	var lc net.ListenConfig
	socket, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open the %s listener: %w", name, err)
	}
	l := &listener{
		address: socket.Addr(),
		done:    make(chan struct{}),
		server: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      lockWait + writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(i.log.Handler(), slog.LevelDebug),
		},
	}
	go func() {
		defer close(l.done)
		if err := l.server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			i.failed <- fmt.Errorf("the %s listener ended: %w", name, err)
		}
	}()
	i.onClose(name+" listener", l.stop)
	return l, nil
}

// stop lets the requests under way finish, within shutdownTimeout.
func (l *listener) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	err := l.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, l.server.Close())
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
