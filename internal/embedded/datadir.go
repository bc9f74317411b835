package embedded

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"

	"seckill/internal/budget"
)

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
