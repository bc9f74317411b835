package embedded

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	secretFile   = "jwt.secret"
	secretLength = 32 // bytes of randomness, the size of the HMAC's hash

	// secretWait bounds the wait for another process that makes the secret at
	// this moment: it writes one small file, so anything longer is a fault.
	secretWait = 10 * time.Second
	// secretPoll is how often such a wait looks again.
	secretPoll = 10 * time.Millisecond
)

// Secret returns the secret that signs tokens in embedded mode. The first call
// makes it and keeps it in the directory, readable by its owner alone; later
// calls, of other processes too, return the same one, so that tokens outlive a
// restart.
func Secret(ctx context.Context, dir string) (string, error) {
	file := filepath.Join(dir, secretFile)
	secret, err := readSecret(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if err := MakeDir(dir); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, secretWait)
	defer cancel()
	guard := flock.New(file+".lock", flock.SetPermissions(0o600))
	defer func() { _ = guard.Close() }() // it ends with the process at the latest
	if _, err := guard.TryLockContext(ctx, secretPoll); err != nil {
		return "", fmt.Errorf("wait for the secret in %s: %w", dir, err)
	}
	// Another process may have made it while we waited.
	secret, err = readSecret(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	return makeSecret(file)
}

func readSecret(file string) (string, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the operator names the directory
	if err != nil {
		return "", fmt.Errorf("read the secret that signs tokens: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if len(secret) < secretLength {
		return "", fmt.Errorf("the secret in %s is shorter than %d bytes: remove the file, "+
			"and a new one is made (whoever is logged in must log in again)", file, secretLength)
	}
	return secret, nil
}

// makeSecret writes a new secret under another name first, so that a crash
// leaves either the whole file or none.
func makeSecret(file string) (secret string, err error) {
	random := make([]byte, secretLength)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("make a secret: %w", err)
	}
	secret = base64.RawURLEncoding.EncodeToString(random)
	partial, err := os.CreateTemp(filepath.Dir(file), secretFile+".*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("write a secret: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(partial.Name())
		}
	}()
	if _, err := partial.WriteString(secret + "\n"); err != nil {
		return "", errors.Join(fmt.Errorf("write a secret: %w", err), partial.Close())
	}
	if err := partial.Sync(); err != nil {
		return "", errors.Join(fmt.Errorf("write a secret: %w", err), partial.Close())
	}
	if err := partial.Close(); err != nil {
		return "", fmt.Errorf("write a secret: %w", err)
	}
	if err := os.Rename(partial.Name(), file); err != nil {
		return "", fmt.Errorf("write a secret: %w", err)
	}
	return secret, nil
}
