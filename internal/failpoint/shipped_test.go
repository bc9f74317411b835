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

// obeyed is the name by which a program would kill itself.
const obeyed = "SECKILL_FAILPOINT"

// What obeys is compiled with the tag alone, and without it Reach does nothing. (The binaries themselves are looked at
// by the faults.)
func TestOnlyTheTagMakesAProgramObey(t *testing.T) {
	t.Parallel()
	s := read(t)
	plain, tagged := build.Default, build.Default
	plain.BuildTags, tagged.BuildTags = nil, []string{"failpoint"}
	obeys := false
	for _, path := range append(s.files, "internal/failpoint/off.go", "internal/failpoint/on.go") {
		if !strings.Contains(s.text(t, path), obeyed) {
			continue
		}
		dir, file := filepath.Split(filepath.Join(s.root, path))
		if check.Value(plain.MatchFile(dir, file))(t) {
			t.Errorf("the shipped program has %s, which names %s", path, obeyed)
		}
		obeys = obeys || check.Value(tagged.MatchFile(dir, file))(t)
	}
	check.Equal(t, "whether the program of the tests obeys "+obeyed, obeys, true)

	off := check.Value(parser.ParseFile(token.NewFileSet(), "off.go", nil, parser.SkipObjectResolution))(t)
	for _, declaration := range off.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Name.Name == "Reach" {
			check.Equal(t, "statements of Reach without the tag", len(function.Body.List), 0)
			return
		}
	}
	t.Error("there is no Reach without the tag")
}
