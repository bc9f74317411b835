package archtest

import (
	"bytes"
	"errors"
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

// file is one text file of the repository.
type file struct {
	path string // relative to the root, with slashes
	text string
	*syntax
}

// syntax is there for Go files.
type syntax struct {
	positions *token.FileSet
	tree      *ast.File
}

func (f file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// dir is the directory of the file, "." for the root.
func (f file) dir() string { return path.Dir(f.path) }

// imports are the import paths of a Go file.
func (f file) imports() []string {
	paths := make([]string, 0, len(f.tree.Imports))
	for _, spec := range f.tree.Imports {
		// The parser has accepted the literal already.
		imported, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, imported)
	}
	return paths
}

// at is where something stands in a Go file, "path:line".
func (f file) at(node ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.positions.Position(node.Pos()).Line)
}

// excused says whether the line of a forbidden call gives a reason for it.
func (f file) excused(node ast.Node) bool {
	number := f.positions.Position(node.Pos()).Line
	return regexp.MustCompile(`// real time: \w`).MatchString(strings.Split(f.text, "\n")[number-1])
}

// parse makes a Go file of source text.
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
	foreign := []string{".git", "bin", "data", "deployments/secrets", "node_modules"}
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
			if slices.Contains(foreign, relative) || entry.Name() == "target" { // Maven's output
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

// goFiles are the Go files among them.
func goFiles(files []file) []file {
	return slices.DeleteFunc(slices.Clone(files), func(f file) bool { return f.syntax == nil })
}

// report fails the test with one line per violation.
func report(t *testing.T, violations []string) {
	t.Helper()
	for _, violation := range violations {
		t.Error(violation)
	}
}

// wantOne demands that a rule finds exactly one violation, and that it names what is wrong: the negative
// control of each rule.
func wantOne(t *testing.T, violations []string, want string) {
	t.Helper()
	if len(violations) != 1 || !strings.Contains(violations[0], want) {
		t.Errorf("violations = %q, want one that contains %q", violations, want)
	}
}
