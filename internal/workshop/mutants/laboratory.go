package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// laboratory runs tests of a module, and keeps what they say in files of the directory out.
type laboratory struct {
	root, out string
	timeout   time.Duration
}

// result is what became of a defect.
type result struct {
	killers []string // the tests that noticed it
	broken  bool     // it does not compile
	took    time.Duration
}

func (r result) survived() bool { return r.broken || len(r.killers) == 0 }

// control runs all the tests that the mutants need, without a defect.
func (l laboratory) control(ctx context.Context, mutants []mutant) error {
	var packages []string
	for _, m := range mutants {
		packages = append(packages, m.Packages...)
	}
	slices.Sort(packages)
	for _, dir := range slices.Compact(packages) {
		name := "control-" + strings.ReplaceAll(dir, "/", "-")
		text, failed, err := l.test(ctx, dir, name, "")
		if err != nil {
			return err
		}
		if failed {
			return fmt.Errorf("the tests of %s fail without any defect (%s): see bin/mutants/%s.txt",
				dir, strings.Join(killers(text), ", "), name)
		}
	}
	return nil
}

// try runs the tests of a mutant's packages, one package after the other, until one fails.
func (l laboratory) try(ctx context.Context, m mutant) (result, error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := m.Write(l.root, dir)
	if err != nil {
		return result{}, fmt.Errorf("defect %s: %w", m.ID, err)
	}
	began := time.Now()
	for i, dir := range m.Packages {
		text, failed, err := l.test(ctx, dir, fmt.Sprintf("%s-%d", m.ID, i+1), overlay)
		if err != nil {
			return result{}, err
		}
		if failed && unbuilt.MatchString(text) {
			return result{broken: true, took: time.Since(began)}, nil
		}
		if failed {
			return result{killers: killers(text), took: time.Since(began)}, nil
		}
	}
	return result{took: time.Since(began)}, nil
}

// test runs the tests of one package. The error is for what is no verdict of theirs.
func (l laboratory) test(ctx context.Context, dir, name, overlay string) (text string, failed bool, err error) {
	// #nosec G204 -- the packages come from our own list
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-vet=off", "-trimpath", "-ldflags=-w", "-timeout="+l.timeout.String(), "./"+dir)
	cmd.Dir = l.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the program is released, and linked in half the time
	if overlay != "" {
		flags := os.Getenv("GOFLAGS")
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(flags+" -overlay="+overlay))
	}
	// The tests, and the servers that they started, end with the command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	defer l.forget(dir)()
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", false, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", false, err
	}
	if err := os.MkdirAll(l.out, 0o750); err != nil {
		return "", false, err
	}
	return string(output), err != nil, os.WriteFile(filepath.Join(l.out, name+".txt"), output, 0o600)
}

// forget returns what removes the counterexamples that property-based tests leave in a package: rapid would try them
// again first, and they are of a defect that is gone.
func (l laboratory) forget(dir string) func() {
	left := filepath.Join(l.root, dir, "testdata", "rapid")
	if _, err := os.Stat(left); err == nil {
		return func() {} // somebody's own
	}
	return func() {
		_ = os.RemoveAll(left)
		_ = os.Remove(filepath.Dir(left)) // unless there is more in it
	}
}

var (
	unbuilt = regexp.MustCompile(`(?m)^FAIL\t\S+ \[(build|setup) failed\]$`)
	failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+) `)
	// What was running when the tests' time was over.
	hung = regexp.MustCompile(`(?m)^panic: test timed out.*\n\s+running tests:\n((?:\s+\S+ \(.*\)\n)+)`)
)

// killers are the tests that failed, and what else ended the tests of a package.
func killers(text string) []string {
	var names []string
	for _, match := range failure.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	if match := hung.FindStringSubmatch(text); match != nil {
		for line := range strings.Lines(match[1]) {
			name, _, _ := strings.Cut(strings.Fields(line)[0], "/")
			names = append(names, name+" (hung)")
		}
	}
	switch {
	case len(names) > 0:
	case strings.Contains(text, "\npanic: ") || strings.HasPrefix(text, "panic: "):
		names = []string{"a panic outside of the tests"}
	default: // goroutines that are left over, for example
		names = []string{"the package as a whole"}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
