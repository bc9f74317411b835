package embedded_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"seckill/internal/embedded"
	"seckill/internal/workshop/check"
)

func jetStream(t *testing.T, server *embedded.NATS) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	conn := check.Value(nats.Connect("", nats.InProcessServer(server)))(t)
	t.Cleanup(conn.Close)
	js := check.Value(jetstream.New(conn))(t)
	return conn, js
}

func TestNATSKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	log := &check.Log{}
	for round := range 3 {
		server := check.Value(embedded.StartNATS(dir, log.Logger()))(t)
		conn, js := jetStream(t, server)
		if round == 0 {
			check.Must(t, check.ErrorOf(js.CreateStream(t.Context(),
				jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})))
		}
		ack, err := js.Publish(t.Context(), "s", []byte("x"))
		check.That(t, err == nil && ack.Sequence == uint64(round+1), "round %d: sequence %+v, %v", round, ack, err)
		conn.Close()
		for range 2 {
			server.Close()
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "nats")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v; want it private", info, err)
	}
	if text := log.String(); !strings.Contains(text, "level=DEBUG") || strings.Contains(text, "level=ERROR") ||
		strings.Contains(text, "level=INFO") {
		t.Errorf("log:\n%s", text)
	}
}

func TestNATSFlushesIsBoundedAndListensNowhere(t *testing.T) {
	t.Parallel()
	server := check.Value(embedded.StartNATS(t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(server.Close)
	check.That(t, server.FlushesAlways(), "it acknowledges before its disk has the message")
	conn, js := jetStream(t, server)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", MaxBytes: 2 << 30}); err == nil {
		t.Error("its store is not bounded")
	}
	addr := conn.ConnectedAddr()
	check.That(t, addr == "pipe", "it is reached at %q", addr)
	check.Equal(t, "it listens", server.Listens(), false)
}

func TestNATSRefusesADirectoryItCannotUse(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for name, spoil := range map[string]func(dir string) (want string){
		"a file is in the way": func(dir string) string {
			check.Must(t, os.WriteFile(filepath.Join(dir, "nats"), []byte("a file"), 0o600))
			return filepath.Join(dir, "nats")
		},
		"it is in use": func(dir string) string {
			t.Cleanup(check.Value(embedded.StartNATS(dir, log))(t).Close)
			return "another process has"
		},
		"what only the server itself finds out": func(dir string) string {
			check.Must(t, os.MkdirAll(filepath.Join(dir, "nats"), 0o700))
			check.Must(t, os.WriteFile(filepath.Join(dir, "nats", "jetstream"), []byte("a file"), 0o600))
			return filepath.Join(dir, "nats")
		},
	} {
		dir := t.TempDir()
		want := spoil(dir)
		_, err := embedded.StartNATS(dir, log)
		check.That(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want %q", name, err, want)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T) *redis.Client {
	t.Helper()
	server := check.Value(embedded.StartRedis())(t)
	t.Cleanup(server.Close)
	t.Cleanup(server.Close) // twice does no harm
	options := check.Value(redis.ParseURL(server.URL()))(t)
	if host, _, err := net.SplitHostPort(options.Addr); err != nil || host != "127.0.0.1" {
		t.Fatalf("it listens on %s, where strangers may reach it (%v)", options.Addr, err)
	}
	c := redis.NewClient(options)
	t.Cleanup(func() { check.Must(t, c.Close()) })
	return c
}

// A lock whose holder died must become free by itself.
func TestKeysExpireByThemselves(t *testing.T) {
	t.Parallel()
	c, ctx := client(t), t.Context()
	check.Must(t, c.HSet(ctx, "lock:order:1", "holder:1", 1).Err())
	check.Must(t, c.PExpire(ctx, "lock:order:1", time.Hour).Err())
	left, err := c.PTTL(ctx, "lock:order:1").Result()
	check.Need(t, err == nil && left > 0 && left <= time.Hour, "PTTL = %s, %v", left, err)
	check.Must(t, c.PExpire(ctx, "lock:order:1", check.Soon).Err())
	check.Eventually(t, "the key expires",
		func() bool { return check.Value(c.Exists(ctx, "lock:order:1").Result())(t) == 0 })
}

// Every user of the machine reaches the server's port, and gets nothing without the password of that server.
func TestStrangersHearNothing(t *testing.T) {
	t.Parallel()
	known, other := client(t), client(t)
	check.Must(t, known.Set(t.Context(), "k", "v", 0).Err())
	check.That(t, known.Options().Password != other.Options().Password, "two servers have one password")
	for name, password := range map[string]string{"none": "", "another": other.Options().Password} {
		stranger := redis.NewClient(&redis.Options{
			Addr: known.Options().Addr, Password: password, Protocol: 2,
			DisableIdentity: true, MaxRetries: -1,
		})
		for _, ask := range []*redis.Cmd{
			stranger.Do(t.Context(), "GET", "k"), stranger.Do(t.Context(), "FLUSHALL"),
			stranger.Do(t.Context(), "EVAL", "return redis.call('get', 'k')", "0"),
			stranger.Do(t.Context(), "PUBLISH", "c", "m"), stranger.Do(t.Context(), "SUBSCRIBE", "c"),
			stranger.Do(t.Context(), "INFO"),
		} {
			if err := ask.Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") &&
				!strings.Contains(err.Error(), "WRONGPASS") {
				t.Errorf("with the password %s, %s: %v", name, ask.Args()[0], err)
			}
		}
		check.Must(t, stranger.Close())
	}
	check.Equal(t, "what was stored", check.Value(known.Get(t.Context(), "k").Result())(t), "v")
}

func TestOneServerPerDataDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "data")
	first := check.Value(embedded.ClaimDataDir(check.Context(t), dir, slog.New(slog.DiscardHandler)))(t)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v; want it private", info, err)
	}
	if _, err := embedded.ClaimDataDir(check.Expiring(t), dir, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("a second server: %v; want a refusal that names the directory", err)
	}
	waiting := make(chan error, 1)
	go func() { // as one that is started right behind the kill of the first
		again, err := embedded.ClaimDataDir(check.Context(t), dir, slog.New(slog.DiscardHandler))
		if err == nil {
			err = again.Close()
		}
		waiting <- err
	}()
	check.Stays(t, "a server that may wait does so", func() bool { return len(waiting) == 0 })
	for range 2 {
		check.Must(t, first.Close())
	}
	check.Must(t, check.Receive(t, "the next server", waiting))
}

func TestSecretIsMadeOnceAndKept(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(context.Context, string) (string, error){
		"jwt.secret": embedded.Secret, "code.key": embedded.CodeKey,
	} {
		dir := filepath.Join(t.TempDir(), "data")
		file := filepath.Join(dir, name)
		secrets := make([]string, 16)
		check.Volley(len(secrets), func(i int) {
			var err error
			if secrets[i], err = of(t.Context(), dir); err != nil {
				t.Error(err)
			}
		})
		check.Equal(t, "different secrets", len(slices.Compact(slices.Clone(secrets))), 1)
		info := check.Value(os.Stat(file))(t)
		left := check.Value(filepath.Glob(file + ".*"))(t) // the lock file
		other := check.Value(of(t.Context(), t.TempDir()))(t)
		check.That(t, len(secrets[0]) >= 32 && other != secrets[0] && info.Mode().Perm() == 0o600 && len(left) == 1,
			"%s: %q, in another directory %q, mode %v, beside %q", name, secrets[0], other, info.Mode(), left)

		check.Must(t, os.WriteFile(file, []byte("short\n"), 0o600))
		_, err := of(t.Context(), dir)
		text := check.Value(os.ReadFile(file))(t)
		named := err != nil && strings.Contains(err.Error(), file) && !strings.Contains(err.Error(), "short\n")
		check.That(t, named && string(text) == "short\n",
			"%s: %v, want an error that names the file, which holds %q", name, err, text)
	}
}

// The start closes a copy's files that everybody could read, and logs it. A directory that others use stays open.
func TestReadableDataIsTightened(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		foreign string
		want    os.FileMode
		says    string
	}{
		"a directory of its own":    {"", 0o700, "from now on they cannot"},
		"a directory of others too": {"notes.txt", 0o755, "files of others"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			files := []string{
				"seckill.db", "seckill.db-wal", "jwt.secret", "code.key", "payments.db",
				"payments.db-wal",
			}
			for _, file := range append(files, test.foreign) {
				if file == "" {
					continue
				}
				check.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
				check.Must(t, os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o644))
				check.Must(t, os.Chmod(filepath.Join(dir, file), 0o644)) // whatever the umask is
			}
			check.Must(t, os.MkdirAll(filepath.Join(dir, "nats"), 0o755))
			check.Must(t, os.Chmod(filepath.Join(dir, "nats"), 0o755))
			check.Must(t, os.Chmod(dir, 0o755))
			link := dir + ".link"
			check.Must(t, os.Symlink(dir, link))
			var log check.Log
			for _, path := range []string{dir, dir, link} { // what is closed already is not reported again
				claim := check.Value(embedded.ClaimDataDir(check.Context(t), path, log.Logger()))(t)
				check.Must(t, claim.Close())
			}
			want := map[string]os.FileMode{".": test.want, "nats": 0o700}
			for _, file := range files {
				want[file] = 0o600
			}
			if test.foreign != "" {
				want[test.foreign] = 0o644
			}
			for file, mode := range want {
				if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != mode {
					t.Errorf("%s: %v, %v; want mode %o", file, info.Mode(), err, mode)
				}
			}
			check.That(t, strings.Count(log.String(), "from now on they cannot") == 1 && log.Has(test.says),
				"the log says: %s", log.String())
		})
	}
}
