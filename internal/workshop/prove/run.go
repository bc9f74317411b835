package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// plain are the packages that are tested without the race detector: they have no concurrency of ours, or they start
// the program as it is shipped. Under the detector a translated SQLite alone takes half of their time. What the whole
// program shares between goroutines is looked at by the part "races" of the faults.
var plain = regexp.MustCompile(`^seckill/(config|deployments|handler/(console|wire)|lock/lab|model|internal/` +
	`(app|command|embedded|failpoint|redact|redisurl|sqlitefile|vouchercode|workshop))(/|$)`)

// rules are the tests of the packages, all by default.
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

// parts are the parts of `make faults`, in the order in which they run. A test belongs to one when its file says so in
// a line "//part:NAME". A file of the build tag faults is in no other command; one without the tag is in `make test`
// too, where its tests do less (check.Count).
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
		{name: "proxies", says: "what deployments/ ships, as it is, in outages and deploys", needs: []string{"deps-proxies"}},
		{name: "packaging", says: "images, charts, rules, the benchmarks", needs: []string{"deps-chart", "rules"}},
		{
			name: "interop", says: "the locks against the real Redisson", raced: true, tags: ",interop",
			needs: []string{"deps-interop"},
		},
		{
			name: "mysql8", says: "the database's part on MySQL 8", environ: []string{"TESTSERVER_MYSQL=" + mysql8, "TESTSERVER_DATABASE="},
			needs: []string{"deps-mysql8", "deps-haproxy"},
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

// testFiles hands on every file of tests below root.
func testFiles(root string, do func(path, text string) error) error {
	return fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != "." || entry.Name() == "bin" || entry.Name() == "node_modules"):
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
