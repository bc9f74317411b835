package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// logs is the directory of the packages' whole outputs.
const logs = "bin/tests"

// excerpt is how many lines of a failed test are shown: what it says, and not its servers or all goroutines.
const excerpt = 12

// report follows the tests of a run.
type report struct {
	screen io.Writer
	tags   string // build tags that running a test again needs
	began  time.Time

	packages map[string]*tested
	failures []failure
	passed   int
	broken   int // packages that failed
}

// tested is one package under test.
type tested struct {
	log     *os.File
	shuffle string
	tests   int
	said    map[string][]string // by test; "" is what no test said
	failed  map[string]bool
}

// failure is a failed test, or with no test a package that failed beside its tests.
type failure struct {
	pkg, test, log, shuffle string
	seconds                 float64
	said                    []string
}

func newReport(screen io.Writer, tags string) *report {
	return &report{screen: screen, tags: tags, began: time.Now(), packages: map[string]*tested{}}
}

// note takes one event.
func (r *report) note(e event) {
	if e.Package == "" {
		e.Package, _, _ = strings.Cut(e.ImportPath, " ") // "p [p.test]"
	}
	p := r.open(e.Package)
	switch e.Action {
	case "output", "build-output":
		p.say(e.Test, e.Output)
	case "pass", "fail", "build-fail":
		if e.Test == "" {
			r.endPackage(e, p)
		} else {
			r.endTest(e, p)
		}
	}
}

func (r *report) open(pkg string) *tested {
	if p := r.packages[pkg]; p != nil {
		return p
	}
	p := &tested{said: map[string][]string{}, failed: map[string]bool{}}
	r.packages[pkg] = p
	if err := os.MkdirAll(logs, 0o750); err == nil {
		p.log, err = os.OpenFile(logOf(pkg), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // several parts may test one package
		if err != nil {
			fmt.Fprintf(r.screen, "the output of %s is not kept: %v\n", pkg, err)
		}
	}
	return p
}

func logOf(pkg string) string {
	return filepath.Join(logs, strings.ReplaceAll(strings.TrimPrefix(pkg, "seckill/"), "/", "-")+".log")
}

// most is how many lines of a test are kept in memory: those of a failure are among the first.
const most = 400

func (p *tested) say(test, output string) {
	if p.log != nil {
		_, _ = p.log.WriteString(output) // a full disk is no verdict on a test
	}
	if text, ok := strings.CutPrefix(output, "-test.shuffle "); ok {
		p.shuffle = strings.TrimSpace(text)
	}
	if len(p.said[test]) < most {
		p.said[test] = append(p.said[test], strings.TrimRight(output, "\n"))
	}
}

func (r *report) endTest(e event, p *tested) {
	p.tests++
	said := p.said[e.Test]
	delete(p.said, e.Test)
	if e.Action == "pass" {
		r.passed++
		return
	}
	if parent := path.Dir(e.Test); parent != "." {
		p.failed[parent] = true
	}
	if p.failed[e.Test] && len(telling(said)) == 0 {
		return // only because a test inside it failed
	}
	r.failures = append(r.failures, failure{e.Package, e.Test, logOf(e.Package), p.shuffle, e.Elapsed, said})
}

func (r *report) endPackage(e event, p *tested) {
	if p.log != nil {
		_ = p.log.Close()
	}
	if e.Action == "pass" {
		fmt.Fprintf(r.screen, "ok  \t%s\t%.1fs\t%d tests\n", e.Package, e.Elapsed, p.tests)
		delete(r.packages, e.Package)
		return
	}
	r.broken++
	fmt.Fprintf(r.screen, "FAIL\t%s\t%.1fs\t%s\n", e.Package, e.Elapsed, logOf(e.Package))
	if len(p.failed) == 0 && !r.named(e.Package) {
		// It does not build, it ran out of time, it panicked, or it left goroutines.
		r.failures = append(r.failures, failure{e.Package, "", logOf(e.Package), p.shuffle, e.Elapsed, p.unfinished()})
	}
	delete(r.packages, e.Package)
}

// named says whether a failed test of the package is known.
func (r *report) named(pkg string) bool {
	for _, f := range r.failures {
		if f.pkg == pkg {
			return true
		}
	}
	return false
}

// unfinished is what was said by no test, or by tests that did not end.
func (p *tested) unfinished() []string {
	var said []string
	for test, lines := range p.said {
		if test != "" {
			said = append(said, test+" did not end")
		}
		said = append(said, telling(lines)...)
	}
	return said
}

// telling leaves out the frame that go test puts around what a test says.
func telling(lines []string) []string {
	frame := regexp.MustCompile(`^\s*(=== |--- |PASS$|FAIL|ok\s|-test\.shuffle|exit status)|^\s*$|SEED=`)
	var kept []string
	for _, line := range lines {
		if !frame.MatchString(line) {
			kept = append(kept, line)
		}
	}
	return kept
}

// ended takes the exit code of go test. One that no failed package explains is an error.
func (r *report) ended(code int) error {
	if r.broken == 0 && len(r.failures) == 0 {
		return fmt.Errorf("go test ended with exit code %d", code)
	}
	return nil
}

// close names what failed, and counts.
func (r *report) close() error {
	var beside []string
	for _, f := range r.failures {
		if f.besideARace() {
			beside = append(beside, f.test)
			continue
		}
		f.tell(r.screen, r.tags)
	}
	if len(beside) > 0 {
		fmt.Fprintf(r.screen, "\nThe detector found a race while these ran, which they need not have to do with: %s\n", strings.Join(beside, ", "))
	}
	fmt.Fprintf(r.screen, "\n%.0f s\n%d passed, %d failed\n", time.Since(r.began).Seconds(), r.passed, len(r.failures))
	switch {
	case len(r.failures) > 0 || r.broken > 0:
		return errRed
	case r.passed == 0:
		return errors.New("no test was run")
	}
	return nil
}

// besideARace says whether nothing is told of a test but that it was running when the detector found a race, whose trace
// another test has.
func (f failure) besideARace() bool {
	lines := telling(f.said)
	return len(lines) == 1 && strings.HasSuffix(lines[0], "race detected during execution of test")
}

func (f failure) tell(to io.Writer, tags string) {
	fmt.Fprintf(to, "\nFAILED %s %s (%.1f s)\n", f.pkg, f.test, f.seconds)
	lines := telling(f.said)
	for _, line := range lines[:min(len(lines), excerpt)] {
		fmt.Fprintf(to, "    %s\n", strings.TrimLeft(line, " "))
	}
	if more := len(lines) - excerpt; more > 0 {
		fmt.Fprintf(to, "    and %d more lines\n", more)
	}
	fmt.Fprintf(to, "  output: %s\n  again:  %s\n", f.log, f.again(tags))
}

// again is the command that runs the test once more, with the chance that it had.
func (f failure) again(tags string) string {
	said := strings.Join(f.said, "\n")
	var arguments []string
	if tags != "" {
		arguments = append(arguments, "-tags="+tags)
	}
	if f.test != "" {
		top, _, _ := strings.Cut(f.test, "/")
		arguments = append(arguments, "-run=^"+top+"$$") // make's dollar
	}
	if f.shuffle != "" {
		arguments = append(arguments, "-shuffle="+f.shuffle)
	}
	if drawn := regexp.MustCompile(`-rapid\.(?:failfile|seed)="?[^"\s]+`).FindString(said); drawn != "" {
		arguments = append(arguments, strings.ReplaceAll(drawn, `"`, ""))
	}
	command := fmt.Sprintf("make test PKG=./%s ARGS='%s'", strings.TrimPrefix(f.pkg, "seckill/"), strings.Join(arguments, " "))
	if seed := regexp.MustCompile(`SEED=\d+`).FindString(said); seed != "" {
		command = seed + " " + command
	}
	return command
}
