package failpoint_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// obeying are the names by which a program would kill itself, or have a defect.
var obeying = []string{"SECKILL_FAILPOINT", "SECKILL_DEFECT", "failpoint.Has", "failpoint.Defect", "failpoint.PublishUndoes", "failpoint.MissingIsSoldOut"}

// What obeys is compiled with the tag alone, and without it Reach does nothing. (The binaries themselves are looked at by
// the faults.)
func TestOnlyTheTagMakesAProgramObey(t *testing.T) {
	t.Parallel()
	s := read(t)
	plain, tagged := build.Default, build.Default
	plain.BuildTags, tagged.BuildTags = nil, []string{"failpoint"}
	found := map[string]bool{}
	for _, path := range append(s.files, "internal/failpoint/off.go", "internal/failpoint/on.go") {
		text := s.text(t, path)
		for _, name := range obeying {
			if !strings.Contains(text, name) {
				continue
			}
			dir, file := filepath.Split(filepath.Join(s.root, path))
			if check.Value(plain.MatchFile(dir, file))(t) {
				t.Errorf("the shipped program has %s, which names %s", path, name)
			}
			if check.Value(tagged.MatchFile(dir, file))(t) {
				found[name] = true
			}
		}
	}
	for _, name := range obeying[:3] {
		check.Equal(t, "whether the program of the tests obeys "+name, found[name], true)
	}

	off := check.Value(parser.ParseFile(token.NewFileSet(), "off.go", nil, parser.SkipObjectResolution))(t)
	for _, declaration := range off.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Name.Name == "Reach" {
			check.Equal(t, "statements of Reach without the tag", len(function.Body.List), 0)
			return
		}
	}
	t.Error("there is no Reach without the tag")
}
