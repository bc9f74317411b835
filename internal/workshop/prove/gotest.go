package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Action     string  `json:"Action"`
	Package    string  `json:"Package"`
	ImportPath string  `json:"ImportPath"` // of what does not build, instead of Package
	Test       string  `json:"Test"`
	Elapsed    float64 `json:"Elapsed"` // seconds
	Output     string  `json:"Output"`
}

// waiting is how many tests of a package run at a time. Most of them wait for servers.
const waiting = "6"

// stopWithin is how long go test may take to end its test binaries once it is told to.
const stopWithin = 10 * time.Second

// goTest runs go test and hands what it says to the report. Tests that fail are no error here. The tests' programs stay in
// bin/compiled, where those of each kind have a directory: go links one again only when something in it has changed.
func goTest(ctx context.Context, r *report, kind string, environ, arguments []string) error {
	programs := filepath.Join("bin", "compiled", kind)
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return fmt.Errorf("make a directory for the tests' programs: %w", err)
	}
	// Without DWARF (-w) the tests' programs link in half the time; traces do not need it. The linter vets.
	common := []string{"test", "-json", "-parallel=" + waiting, "-vet=off", "-trimpath", "-count=1", "-shuffle=on", "-ldflags=-w", "-timeout=" + hung, "-o=" + programs + "/"}
	cmd := exec.CommandContext(ctx, "go", slices.Concat(common, arguments)...)
	cmd.Env, cmd.Stderr = environ, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = stopWithin
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("read what go test says: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.read(line)
		}
		if err != nil {
			break // the output ends with the program
		}
	}
	err = cmd.Wait()
	if exit, ended := errors.AsType[*exec.ExitError](err); ended && exit.Exited() && ctx.Err() == nil {
		return r.ended(exit.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("go test: %w", errors.Join(err, ctx.Err()))
	}
	return nil
}

// read takes one line of go test. One that is no event is something that go itself says.
func (r *report) read(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprintf(r.screen, "%s", line)
		return
	}
	r.note(e)
}
