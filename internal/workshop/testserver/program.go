package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/overlay"
)

// buildBudget bounds one compilation of the program. A warm cache needs two seconds, for linking; an empty
// one on two busy cores needs minutes.
const buildBudget = 10 * time.Minute

// programsVariable names the directory of the programs that all test binaries of a run share (Share).
const programsVariable = "TESTSERVER_PROGRAMS"

// Program returns the path of the service's program as it is shipped, or built with further tags. Each is
// built once for a run (Share), or for this test binary.
func Program(t testing.TB, tags ...string) string {
	t.Helper()
	path, err := process.programs.get(strings.Join(tags, ","))
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	return path
}

// Defective builds the program with a defect. Each call builds it again.
func Defective(t testing.TB, defect overlay.Change) string {
	t.Helper()
	dir, err := process.dir("defective")
	check.Must(t, err)
	replaced, err := defect.Write(moduleRoot(), dir)
	check.Must(t, err)
	path := filepath.Join(dir, "seckill")
	check.Must(t, compile(path, "-overlay", replaced))
	return path
}

// Counting builds the program so that it counts how often each block of its code runs, and writes that into the directory
// GOCOVERDIR at its end.
func Counting(t testing.TB) string {
	t.Helper()
	dir, err := process.dir("counting")
	check.Must(t, err)
	path := filepath.Join(dir, "seckill")
	check.Must(t, compile(path, "-cover", "-covermode=atomic", "-coverpkg=seckill/..."))
	return path
}

// programs are those that were built, by their tags.
type programs struct {
	mu    sync.Mutex // held through a whole build: a test that asks meanwhile wants its result
	paths map[string]string
}

func (p *programs) get(tags string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if path, built := p.paths[tags]; built {
		return path, nil
	}
	dir := os.Getenv(programsVariable)
	if dir == "" {
		var err error
		if dir, err = process.dir("programs"); err != nil {
			return "", err
		}
	}
	path, err := build(dir, tags)
	if err != nil {
		return "", err
	}
	if p.paths == nil {
		p.paths = make(map[string]string)
	}
	p.paths[tags] = path
	return path, nil
}

// build builds the program in a directory where it is not built yet. Test binaries that share it build by turns.
func build(dir, tags string) (string, error) {
	place := filepath.Join(dir, "tags-"+tags)
	if err := os.MkdirAll(place, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of a program: %w", err)
	}
	turn, err := await(place + ".lock")
	if err != nil {
		return "", fmt.Errorf("wait for another build of the program: %w", err)
	}
	defer turn.Close() // and with it the lock
	path := filepath.Join(place, "seckill")
	if _, err := os.Stat(path); err == nil {
		return path, nil // another test binary has built it
	}
	if err := compile(path+".new", "-tags", tags); err != nil {
		return "", err
	}
	return path, os.Rename(path+".new", path) // never half a program
}

func compile(path string, flags ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildBudget)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-trimpath", "-o", path}, flags, []string{"seckill"})...)
	// As it is released, and compiled once for it and for nats-server, which have much in common.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the program with %q: %w\n%s", flags, err, out)
	}
	return nil
}
