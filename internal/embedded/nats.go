package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/time/rate"

	"seckill/internal/budget"
	"seckill/internal/poll"
)

const (
	natsStore  = 1 << 30  // of the queue's files, in bytes: some four million waiting orders; a full queue refuses more
	natsMemory = 64 << 20 // for the server's own state alone, as in deployments/
	natsRoom   = 2 << 20  // must fit on the disk before a refusing store is opened again, in bytes: a message, a start
)

// NATS is a NATS server with JetStream in this process, which listens nowhere. A message is flushed before its ack.
type NATS struct {
	server atomic.Pointer[server.Server]
	store  string
	guard  *flock.Flock
	log    *slog.Logger
	says   rate.Sometimes // that the store refuses

	mu     sync.Mutex // held while it is opened again, or closed
	closed bool
}

// StartNATS starts a server on the files in `nats` of a data directory, an earlier server's too. It fails if it cannot.
func StartNATS(dir string, log *slog.Logger) (*NATS, error) {
	store := filepath.Join(dir, queueDir)
	if err := usable(store, 0); err != nil {
		return nil, err
	}
	guard := flock.New(filepath.Join(store, claimFile), flock.SetPermissions(0o600))
	locked, err := guard.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the queue's directory %s: %w", store, err)
	}
	if !locked {
		return nil, fmt.Errorf("another process has the queue in %s open", store)
	}
	started, err := startNATS(store, log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the embedded queue in %s: %w", store, err), guard.Close())
	}
	n := &NATS{store: store, guard: guard, log: log, says: rate.Sometimes{Interval: budget.Survey}}
	n.server.Store(started)
	return n, nil
}

// usable makes the directory and tries whether it has the room: a server would start and refuse the first order.
func usable(store string, room int) error {
	if err := MakeDir(store); err != nil {
		return err
	}
	file, err := os.CreateTemp(store, "try-*")
	if err == nil {
		_, err = file.Write(make([]byte, max(room, 16)))
		err = errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	if err != nil {
		return fmt.Errorf("the directory %s cannot be written: %w", store, err)
	}
	return nil
}

func startNATS(store string, log *slog.Logger) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{
		ServerName:         "seckill-embedded",
		DontListen:         true,
		NoSigs:             true, // signals are the program's
		NoLog:              true, // no logger but ours
		JetStream:          true,
		StoreDir:           store,
		SyncAlways:         true, // the promise behind a 202
		JetStreamMaxStore:  natsStore,
		JetStreamMaxMemory: natsMemory,
	})
	if err != nil {
		return nil, err
	}
	journal := &natsLog{log: log}
	s.SetLogger(journal, false, false)
	s.Start() // tells what went wrong only in its log
	if err := ready(s, journal); err != nil {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, err
	}
	return s, nil
}

func ready(s *server.Server, journal *natsLog) error {
	if reason := journal.fatal.Load(); reason != nil {
		return errors.New(*reason)
	}
	if !s.ReadyForConnections(budget.Settled) || !s.JetStreamEnabled() {
		return fmt.Errorf("it was not ready within %s", budget.Settled)
	}
	return health(s) // a stream that could not be read would be missing, and be made anew
}

// health is what the server itself says of its streams: whether each is there that has files, and can be written.
func health(s *server.Server) error {
	if !s.Running() {
		return errors.New("the server does not run")
	}
	var found []string
	for _, trouble := range s.Healthz(&server.HealthzOptions{Details: true}).Errors {
		// The server has a millisecond to look, which a busy machine may exceed.
		if trouble.Type != server.HealthzErrorConn {
			found = append(found, trouble.Error)
		}
	}
	if found != nil {
		return fmt.Errorf("the store is not as it must be: %s", strings.Join(found, "; "))
	}
	return nil
}

// Check asks whether the store takes orders. After a failed write it refuses until KeepOpen has opened it again.
func (n *NATS) Check(context.Context) error { return health(n.server.Load()) }

// KeepOpen opens the store again after a failed write, once there is room. What was acknowledged is kept.
func (n *NATS) KeepOpen(ctx context.Context) {
	poll.Every(ctx, budget.Look, func() {
		err := n.Check(ctx)
		if err == nil {
			return
		}
		failed := n.reopen()
		n.says.Do(func() {
			n.log.ErrorContext(ctx, "the embedded queue stores no orders; it is opened again when there is room",
				slog.Any("error", err))
			if failed != nil {
				n.log.WarnContext(ctx, "the embedded queue cannot be opened again yet", slog.Any("error", failed))
			}
		})
		if failed == nil {
			n.log.InfoContext(ctx, "the embedded queue was opened again")
		}
	})
}

func (n *NATS) reopen() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	if err := usable(n.store, natsRoom); err != nil {
		return err
	}
	n.end()
	started, err := startNATS(n.store, n.log)
	if err != nil {
		return err
	}
	n.server.Store(started)
	return nil
}

func (n *NATS) end() {
	n.server.Load().Shutdown()
	n.server.Load().WaitForShutdown()
}

// InProcessConn connects to the server. It makes a NATS a nats.InProcessConnProvider, which is what a client asks for.
func (n *NATS) InProcessConn() (net.Conn, error) {
	conn, err := n.server.Load().InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded queue: %w", err)
	}
	return conn, nil
}

// Close stops the server in order. Its clients must have been closed before. It is safe to call twice.
func (n *NATS) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.end()
	_ = n.guard.Close() // the end of the process frees it at the latest
}

// natsLog passes on the records of the embedded server: notices as debug records, errors as warnings. The stock logger
// would end the process at a fatal error; this one keeps the first, which is the reason why a start failed.
type natsLog struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *natsLog) Noticef(format string, args ...any) { l.debug(format, args) }
func (l *natsLog) Debugf(format string, args ...any)  { l.debug(format, args) }
func (l *natsLog) Tracef(format string, args ...any)  { l.debug(format, args) }
func (l *natsLog) Warnf(format string, args ...any)   { l.warn(format, args) }
func (l *natsLog) Errorf(format string, args ...any)  { l.warn(format, args) }

func (l *natsLog) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.fatal.CompareAndSwap(nil, &text)
	l.warn("%s", []any{text})
}

func (l *natsLog) debug(format string, args []any) {
	l.log.Debug("embedded queue", slog.String("says", fmt.Sprintf(format, args...)))
}

func (l *natsLog) warn(format string, args []any) {
	l.log.Warn("embedded queue", slog.String("says", fmt.Sprintf(format, args...)))
}
