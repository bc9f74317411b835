package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// process is what the tests of one binary share. It is package state because Schema(t) and SharedRedis(t)
// are called from everywhere with nothing but the test in hand; Main owns it.
var process home //nolint:gochecknoglobals // one per test binary by nature; Main creates and clears it

// abandoned is the age from which the directory of a dead test binary is removed. Far above the moment
// between its creation and its lock.
const abandoned = time.Minute

const homePrefix = "seckill-test-"

// home is the directory and the shared servers of one test binary.
type home struct {
	adopted atomic.Bool // Main was called, so somebody will clean up
	serial  atomic.Int64

	dirOnce sync.Once
	path    string
	claim   *os.File
	dirErr  error

	template template
	database sharedDatabase
	redis    sharedRedis
	nats     sharedNATS
	programs programs
}

func (h *home) adopt() { h.adopted.Store(true) }

// dir returns a new empty directory inside the directory of this test binary. The path is short: a Unix
// socket's may have 107 bytes, which t.TempDir easily passes.
func (h *home) dir(name string) (string, error) {
	if !h.adopted.Load() {
		return "", errors.New("the package has no TestMain that calls testserver.Main")
	}
	h.dirOnce.Do(h.open)
	if h.dirErr != nil {
		return "", h.dirErr
	}
	dir := filepath.Join(h.path, name+"-"+strconv.FormatInt(h.serial.Add(1), 10))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("create a server's directory: %w", err)
	}
	return dir, nil
}

func (h *home) open() {
	sweep(os.TempDir())
	if h.path, h.dirErr = os.MkdirTemp("", homePrefix); h.dirErr != nil {
		return
	}
	h.claim, h.dirErr = claim(filepath.Join(h.path, "claim"))
}

// close stops the shared servers and removes everything.
func (h *home) close() error {
	h.redis.close()
	h.nats.close()
	errs := []error{h.database.close()}
	if h.claim != nil {
		errs = append(errs, h.claim.Close(), os.RemoveAll(h.path))
	}
	return errors.Join(errs...)
}

// sweep removes what test binaries left behind that were killed or ran into their timeout: their claim is
// free again. Errors are of no interest, the next run tries again.
func sweep(root string) {
	dirs, _ := filepath.Glob(filepath.Join(root, homePrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < abandoned {
			continue
		}
		file, err := claim(filepath.Join(dir, "claim"))
		if err != nil {
			continue // in use
		}
		_ = os.RemoveAll(dir)
		_ = file.Close()
	}
}
