package embedded_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"seckill/internal/embedded"
	"seckill/internal/workshop/check"
)

func TestOneServerPerDataDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "data")
	first, err := embedded.ClaimDataDir(check.Context(t), dir, slog.New(slog.DiscardHandler))
	check.Must(t, err)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v; want it private", info, err)
	}
	if _, err := embedded.ClaimDataDir(check.Expiring(t), dir, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), dir) {
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
	for name, secret := range map[string]func(context.Context, string) (string, error){
		"jwt.secret": embedded.Secret, "code.key": embedded.CodeKey,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			madeOnce(t, name, secret)
		})
	}
}

func madeOnce(t *testing.T, name string, of func(context.Context, string) (string, error)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	const starters = 16
	secrets := make([]string, starters)
	var start sync.WaitGroup
	for i := range starters {
		start.Go(func() {
			secret, err := of(t.Context(), dir)
			if err != nil {
				t.Error(err)
			}
			secrets[i] = secret
		})
	}
	start.Wait()
	for _, secret := range secrets {
		if secret != secrets[0] || len(secret) < 32 {
			t.Fatalf("the secrets differ or are short: %q", secrets)
		}
	}
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want mode 0600", info, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, name+".*"))
	if err != nil || len(left) != 1 { // the lock file
		t.Errorf("files left over: %v, %v", left, err)
	}
	if other, err := of(t.Context(), t.TempDir()); err != nil || other == secrets[0] {
		t.Errorf("another directory has the secret %q, %v", other, err)
	}
}

func TestDamagedSecretIsRefusedAndNotReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "jwt.secret")
	check.Must(t, os.WriteFile(file, []byte("short\n"), 0o600))
	_, err := embedded.Secret(t.Context(), dir)
	if err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "short\n") {
		t.Errorf("Secret: %v; want an error that names the file", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "short\n" {
		t.Errorf("the file now holds %q, %v", text, err)
	}
}

// What a copy left open to everybody is closed, and the log says so. A
// directory that others use too stays open to them.
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
			files := []string{"seckill.db", "seckill.db-wal", "jwt.secret", "code.key", "payments.db", "payments.db-wal"}
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
				claim, err := embedded.ClaimDataDir(check.Context(t), path, log.Logger())
				check.Must(t, err)
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
			if strings.Count(log.String(), "from now on they cannot") != 1 || !log.Has(test.says) {
				t.Errorf("the log says: %s", log.String())
			}
		})
	}
}
