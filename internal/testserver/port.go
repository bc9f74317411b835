package testserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Ports are taken from below the range in which the kernel picks ports for outgoing connections (32768 and
// up). From inside it, a client that connects again and again to a killed server would sooner or later be
// given the server's own port, connect to itself, and block the restart.
const (
	firstPort = 18000
	lastPort  = 31999
)

// port is a port that no other test binary of this machine uses while it is held, also not while the
// server that belongs to it is down.
type port struct {
	number int
	claim  *os.File
}

// takePort finds a free port. A program that knows nothing of the claims may still be faster to bind it:
// the caller starts its server and takes another port when that fails.
func takePort() (port, error) {
	root := filepath.Join(os.TempDir(), "seckill-ports")
	// For everybody, as /tmp itself: tests of several users may run on one machine.
	if err := os.MkdirAll(root, 0o777); err != nil {
		return port{}, fmt.Errorf("create the directory of claimed ports: %w", err)
	}
	for range 1000 {
		number := firstPort + rand.IntN(lastPort-firstPort+1)
		file, err := claim(filepath.Join(root, strconv.Itoa(number)))
		if err != nil {
			continue
		}
		if bindable(number) {
			return port{number: number, claim: file}, nil
		}
		_ = file.Close()
	}
	return port{}, errors.New("no free port found in 1000 tries")
}

func (p port) release() {
	if p.claim != nil {
		_ = p.claim.Close()
	}
}

func bindable(number int) bool {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(loopback, strconv.Itoa(number)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// claim locks a file for the life of this process, or until it is closed; the kernel frees it however the
// process ends. It fails when somebody else holds it.
func claim(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return file, nil
}

// Address is a free address of this machine, "127.0.0.1:port", that nobody else takes before the test ends:
// a program that is killed can be started there again.
func Address(t testing.TB) string {
	t.Helper()
	p, err := takePort()
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	t.Cleanup(p.release)
	return net.JoinHostPort(loopback, strconv.Itoa(p.number))
}
