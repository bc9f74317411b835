package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildBudget bounds one compilation of the program. A warm cache needs two seconds, for linking; an empty
// one on two busy cores needs minutes.
const buildBudget = 5 * time.Minute

// Program returns the path of the service's program as it is shipped, or built with further tags. Each is
// built once per test binary.
func Program(t testing.TB, tags ...string) string {
	t.Helper()
	path, err := process.programs.get(strings.Join(tags, ","))
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
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
	path, err := build(tags)
	if err != nil {
		return "", err
	}
	if p.paths == nil {
		p.paths = make(map[string]string)
	}
	p.paths[tags] = path
	return path, nil
}

func build(tags string) (string, error) {
	dir, err := process.dir("program")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "seckill")
	ctx, cancel := context.WithTimeout(context.Background(), buildBudget)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", tags, "-o", path, "seckill")
	// As it is released, and compiled once for it and for nats-server, which have much in common.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program with the tags %q: %w\n%s", tags, err, out)
	}
	return path, nil
}
