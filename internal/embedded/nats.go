package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
)

const (
	// natsStore bounds the files of the queue, in bytes: some four million
	// waiting orders. When it is full, publishing is refused.
	natsStore = 1 << 30
	// natsMemory serves only the server's own state, as in deployments/.
	natsMemory = 64 << 20
	// natsStart bounds the start. A full store is read in a few seconds.
	natsStart = 30 * time.Second
)

// NATS is a NATS server with JetStream inside this process. It listens nowhere:
// connections are made within the process. Unlike the embedded Redis it keeps
// what it was given: every message is flushed to its files before it is
// acknowledged.
type NATS struct {
	server *server.Server
	guard  *flock.Flock
}

// StartNATS starts a server whose files are in the directory `nats` of a data
// directory. It has the messages that an earlier server stored there. It fails when
// the directory cannot be used, or is in use.
func StartNATS(dir string, log *slog.Logger) (*NATS, error) {
	store := filepath.Join(dir, queueDir)
	if err := usable(store); err != nil {
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
	return &NATS{server: started, guard: guard}, nil
}

// usable makes the directory and tries whether a file can be written there: the
// server would start without one and refuse the first order.
func usable(store string) error {
	if err := MakeDir(store); err != nil {
		return err
	}
	file, err := os.CreateTemp(store, "try-*")
	if err == nil {
		_, err = file.WriteString("can be written\n")
		err = errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	if err != nil {
		return fmt.Errorf("the queue's directory %s cannot be written: %w", store, err)
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
	if !s.ReadyForConnections(natsStart) || !s.JetStreamEnabled() {
		return fmt.Errorf("it was not ready within %s", natsStart)
	}
	return nil
}

// InProcessConn connects to the server. It makes a NATS a
// nats.InProcessConnProvider, which is what a client asks for.
func (n *NATS) InProcessConn() (net.Conn, error) {
	conn, err := n.server.InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded queue: %w", err)
	}
	return conn, nil
}

// Close stops the server in order. Its clients must have been closed before. It
// is safe to call twice.
func (n *NATS) Close() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
	_ = n.guard.Close() // the end of the process frees it at the latest
}

// natsLog passes on the records of the embedded server: notices as debug records,
// errors as warnings. The stock logger would end the process at a fatal error;
// this one keeps the first, which is the reason why a start failed.
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
