// Command mutants shows that the tests notice defects. It puts the small defects of mutants.json into the product, one
// at a time, and runs the tests of the packages that should notice. Its exit code is 1 when a defect survives.
//
//	go run ./internal/workshop/mutants [-list] [-only ID,...] [-pkg service,...] [-control=false]
//
// A defect is never written into the tree: go test reads the changed file through an overlay (go help build). The
// programs that tests build themselves have the defect too, because GOFLAGS names the overlay.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

//go:embed mutants.json
var list []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	survived, err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	case survived:
		os.Exit(1)
	}
}

// run does what the arguments say, and tells whether a defect survived.
func run(ctx context.Context, args []string, out io.Writer) (survived bool, err error) {
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	only := flags.String("only", "", "the `ids` of the defects to try, separated by commas")
	packages := flags.String("pkg", "", "only defects that the tests of these `packages` should notice")
	show := flags.Bool("list", false, "name the defects and try none")
	control := flags.Bool("control", true, "first run the tests without a defect: tests that are red by themselves prove nothing")
	timeout := flags.Duration("timeout", 10*time.Minute, "how long the tests of one package may take")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	root, err := moduleRoot()
	if err != nil {
		return false, err
	}
	mutants, err := parse(list)
	if err != nil {
		return false, err
	}
	if mutants, err = chosen(mutants, words(*only), words(*packages)); err != nil {
		return false, err
	}
	if err := fit(root, mutants); err != nil {
		return false, err
	}
	if *show {
		for _, m := range mutants {
			fmt.Fprintf(out, "%-4s %s (%s; %s)\n", m.ID, m.What, m.File, strings.Join(m.Packages, ", "))
		}
		return false, nil
	}
	lab := laboratory{root: root, out: filepath.Join(root, "bin", "mutants"), timeout: *timeout}
	if *control {
		if err := lab.control(ctx, mutants); err != nil {
			return false, err
		}
	}
	return report(ctx, out, lab, mutants)
}

func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// chosen are the mutants with these ids, of these packages; no ids, or no packages, are all of them.
func chosen(all []mutant, ids, packages []string) ([]mutant, error) {
	for _, id := range ids {
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.ID == id }) {
			return nil, fmt.Errorf("there is no defect %s", id)
		}
	}
	some := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool {
		return len(ids) > 0 && !slices.Contains(ids, m.ID) ||
			len(packages) > 0 && !slices.ContainsFunc(packages, func(p string) bool { return slices.Contains(m.Packages, p) })
	})
	if len(some) == 0 {
		return nil, fmt.Errorf("no defect is for the tests of %s", strings.Join(packages, ", "))
	}
	return some, nil
}

// moduleRoot is the directory of go.mod, here or above.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.mod here or above")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
