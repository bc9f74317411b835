// Command prove runs the tests of the repository beside servers that all of them share, and counts them.
//
//	prove test [packages]    the rules (make test)
//	prove faults [parts]     what takes long, or breaks servers (make faults)
//	prove parts [commit]     the parts of the faults; of a commit, the one that CI runs (make parts)
//
// ARGS has further arguments of go test. gotestsum runs it and shows what failed; the whole output is in bin/tests.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"seckill/internal/workshop/testserver"
)

const (
	outputs = "bin/tests"
	budget  = 5 * time.Minute // of `make test`, or a part of the faults, on two cores; what is longer is named
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := prove(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
		os.Exit(1)
	}
}

func prove(ctx context.Context, args []string) error {
	var runs []run
	var err error
	switch {
	case len(args) > 0 && args[0] == "test":
		runs, err = rules(ctx, args[1:])
	case len(args) > 0 && args[0] == "faults":
		runs, err = faults(".", args[1:])
	default:
		show(os.Stdout, args)
		return nil
	}
	if err = errors.Join(err, os.RemoveAll(outputs)); err != nil {
		return err
	}
	environ, end, err := testserver.Share() //nolint:contextcheck // the servers outlive what is interrupted
	if err != nil {
		return fmt.Errorf("start the servers that tests share: %w", err)
	}
	return errors.Join(all(ctx, runs, append(os.Environ(), environ...)), end())
}

// all does the runs one after the other, goes on after one that fails, and ends with how each went.
func all(ctx context.Context, runs []run, environ []string) error {
	var table, again strings.Builder
	passed, failed, began := 0, 0, time.Now()
	for _, r := range runs {
		started := time.Now()
		o, err := r.do(ctx, environ)
		verdict := "green"
		switch {
		case err != nil:
			verdict = "RED: " + err.Error()
			failed += max(len(o.again), 1)
		case time.Since(started) > budget:
			verdict = "green, and late: the machine was busy, or there are too many tests"
		}
		fmt.Fprintf(&table, "%-10s %5d passed %3d failed %4.0f s  %s\n",
			r.name, o.passed, len(o.again), time.Since(started).Seconds(), verdict)
		again.WriteString(strings.Join(o.again, ""))
		passed += o.passed
	}
	fmt.Printf("\n%s%s%.0f s; the whole output is in %s\n%d passed, %d failed\n",
		&again, &table, time.Since(began).Seconds(), outputs, passed, failed)
	if failed > 0 {
		return errors.New("tests failed")
	}
	return ctx.Err()
}

type run struct {
	name, says string
	needs      []string // make targets of what it takes beside the servers
	environ    []string
	tags       string
	raced      bool
	atOnce     int // how many packages are tested at a time
	packages   []string
	tests      []string // none are all
}

type outcome struct {
	passed int
	again  []string
}

func (r run) do(ctx context.Context, environ []string) (o outcome, err error) {
	for _, target := range r.needs {
		if err := call(ctx, environ, "make", "--no-print-directory", target); err != nil {
			return o, fmt.Errorf("make %s: %w", target, err)
		}
	}
	fmt.Printf("== %s: %s\n", r.name, r.says)
	output := filepath.Join(outputs, r.name+".json")
	// The linter vets. Without DWARF (-w) the tests' programs link in half the time, and traces do not need it. A package
	// that hangs says after 20 minutes which test it is. Most tests wait for servers: more run than there are processors.
	command := []string{
		"bin/gotestsum", "--format=pkgname", "--format-hide-empty-pkg", "--hide-summary=skipped",
		"--jsonfile=" + output, "--",
		"-vet=off", "-trimpath", "-count=1", "-shuffle=on", "-ldflags=-w", "-timeout=20m", "-parallel=6",
		fmt.Sprint("-p=", r.atOnce), "-tags=" + r.tags,
	}
	cgo := "CGO_ENABLED=0"
	if r.raced {
		// -race also checks each conversion of an unsafe.Pointer: half the time of the tests of SQLite, translated C.
		// (Without -race it would hide atomics of others: the linker keeps one of equal instances of a generic.)
		cgo, command = "CGO_ENABLED=1", append(command, "-race", "-gcflags=modernc.org/...=-d=checkptr=0")
	}
	if r.tests != nil {
		command = append(command, "-run=^("+strings.Join(r.tests, "|")+")$")
	}
	command = slices.Concat(command, strings.Fields(os.Getenv("ARGS")), r.packages)
	environ = slices.Concat(environ, r.environ, []string{cgo})
	err = errors.Join(os.MkdirAll(outputs, 0o750), call(ctx, environ, command...), o.read(output, r))
	if err == nil && o.passed == 0 {
		err = errors.New("no test was run")
	}
	return o, err
}

func call(ctx context.Context, environ []string, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environ, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd.Run()
}

// chance is what a test, or a package, says of the chance that it had.
var chance = regexp.MustCompile(`-test\.shuffle \d+|SEED=\d+|-rapid\.(?:failfile|seed)="?[^"\s]+`)

// read counts the tests of an output of go test -json (go doc test2json), and says how each that failed is repeated.
func (o *outcome) read(path string, r run) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read what the tests said: %w", err)
	}
	defer file.Close()
	type test struct{ pkg, name string }
	chances, blamed := map[test][]string{}, map[string]bool{}
	for decoder := json.NewDecoder(file); decoder.More(); {
		var e struct{ Action, Package, Test, Output string }
		if err := decoder.Decode(&e); err != nil { //nolint:musttag // its names are those of the fields
			return fmt.Errorf("read what the tests said: %w", err)
		}
		top, _, sub := strings.Cut(e.Test, "/")
		switch at := (test{e.Package, top}); {
		case e.Action == "output":
			chances[at] = append(chances[at], chance.FindAllString(e.Output, -1)...)
		case e.Action == "pass" && top != "":
			o.passed++
		case e.Action == "fail" && !sub && (top != "" || !blamed[e.Package]): // a package fails also beside its tests
			blamed[e.Package] = true
			o.again = append(o.again, r.repeat(e.Package, top, append(chances[at], chances[test{pkg: e.Package}]...)))
		}
	}
	return nil
}

// repeat is the command that runs a test once more, with the chance that it had.
func (r run) repeat(pkg, test string, chances []string) string {
	before, after := slices.Clone(r.environ), []string(nil)
	if r.tags != "" {
		after = append(after, "-tags="+r.tags)
	}
	if test != "" {
		after = append(after, "-run=^"+test+"$$") // make's dollar
	}
	for _, said := range chances {
		if strings.HasPrefix(said, "SEED=") {
			before = append(before, said)
		} else {
			after = append(after, strings.NewReplacer("test.shuffle ", "shuffle=", `"`, "").Replace(said))
		}
	}
	pkg = strings.TrimPrefix(pkg, "seckill/")
	before = append(before, fmt.Sprintf("make test PKG=./%s ARGS='%s'", pkg, strings.Join(after, " ")))
	return "again: " + strings.Join(slices.Compact(before), " ") + "\n"
}

// plain are packages tested without the race detector: they have no concurrency of ours, or start the shipped program.
// Raced, a translated SQLite takes half their time. The parts races and sales of the faults look at the whole program.
var plain = regexp.MustCompile(`^seckill/(config|deployments|handler/(console|wire)|lock/lab|model|internal/` +
	`(app|command|embedded|failpoint|redact|redisurl|sqlitefile|vouchercode|workshop))(/|$)`)

func rules(ctx context.Context, patterns []string) ([]run, error) {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	tested := []string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}
	list := exec.CommandContext(ctx, "go", append(tested, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	all := []run{
		{name: "plain", says: "without the race detector", atOnce: 4},
		{name: "raced", says: "under the race detector", atOnce: 4, raced: true},
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		r := &all[1]
		if plain.MatchString(pkg) {
			r = &all[0]
		}
		r.packages = append(r.packages, pkg)
	}
	return slices.DeleteFunc(all, func(r run) bool { return len(r.packages) == 0 }), nil
}

// parts are those of `make faults`, in their order. A test belongs to the one in its file's line "//part:NAME". A file
// of the build tag faults is in no other command; others are in `make test` too and do less there (check.Count).
func parts() []run {
	mysql8, _ := filepath.Abs("bin/engines/mysql-8.0") // instead of the MariaDB that all parts share
	return []run{
		{name: "kills", says: "processes die at every step of an order"},
		{name: "weather", says: "what no list of faults names, random kills, lives, linear histories"},
		{name: "clusters", says: "Redis Cluster, Sentinel, NATS clusters, and their failovers"},
		{name: "databases", says: "databases are killed, refuse, come back older", needs: []string{"deps-haproxy"}},
		{name: "redis", says: "Redis is flushed, replaced, full, behind TLS"},
		{name: "queue", says: "NATS is full, lost, slow; poison; long queues"},
		{name: "siege", says: "attackers from outside, floods, limits, quiet costs"},
		{name: "browser", says: "the console in a real browser", needs: []string{"deps-browser"}},
		{name: "journeys", says: "an operator, a buyer and a till, in a real browser", needs: []string{"deps-browser"}},
		{name: "locks", says: "long histories of the locks, and their servers' faults"},
		{name: "stores", says: "long histories of the stores and services"},
		{name: "races", says: "the whole program under the race detector", raced: true},
		{name: "sales", says: "the same: each mode with each lock and strategy, money, fairness", raced: true},
		{
			name: "proxies", says: "what deployments/ ships, as it is, in outages and deploys",
			needs: []string{"deps-proxies"},
		},
		{
			name: "packaging", says: "images, charts, rules, the benchmarks, the examples",
			needs: []string{"deps-chart", "rules", "deps-examples"},
		},
		{
			name: "interop", says: "the locks against the real Redisson", raced: true, tags: ",interop",
			needs: []string{"deps-interop"},
		},
		{
			name: "mysql8", says: "the database's part on MySQL 8",
			environ: []string{"TESTSERVER_MYSQL=" + mysql8, "TESTSERVER_DATABASE="},
			needs:   []string{"deps-mysql8", "deps-haproxy"},
		},
		{name: "engines", says: "every route, page and job on each listed server", needs: []string{"deps-engines"}},
	}
}

// show writes the parts, or the one that continuous integration runs for a commit: all have their turn.
func show(to io.Writer, args []string) {
	if len(args) < 2 {
		for _, p := range parts() {
			fmt.Fprintf(to, "%-10s %s\n", p.name, p.says)
		}
		return
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(args[1]))
	fmt.Fprintln(to, parts()[int(hash.Sum32()%uint32(len(parts())))].name)
}

var (
	directive = regexp.MustCompile(`(?m)^//part:(\S+)$`)
	function  = regexp.MustCompile(`(?m)^func (Test\w+)\(t `)
)

// faults are the named parts, all by default, with their packages and tests.
func faults(root string, names []string) ([]run, error) {
	all := parts()
	for _, name := range names {
		if !slices.ContainsFunc(all, func(p run) bool { return p.name == name }) {
			return nil, fmt.Errorf("there is no part %q", name)
		}
	}
	err := testFiles(root, func(path, text string) error {
		for _, match := range directive.FindAllStringSubmatch(text, -1) {
			n := slices.IndexFunc(all, func(p run) bool { return p.name == match[1] })
			if n < 0 {
				return fmt.Errorf("%s names the part %q, which does not exist", path, match[1])
			}
			if pkg := "./" + filepath.Dir(path); !slices.Contains(all[n].packages, pkg) {
				all[n].packages = append(all[n].packages, pkg)
			}
			for _, test := range function.FindAllStringSubmatch(text, -1) {
				all[n].tests = append(all[n].tests, test[1])
			}
		}
		return nil
	})
	for n := range all {
		all[n].tags, all[n].atOnce = "faults"+all[n].tags, 1
	}
	return slices.DeleteFunc(all, func(p run) bool { return len(names) > 0 && !slices.Contains(names, p.name) }), err
}

func testFiles(root string, do func(path, text string) error) error {
	return fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != "." || entry.Name() == "bin" ||
			entry.Name() == "node_modules"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		return do(path, string(text))
	})
}
