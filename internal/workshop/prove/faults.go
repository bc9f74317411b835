package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// verdict is what one part showed.
type verdict struct {
	part
	tests int
	took  time.Duration
	err   error
}

// faults runs the named parts, all by default, one after the other, and goes on after one that fails.
func faults(ctx context.Context, names, more []string) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	all, err := members(".")
	if err != nil {
		return err
	}
	environ, end, err := prepare() //nolint:contextcheck // the servers outlive what is interrupted, and end with the run
	if err != nil {
		return err
	}
	report := newReport(os.Stdout, "faults")
	var verdicts []verdict
	for _, p := range chosen {
		fmt.Printf("== %s: %s\n", p.name, p.says)
		verdicts = append(verdicts, p.run(ctx, report, all[p.name], environ, more))
		if ctx.Err() != nil {
			break
		}
	}
	if err := end(); err != nil {
		return fmt.Errorf("stop the shared servers: %w", err)
	}
	err = report.close()
	return errors.Join(err, tell(verdicts), ctx.Err())
}

func choose(names []string) ([]part, error) {
	if len(names) == 0 {
		return parts(), nil
	}
	var chosen []part
	for _, name := range names {
		n := slices.IndexFunc(parts(), func(p part) bool { return p.name == name })
		if n < 0 {
			return nil, fmt.Errorf("%w: there is no part %q", errUsage, name)
		}
		chosen = append(chosen, parts()[n])
	}
	return chosen, nil
}

// run runs the tests of a part, package by package.
func (p part) run(ctx context.Context, r *report, packages []member, environ, more []string) verdict {
	v := verdict{part: p}
	if len(packages) == 0 {
		v.err = errors.New("it has no tests")
		return v
	}
	if v.err = p.install(ctx); v.err != nil {
		return v
	}
	began, passed, failed := time.Now(), r.passed, len(r.failures)
	for _, m := range packages {
		v.err = errors.Join(v.err, goTest(ctx, r, p.kind(), p.environment(environ), p.arguments(m, more)))
	}
	v.took, v.tests = time.Since(began), r.passed-passed
	if red := len(r.failures) - failed; red > 0 {
		v.err = errors.Join(v.err, fmt.Errorf("%d failed", red))
	}
	return v
}

// install makes what the part needs beside the servers.
func (p part) install(ctx context.Context) error {
	for _, target := range p.needs {
		cmd := exec.CommandContext(ctx, "make", "--no-print-directory", target)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("make %s: %w", target, err)
		}
	}
	return nil
}

// kind distinguishes test programs that are compiled differently.
func (p part) kind() string {
	if p.raced {
		return "faults-raced"
	}
	return "faults"
}

// environment are the variables of the part's tests. Paths among them are relative to the root. One that is empty takes a
// server away that all parts share.
func (p part) environment(environ []string) []string {
	all := slices.Clone(environ)
	for _, variable := range p.environ {
		name, path, _ := strings.Cut(variable, "=")
		if absolute, err := filepath.Abs(path); err == nil && path != "" {
			path = absolute
		}
		all = append(all, name+"="+path)
	}
	if p.raced {
		return append(all, "CGO_ENABLED=1")
	}
	return append(all, "CGO_ENABLED=0")
}

func (p part) arguments(m member, more []string) []string {
	arguments := []string{"-tags=" + strings.Trim("faults,"+p.tags, ",")}
	if p.raced {
		arguments = append(arguments, raceDetector()...)
	}
	return slices.Concat(arguments, []string{"-run=^(" + strings.Join(m.tests, "|") + ")$"}, more, []string{m.pkg})
}

// tell writes the table of the parts.
func tell(verdicts []verdict) error {
	fmt.Printf("\n%-10s %6s %8s %8s  %s\n", "part", "tests", "seconds", "budget", "verdict")
	var red []error
	for _, v := range verdicts {
		says := "green"
		if v.took > v.budget {
			says = "green, and late: the machine was busy, or the part has become too large"
		}
		if v.err != nil {
			says = "RED: " + strings.ReplaceAll(v.err.Error(), "\n", "; ")
			red = append(red, fmt.Errorf("%s: %w", v.name, v.err))
		}
		fmt.Printf("%-10s %6d %8.0f %8.0f  %s\n", v.name, v.tests, v.took.Seconds(), v.budget.Seconds(), says)
	}
	return errors.Join(red...)
}
