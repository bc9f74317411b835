package main

import (
	"go/build/constraint"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

const root = "../../.."

// Each part has tests, and each test that `make test` does not compile is in a part.
func TestEveryFaultHasAPart(t *testing.T) {
	t.Parallel()
	all := check.Value(members(root))(t)
	for _, p := range parts() {
		if len(all[p.name]) == 0 {
			t.Errorf("no test is in the part %s", p.name)
		}
	}
	check.Must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text := string(check.Value(os.ReadFile(path))(t))
		names, tests, err := read(path)
		if len(tests) > 0 && onlyInFaults(t, text) && len(names) == 0 {
			t.Errorf("%s is compiled only for the faults, and names no part: //part:NAME", path)
		}
		if strings.HasSuffix(path, "_faults_test.go") != strings.HasPrefix(text, "//go:build faults") {
			t.Errorf("%s: the name of a file with the build tag faults ends in _faults_test.go, and of no other", path)
		}
		return err
	}))
}

// onlyInFaults says whether a file is compiled only with the tag faults.
func onlyInFaults(t *testing.T, text string) bool {
	t.Helper()
	for line := range strings.Lines(text) {
		if !constraint.IsGoBuild(line) {
			continue
		}
		expression := check.Value(constraint.Parse(strings.TrimSpace(line)))(t)
		set := func(tags ...string) bool {
			return expression.Eval(func(tag string) bool { return slices.Contains(append(tags, "linux"), tag) })
		}
		return set("faults", "interop") && !set()
	}
	return false
}

func TestAPartThatIsNotThereIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte("//part:locks\n\npackage a\n\nfunc TestA() {}\n"), 0o600))
	all := check.Value(members(dir))(t)
	if len(all["locks"]) != 1 || !slices.Equal(all["locks"][0].tests, []string{"TestA"}) {
		t.Errorf("members: %v", all)
	}
	check.Must(t, os.WriteFile(filepath.Join(dir, "b_test.go"), []byte("//part:lock\n\npackage a\n\nfunc TestB() {}\n"), 0o600))
	if err := check.ErrorOf(members(dir)); err == nil || !strings.Contains(err.Error(), `"lock"`) {
		t.Errorf("a part that does not exist: %v", err)
	}
}

// Every commit runs one part, and every part has its turn.
func TestEveryPartHasItsTurn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for n := range 1000 {
		var said strings.Builder
		check.Must(t, tellParts(&said, strings.Repeat("a", n)))
		seen[strings.TrimSpace(said.String())] = true
	}
	for _, p := range parts() {
		check.Equal(t, p.name, seen[p.name], true)
	}
}
