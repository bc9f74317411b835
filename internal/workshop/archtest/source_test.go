package archtest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

type file struct {
	path string // relative to the root, with slashes
	text string
	*syntax
}

type syntax struct {
	positions *token.FileSet
	tree      *ast.File
}

func (f file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f file) dir() string { return path.Dir(f.path) }

func (f file) imports() []string {
	paths := make([]string, 0, len(f.tree.Imports))
	for _, spec := range f.tree.Imports {
		// The parser has accepted the literal already.
		imported, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, imported)
	}
	return paths
}

func (f file) at(node ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.positions.Position(node.Pos()).Line)
}

// excused says whether the line of a forbidden call gives a reason for it.
func (f file) excused(node ast.Node) bool {
	number := f.positions.Position(node.Pos()).Line
	return regexp.MustCompile(`// real time: \w`).MatchString(strings.Split(f.text, "\n")[number-1])
}

func parse(t *testing.T, path, text string) file {
	t.Helper()
	positions := token.NewFileSet()
	tree, err := parser.ParseFile(positions, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parse %s: %v", path, err)
	}
	return file{path: path, text: text, syntax: &syntax{positions: positions, tree: tree}}
}

// repository reads every text file under the module's root, whatever its build tags say.
func repository(t *testing.T) []file {
	t.Helper()
	const root = "../../.."
	// Not ours: history, what was built, local data and secrets.
	foreign := []string{".git", "bin", "data", "dist", "deployments/secrets"}
	var files []file
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if entry.IsDir() {
			if slices.Contains(foreign, relative) || entry.Name() == "target" || entry.Name() == "node_modules" { // Maven, npm
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || relative == ".git" { // which is a file in a work tree beside the first
			return nil
		}
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an editor's temporary file that is gone
		}
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			text = nil // a picture: only its path is of interest
		}
		if strings.HasSuffix(relative, ".go") {
			files = append(files, parse(t, relative, string(text)))
			return nil
		}
		files = append(files, file{path: relative, text: string(text)})
		return nil
	})
	if err != nil {
		t.Fatalf("read the repository: %v", err)
	}
	return files
}

func goFiles(files []file) []file {
	return slices.DeleteFunc(slices.Clone(files), func(f file) bool { return f.syntax == nil })
}

func report(t *testing.T, violations []string) {
	t.Helper()
	for _, violation := range violations {
		t.Error(violation)
	}
}

// wantOne is the negative control of each rule: it demands exactly one violation, which names what is wrong.
func wantOne(t *testing.T, violations []string, want string) {
	t.Helper()
	if len(violations) != 1 || !strings.Contains(violations[0], want) {
		t.Errorf("violations = %q, want one that contains %q", violations, want)
	}
}

// TestRulesFindWhatTheyAreFor is the rules' negative control: each sees one file that breaks it and one that does not.
func TestRulesFindWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("// line\n", maxLines+1)
	tests := []struct {
		name, path      string
		check           func([]file) []string
		broken, correct string
	}{
		{
			"no doc comment", "p/p.go", undocumented, "// Something.\npackage p\n",
			"// Package p is documented.\npackage p\n",
		},
		{
			"sleep", "p/p_test.go", sleeping, "package p\nfunc f() { time.Sleep(1) }\n",
			"package p\nfunc f() { clock.Sleep(1) }\n",
		},
		{
			"sleep with a reason", "p/p_test.go", sleeping, "package p\nfunc f() { time.Sleep(1) } // real time\n",
			"package p\nfunc f() { time.Sleep(1) } // real time: the work\n",
		},
		{
			"sleep beside a bubble", "p/p_test.go", sleeping,
			"package p\nimport \"testing/synctest\"\nfunc TestA(t *testing.T) { time.Sleep(1) }\n",
			"package p\nimport \"testing/synctest\"\nfunc TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }\n",
		},
		{"sleep passed on", "p/p.go", sleeping, "package p\nvar f = time.Sleep\n", "package p\nvar f = time.Now\n"},
		{
			"span compared", "p/p_test.go", wallClocks,
			"package p\nfunc f() { if time.Since(began) > limit { t.Fail() } }\n",
			"package p\nfunc f() { t.Log(time.Since(began)) }\n",
		},
		{
			"span held and compared", "p/p_test.go", wallClocks,
			"package p\nfunc f() { took := time.Since(began); if took > limit { t.Fail() } }\n",
			"package p\nfunc f() { left := budget(time.Since(began)); if left > limit { t.Fail() } }\n",
		},
		{
			"bare limit", "p/p_test.go", wallClocks,
			"package p\nfunc f() { ctx, _ := context.WithTimeout(c, 5*time.Second) }\n",
			"package p\nfunc f() { ctx, _ := context.WithTimeout(c, check.Deadline) }\n",
		},
		{
			"limit without a reason", "p/p_test.go", wallClocks,
			"package p\n\nconst long = 5 * time.Second\n\nfunc f() { <-time.After(long) }\n",
			"package p\n\n// gone is passed on purpose.\nconst gone = time.Second\n\nfunc f() { <-time.After(gone) }\n",
		},
		{
			"real time beside a bubble", "p/p_test.go", wallClocks,
			"package p\nimport \"testing/synctest\"\nfunc TestA(t *testing.T) { <-time.After(time.Second) }\n",
			"package p\nimport \"testing/synctest\"\nfunc TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { <-time.After(time.Second) }) }\n",
		},
		{"path", "README.md", machinePaths, "see /roo" + "t/notes", "see deployments/notes, /var/lib/mysql"},
		{"unfinished", "Makefile", unfinished, "# TO" + "DO later", "# the todos of a user"},
		{
			"silent sql", "p/x.sql", silentScripts, "-- +goose Up\nCREATE TABLE t (i INT);\n",
			"-- The table of things.\n-- +goose Up\n",
		},
		{
			"silent lua", "p/x.lua", silentScripts, "-- releases the named lock\nreturn 1\n",
			"-- releases the lock KEYS[1]\nreturn 1\n",
		},
		{
			"long", "p/p.go", longFiles, "package p\n" + long,
			"package p\n// Longer than 600 lines because of its table.\n" + long,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			source := func(text string) []file {
				if strings.HasSuffix(test.path, ".go") {
					return []file{parse(t, test.path, text)}
				}
				return []file{{path: test.path, text: text}}
			}
			wantOne(t, test.check(source(test.broken)), "")
			report(t, test.check(source(test.correct)))
		})
	}
}

func TestUnknownSettingsAreFound(t *testing.T) {
	t.Parallel()
	wantOne(t, unknownSettings([]file{{path: "README.md", text: "set SECKILL_LOCK_MODE\nand SECKILL_LOCK_MOOD_FILE"}}),
		"README.md:2: SECKILL_LOCK_MOOD_FILE")
	report(t, unknownSettings([]file{{path: "compose.yml", text: "SECKILL_LOCK_MODE_FILE: /run/secrets/mode"}}))
}

func TestStrangersAtTheTopAreFound(t *testing.T) {
	t.Parallel()
	wantOne(t, strayTop([]file{
		{path: "README.md"},
		{path: ".ci/run"},
		{path: "model/order.go"},
		{path: "utils/strings.go"},
	}), "utils/strings.go")
}

// TestSize holds the code's mass by .ci/size: lines of Go outside and inside tests of all modules, files outside, and
// times written as numbers there. A change that needs more raises a number and says why; one that needs less lowers it.
func TestSize(t *testing.T) {
	t.Parallel()
	files := repository(t)
	limits := files[slices.IndexFunc(files, func(f file) bool { return f.path == ".ci/size" })].text
	report(t, oversized(files, limits))
	tests := file{path: "a_test.go", syntax: &syntax{}, text: strings.Repeat("\n", 3)}
	code := file{path: "a.go", syntax: &syntax{}, text: "\tpause = 2 * time.Second\n\tp := time.Second\n"}
	report(t, oversized([]file{code, tests}, "2 code\n3 tests\n1 files\n1 times\n"))
	wantOne(t, oversized([]file{code, tests}, "1 code\n3 tests\n"), "there are 2 code, and .ci/size has 1")
	wantOne(t, oversized([]file{code, tests}, "0 times\n"), "there are 1 times, and .ci/size has 0")
	wantOne(t, oversized([]file{code, tests}, "2 code\n200 tests\n"), "lower it")
}

// writtenTime is a line that gives a name to a time which is written as a number.
var writtenTime = regexp.MustCompile(`(?m)^\s*(?:const |var )?\w+(?:\s+time\.Duration)?\s*=.*\btime\.(?:Microsecond|Millisecond|Second|Minute|Hour)\b`)

// oversized compares what there is with what .ci/size allows. A number there is at most a hundredth too large.
func oversized(files []file, limits string) (found []string) {
	all := map[string]int{"code": 0, "tests": 0, "files": 0, "times": 0}
	for _, f := range goFiles(files) {
		lines := strings.Count(f.text, "\n")
		if f.test() {
			all["tests"] += lines
			continue
		}
		all["code"] += lines
		all["files"]++
		all["times"] += len(writtenTime.FindAllString(f.text, -1))
	}
	for line := range strings.Lines(limits) {
		var limit int
		var kind string
		_, err := fmt.Sscan(line, &limit, &kind)
		switch there, known := all[kind]; {
		case err != nil || !known:
			found = append(found, fmt.Sprintf(".ci/size says %q", line))
		case there > limit:
			found = append(found, fmt.Sprintf("there are %d %s, and .ci/size has %d", there, kind, limit))
		case there < limit-limit/100-1:
			found = append(found, fmt.Sprintf("there are %d %s, and .ci/size has %d: lower it", there, kind, limit))
		}
	}
	return found
}
