package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"seckill/internal/workshop/testserver"
)

const (
	// hung is how long the tests of one package may take before go test says which of them run. It judges no speed.
	hung = "20m"
	// atOnce is how many packages are tested at a time. Their tests wait for servers as much as they compute.
	atOnce = "4"
)

// plain are the packages that are tested without the race detector: they have no concurrency of ours, or they start
// the program as it is shipped. Under the detector a translated SQLite alone takes half of their time. What the whole
// program shares between goroutines is looked at by the part "races" of the faults.
func plain() []string {
	return []string{
		"config", "deployments", "handler/console", "handler/wire", "internal/app", "internal/workshop/archtest", "internal/workshop/bench", "internal/command",
		"internal/workshop/e2e", "internal/embedded", "internal/failpoint", "internal/redact", "internal/redisurl",
		"internal/workshop/siege", "internal/sqlitefile", "internal/workshop/testserver", "internal/vouchercode", "internal/workshop", "lock/lab", "model",
	}
}

// raceDetector are the arguments of go test under the detector. -race also checks every conversion of an
// unsafe.Pointer. SQLite, C that was translated, does little else, and to check it takes half the time of its tests.
// (Compiled without -race, it would hide atomics of other packages from the detector, because the linker keeps one of
// several equal instances of a generic function.)
func raceDetector() []string { return []string{"-race", "-gcflags=modernc.org/...=-d=checkptr=0"} }

// test runs the tests of the packages, all by default.
func test(ctx context.Context, patterns, more []string) error {
	packages, err := list(ctx, patterns)
	if err != nil {
		return err
	}
	raced, unraced := divide(packages)
	environ, end, err := prepare() //nolint:contextcheck // the servers outlive what is interrupted, and end with the run
	if err != nil {
		return err
	}
	report := newReport(os.Stdout, "")
	groups := []struct {
		packages, arguments []string
		kind, cgo           string
	}{{unraced, nil, "plain", "0"}, {raced, raceDetector(), "raced", "1"}}
	for _, group := range groups {
		if len(group.packages) == 0 {
			continue
		}
		arguments := slices.Concat([]string{"-p=" + atOnce}, group.arguments, more, group.packages)
		if err := goTest(ctx, report, group.kind, append(environ, "CGO_ENABLED="+group.cgo), arguments); err != nil {
			return err
		}
	}
	if err := end(); err != nil {
		return fmt.Errorf("stop the shared servers: %w", err)
	}
	return report.close()
}

// list names the packages that have tests.
func list(ctx context.Context, patterns []string) ([]string, error) {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	arguments := append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	return strings.Fields(string(out)), nil
}

func divide(packages []string) (raced, unraced []string) {
	for _, name := range packages {
		path := strings.TrimPrefix(name, "seckill/")
		isPlain := slices.ContainsFunc(plain(), func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
		if isPlain {
			unraced = append(unraced, name)
		} else {
			raced = append(raced, name)
		}
	}
	return raced, unraced
}

// prepare starts the servers that the tests share, and has the program compiled for them.
func prepare() (environ []string, end func() error, err error) {
	if err := os.RemoveAll(logs); err != nil {
		return nil, nil, fmt.Errorf("remove the logs of the last run: %w", err)
	}
	shared, end, err := testserver.Share()
	if err != nil {
		return nil, nil, fmt.Errorf("start the servers that tests share: %w", err)
	}
	return append(os.Environ(), shared...), end, nil
}
