package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// part is one part of `make faults`. A test belongs to it when its file says so in a line "//part:NAME" before the
// package clause. A file of the build tag faults is in no other command; one without the tag is in `make test` too, where
// its tests do less (check.Count).
type part struct {
	name, says string
	budget     time.Duration // on two cores of its own; what takes longer is told, and no failure
	// needs are the make targets that install what else it takes.
	needs []string
	// environ are variables of its tests, tags its build tags beside faults.
	environ []string
	tags    string
	raced   bool
}

// parts are in the order in which they run.
func parts() []part {
	const usual = 5 * time.Minute
	return []part{
		{name: "kills", says: "processes die at every step of an order", budget: usual},
		{name: "weather", says: "what no list of faults names, random kills, lives, linear histories", budget: usual},
		{name: "clusters", says: "Redis Cluster, Sentinel, NATS clusters, and their failovers", budget: usual},
		{name: "databases", says: "databases are killed, refuse, come back older", budget: usual},
		{name: "redis", says: "Redis is flushed, replaced, full, behind TLS", budget: usual},
		{name: "queue", says: "NATS is full, lost, slow; poison; long queues", budget: usual},
		{name: "siege", says: "attackers from outside, floods, limits, quiet costs", budget: usual},
		{name: "browser", says: "the console in a real browser", budget: usual, needs: []string{"deps-browser"}},
		{name: "journeys", says: "an operator, a buyer and a till from beginning to end, in a real browser", budget: usual, needs: []string{"deps-browser"}},
		{name: "locks", says: "long histories of the locks, and their servers' faults", budget: usual},
		{name: "stores", says: "long histories of the stores and services", budget: usual},
		{name: "races", says: "the whole program under the race detector", budget: usual, raced: true},
		{name: "proxies", says: "what deployments/ ships, as it is: proxies in outages and deploys, the compose file", budget: usual, needs: []string{"deps-proxies"}},
		{name: "packaging", says: "images, charts, tools, the benchmarks", budget: usual},
		{name: "interop", says: "the locks against the real Redisson", budget: usual, raced: true, tags: "interop", needs: []string{"deps-interop"}},
		{name: "mysql8", says: "the database's part on MySQL 8", budget: usual, needs: []string{"deps-mysql8"}, environ: []string{"TESTSERVER_MYSQL=bin/engines/mysql-8.0", "TESTSERVER_DATABASE="}},
		{name: "engines", says: "every route, page and job on each database, Redis and NATS that is listed", budget: usual, needs: []string{"deps-engines"}},
	}
}

// member is one package's tests of a part.
type member struct {
	pkg   string // "./lock"
	tests []string
}

// directive marks a test file as one of a part.
var directive = regexp.MustCompile(`(?m)^//part:(\S+)$`)

// members reads the test files below root, and says which tests belong to which part.
func members(root string) (map[string][]member, error) {
	found := map[string]map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != root || entry.Name() == "bin" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		names, tests, err := read(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, name := range names {
			if found[name] == nil {
				found[name] = map[string][]string{}
			}
			found[name]["./"+dir] = append(found[name]["./"+dir], tests...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the test files: %w", err)
	}
	sorted := map[string][]member{}
	for name, packages := range found {
		if !slices.ContainsFunc(parts(), func(p part) bool { return p.name == name }) {
			return nil, fmt.Errorf("the tests of %v name the part %q, which does not exist", slices.Collect(maps.Keys(packages)), name)
		}
		for _, pkg := range slices.Sorted(maps.Keys(packages)) {
			sorted[name] = append(sorted[name], member{pkg, packages[pkg]})
		}
	}
	return sorted, nil
}

// read says which parts a test file is in, and which tests it has.
func read(path string) (names, tests []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	for _, group := range file.Comments {
		if group.Pos() > file.Package {
			break
		}
		for _, comment := range group.List {
			if match := directive.FindStringSubmatch(comment.Text); match != nil {
				names = append(names, match[1])
			}
		}
	}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if ok && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") && function.Name.Name != "TestMain" {
			tests = append(tests, function.Name.Name)
		}
	}
	return names, tests, nil
}

// tellParts writes the parts, or the name of the one that continuous integration runs for a commit: each commit runs
// one, and all have their turn.
func tellParts(to io.Writer, commit string) error {
	if commit == "" {
		for _, p := range parts() {
			fmt.Fprintf(to, "%-10s %s\n", p.name, p.says)
		}
		return nil
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(commit))
	fmt.Fprintln(to, parts()[int(hash.Sum32()%uint32(len(parts())))].name)
	return nil
}
