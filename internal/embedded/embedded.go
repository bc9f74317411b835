// Package embedded holds what the service brings along when nothing is configured: a Redis and a queue in this process,
// and a data directory with the secret that signs tokens. It is for trying out, not for selling.
package embedded

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/alicebob/miniredis/v2"
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

// Redis is a Redis server inside this process, on a free port of the loopback interface. Its random password is in this
// process alone: any other caller gets NOAUTH. It forgets all when closed, and runs Lua slowly (some 1,700 a second).
type Redis struct {
	server   *miniredis.Miniredis
	password string
}

// StartRedis starts an empty server.
func StartRedis() (*Redis, error) {
	server, password := miniredis.NewMiniRedis(), rand.Text()
	server.RequireAuth(password)
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	server.ClockTTL(true) // without a running clock no key would expire, nor a dead holder's lock
	return &Redis{server: server, password: password}, nil
}

// URL is where clients find the server, with its password: redis://:password@127.0.0.1:port/0.
func (r *Redis) URL() string { return "redis://:" + r.password + "@" + r.server.Addr() + "/0" }

// Close stops the server and its connections. It is safe to call twice.
func (r *Redis) Close() { r.server.Close() }

// What a data directory holds, beside its secrets.
const (
	databaseFile = "seckill.db"  // and SQLite's files beside it, whose names begin so
	ledgerFile   = "payments.db" // likewise
	queueDir     = "nats"
	claimFile    = "serve.lock"
)

// DataDir is a data directory that this process alone serves from.
type DataDir struct {
	path  string
	guard *flock.Flock
}

// ClaimDataDir makes the directory if it is missing and keeps other processes from opening it until Close or the end of
// this one: two servers on one SQLite file, each with its own Redis, would not exclude each other's buyers. Commands
// that only read or change the database (`audit`, `admin create`) need no DataDir. Other users lose their rights in it,
// which is logged. While another process has it, it waits until ctx ends: one that was killed has it a moment more.
func ClaimDataDir(ctx context.Context, path string, log *slog.Logger) (*DataDir, error) {
	if err := usable(path, 0); err != nil {
		return nil, fmt.Errorf("%w: name another one with SECKILL_DATA_DIR", err)
	}
	tighten(path, log)
	guard := flock.New(filepath.Join(path, claimFile), flock.SetPermissions(0o600))
	locked, err := guard.TryLockContext(ctx, budget.Blink)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("lock the data directory %s: %w", path, err)
	}
	if !locked {
		return nil, fmt.Errorf("another seckill serves from the data directory %s: "+
			"stop it, or choose another directory with SECKILL_DATA_DIR", path)
	}
	return &DataDir{path: path, guard: guard}, nil
}

// Close lets others serve from the directory. It is safe to call twice.
func (d *DataDir) Close() error {
	if err := d.guard.Close(); err != nil {
		return fmt.Errorf("unlock the data directory %s: %w", d.path, err)
	}
	return nil
}

// Exists fails when an embedded server's file is missing, lest a look leave an empty one; the error names the setting.
func Exists(path, what, variable string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no embedded %s in %s: name its directory with --data-dir, or set %s", what, path,
			variable)
	} else if err != nil {
		return fmt.Errorf("look for the embedded %s: %w", what, err)
	}
	return nil
}

// SQLiteFile is where the embedded database of a data directory lies.
func SQLiteFile(dir string) string { return filepath.Join(dir, databaseFile) }

// LedgerFile is where the ledger of the payment simulator lies.
func LedgerFile(dir string) string { return filepath.Join(dir, ledgerFile) }

// MakeDir makes a directory that only this user may read: it holds password hashes and the tokens' secret.
func MakeDir(path string) error {
	if err := os.MkdirAll(path, private); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return nil
}

const (
	secretFile   = "jwt.secret"
	codeKeyFile  = "code.key"
	secretLength = 32 // bytes of randomness, the size of the HMAC's hash
)

// Secret returns the secret that signs tokens in embedded mode. The first call makes and keeps it in the directory, for
// its owner alone; later calls, of other processes too, return the same: tokens outlive a restart.
func Secret(ctx context.Context, dir string) (string, error) {
	return keptSecret(ctx, filepath.Join(dir, secretFile), "whoever is logged in must log in again")
}

// CodeKey is Secret for the one that seals voucher codes: without it they cannot be read.
func CodeKey(ctx context.Context, dir string) (string, error) {
	return keptSecret(ctx, filepath.Join(dir, codeKeyFile), "the codes of paid orders cannot be used any more")
}

// keptSecret reads the secret in a file, or makes it. Loss is what happens without it.
func keptSecret(ctx context.Context, file, loss string) (string, error) {
	secret, err := readSecret(file, loss)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if err := MakeDir(filepath.Dir(file)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	guard := flock.New(file+".lock", flock.SetPermissions(0o600))
	defer func() { _ = guard.Close() }() // it ends with the process at the latest
	if _, err := guard.TryLockContext(ctx, budget.Blink); err != nil {
		return "", fmt.Errorf("wait for the secret in %s: %w", file, err)
	}
	// Another process may have made it while we waited.
	if secret, err = readSecret(file, loss); errors.Is(err, fs.ErrNotExist) {
		secret, err = makeSecret(file)
	}
	return secret, err
}

func readSecret(file, loss string) (string, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the operator names the directory
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if len(secret) < secretLength {
		return "", fmt.Errorf("the secret in %s is shorter than %d bytes: remove the file, "+
			"and a new one is made (%s)", file, secretLength, loss)
	}
	return secret, nil
}

// makeSecret writes a new secret under another name first, so that a crash leaves either the whole file or none.
func makeSecret(file string) (string, error) {
	random := make([]byte, secretLength)
	_, _ = rand.Read(random) // never fails
	secret := base64.RawURLEncoding.EncodeToString(random)
	partial, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("write a secret: %w", err)
	}
	_, err = partial.WriteString(secret + "\n")
	err = errors.Join(err, partial.Sync(), partial.Close())
	if err == nil {
		err = os.Rename(partial.Name(), file)
	}
	if err != nil {
		_ = os.Remove(partial.Name())
		return "", fmt.Errorf("write a secret: %w", err)
	}
	return secret, nil
}

const private fs.FileMode = 0o700 // of a data directory: only its owner has any

// tighten takes other users' rights from a data directory and what this program keeps there, left by an older version
// or a copy. It logs what it changed and what it could not: another user's volume is served from all the same.
func tighten(dir string, log *slog.Logger) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // a link has all rights, whatever those of its directory are
	}
	entries, err := os.ReadDir(dir)
	mine := []string{}
	for _, entry := range entries {
		if ours(entry.Name()) && (entry.IsDir() || entry.Type().IsRegular()) { // a link is not followed
			mine = append(mine, filepath.Join(dir, entry.Name()))
		}
	}
	// A directory in which other programs have files too, as /tmp, is not ours to close.
	shared := slices.ContainsFunc(entries, func(entry os.DirEntry) bool { return !ours(entry.Name()) })
	if !shared {
		mine = append(mine, dir)
	}
	changed := 0
	for _, path := range mine { // nobody else reaches what is in a directory of ours
		info, failed := os.Lstat(path)
		if failed == nil && info.Mode().Perm()&^private != 0 {
			if failed = os.Chmod(path, info.Mode().Perm()&private); failed == nil {
				changed++
			}
		}
		if !errors.Is(failed, fs.ErrNotExist) { // SQLite removes its journals
			err = errors.Join(err, failed)
		}
	}
	if changed > 0 && len(entries) > 0 { // in an empty directory there was nothing to read
		log.Warn("other users of this machine could read the data directory; from now on they cannot: "+
			"if one of them must not know the secrets in it, remove the file "+secretFile+" and start again "+
			"(a "+codeKeyFile+" that is removed takes the codes of paid orders with it)",
			slog.String("directory", dir), slog.Int("changed", changed))
	}
	if err != nil {
		log.Warn("the data directory may be readable for other users of this machine",
			slog.String("directory", dir), slog.Any("error", err))
	}
	if shared {
		log.Warn("the data directory holds files of others, and is left open to them: choose one of its own with SECKILL_DATA_DIR",
			slog.String("directory", dir))
	}
}

// ours reports whether this program makes files of that name in a data directory.
func ours(name string) bool {
	files := []string{databaseFile, ledgerFile, secretFile, codeKeyFile}
	begins := func(file string) bool { return strings.HasPrefix(name, file) }
	return name == queueDir || name == claimFile || slices.ContainsFunc(files, begins)
}
