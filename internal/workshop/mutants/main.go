// Command mutants shows that the tests notice defects: it puts each small defect of mutants.json into the product and
// runs the tests of the packages that should notice. Its exit code is 1 when a defect survives.
//
//	go run ./internal/workshop/mutants [ID,...]
//
// The tree stays whole: go test, and by GOFLAGS what tests build, read the changed file in an overlay (go help build).
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"seckill/internal/workshop/overlay"
)

//go:embed mutants.json
var list []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	survived, err := run(ctx, strings.FieldsFunc(strings.Join(os.Args[1:], ","),
		func(r rune) bool { return r == ',' || r == ' ' }))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	case survived:
		os.Exit(1)
	}
}

func run(ctx context.Context, ids []string) (survived bool, err error) {
	root, _ := os.Getwd() // of the module
	mutants, err := parse(list, ids)
	if err = errors.Join(err, fit(root, mutants)); err != nil {
		return false, err
	}
	lab := laboratory{root: root, out: filepath.Join(root, "bin", "mutants"), timeout: 10 * time.Minute}
	return lab.report(ctx, os.Stdout, mutants)
}

type mutant struct {
	overlay.Change

	ID       string   `json:"id"`
	What     string   `json:"what"`
	Packages []string `json:"packages"` // whose tests should notice it
}

func parse(text []byte, ids []string) (mutants []mutant, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&mutants); err != nil {
		return nil, fmt.Errorf("read the list of defects: %w", err)
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return len(ids) > 0 && !slices.Contains(ids, m.ID) })
	if len(mutants) < len(ids) {
		return nil, fmt.Errorf("some of %v is no defect", ids)
	}
	return mutants, nil
}

func fit(root string, mutants []mutant) error {
	var errs []error
	for _, m := range mutants {
		if _, err := m.Text(root); err != nil {
			errs = append(errs, fmt.Errorf("defect %s (%s): %w", m.ID, m.What, err))
		}
		if len(m.Packages) == 0 {
			errs = append(errs, fmt.Errorf("defect %s: no package is to notice it", m.ID))
		}
		for _, dir := range m.Packages {
			if tests, _ := filepath.Glob(filepath.Join(root, dir, "*_test.go")); len(tests) == 0 {
				errs = append(errs, fmt.Errorf("defect %s: %s has no tests", m.ID, dir))
			}
		}
	}
	return errors.Join(errs...)
}

// laboratory runs tests of a module, and keeps what they say in files of the directory out.
type laboratory struct {
	root, out string
	timeout   time.Duration
}

// control runs all the tests that the mutants need, without a defect: tests that are red then prove nothing.
func (l laboratory) control(ctx context.Context, mutants []mutant) error {
	all := mutant{ID: "control"}
	for _, m := range mutants {
		all.Packages = append(all.Packages, m.Packages...)
	}
	slices.Sort(all.Packages)
	all.Packages = slices.Compact(all.Packages)
	verdict, err := l.try(ctx, all)
	if err == nil && verdict != survivor {
		err = fmt.Errorf("the tests fail without any defect: %s", verdict)
	}
	return err
}

// try runs the tests with the defect, or without one for the control, which changes no file.
func (l laboratory) try(ctx context.Context, m mutant) (verdict string, err error) {
	place, err := os.MkdirTemp("", "mutant-")
	defer func() { _ = os.RemoveAll(place) }()
	overlay := ""
	if err == nil && m.File != "" {
		overlay, err = m.Write(l.root, place)
	}
	if err != nil {
		return "", err
	}
	for i, dir := range m.Packages {
		text, failed, err := l.test(ctx, dir, fmt.Sprintf("%s-%d", m.ID, i+1), overlay)
		switch {
		case err != nil:
			return "", err
		case failed && unbuilt.MatchString(text):
			return "DOES NOT BUILD", nil
		case failed:
			return killed + killers(text), nil
		}
	}
	return survivor, nil
}

const killed, survivor = "killed by ", "SURVIVED" // begin the verdict on a defect that was noticed, or not

func (l laboratory) test(ctx context.Context, dir, name, overlay string) (text string, failed bool, err error) {
	// #nosec G204 -- the packages come from our own list
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-vet=off", "-trimpath", "-ldflags=-w",
		"-timeout="+l.timeout.String(), "./"+dir)
	cmd.Dir = l.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the program is released, and linked in half the time
	if overlay != "" {
		flags := os.Getenv("GOFLAGS")
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(flags+" -overlay="+overlay))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the tests, and the servers that they started, end with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", false, ctx.Err()
	}
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return "", false, err
	}
	if err := os.MkdirAll(l.out, 0o750); err != nil {
		return "", false, err
	}
	return string(output), err != nil, os.WriteFile(filepath.Join(l.out, name+".txt"), output, 0o600)
}

var (
	unbuilt = regexp.MustCompile(`(?m)^FAIL\t\S+ \[(build|setup) failed\]$`)
	failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+) `)
)

// killers are some of the tests that failed. Others are in the file, and so is what else ended the tests of a package.
func killers(text string) string {
	const most = 4
	var names []string
	for _, match := range failure.FindAllStringSubmatch(text, most) {
		names = append(names, match[1])
	}
	return cmp.Or(strings.Join(names, ", "), "the package as a whole")
}

// report tries mutants, and writes a line as soon as one is decided. It tells whether one survived.
func (l laboratory) report(ctx context.Context, out io.Writer, mutants []mutant) (survived bool, err error) {
	if err := l.control(ctx, mutants); err != nil {
		return false, err
	}
	var survivors []string
	for _, m := range mutants {
		began := time.Now()
		verdict, err := l.try(ctx, m)
		if err != nil {
			return false, fmt.Errorf("defect %s: %w", m.ID, err)
		}
		fmt.Fprintf(out, "%-4s | %4.0f s | %s | %s\n", m.ID, time.Since(began).Seconds(), m.What, verdict)
		if !strings.HasPrefix(verdict, killed) {
			survivors = append(survivors, m.ID)
		}
	}
	fmt.Fprintf(out, "\n%d of %d defects were noticed. What the tests said is in bin/mutants.\n",
		len(mutants)-len(survivors), len(mutants))
	for _, id := range survivors {
		fmt.Fprintf(out, "%s survived. Alone: make mutants ONLY=%s\n", id, id)
	}
	return len(survivors) > 0, nil
}
