package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/overlay"
)

// TestEveryDefectFits keeps the list from rotting: each defect is a text that the product has, once.
func TestEveryDefectFits(t *testing.T) {
	t.Parallel()
	mutants := check.Value(parse(list, nil))(t)
	check.Must(t, fit("../../..", mutants))
	check.That(t, len(mutants) >= 50, "the list has %d defects", len(mutants))
	known := map[string]bool{}
	for _, m := range mutants {
		check.That(t, m.What != "" && m.ID != "" && !known[m.ID],
			"defect %q, %q: it needs an id of its own, and a description", m.ID, m.What)
		check.That(t, !strings.HasSuffix(m.File, "_test.go"), "defect %s is one of a test", m.ID)
		known[m.ID] = true
	}
}

func module(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

func TestDefectsThatDoNotFit(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"a/a.go": "package a\n\nvar x, y = 1, 1\n", "a/a_test.go": "package a\n",
		"b/b.go": "package b\n",
	})
	good := mutant{
		ID: "A1", What: "x is 2", Change: overlay.Change{File: "a/a.go", Old: "= 1, 1", New: "= 2, 1"},
		Packages: []string{"a"},
	}
	check.Must(t, fit(root, []mutant{good}))
	for name, spoil := range map[string]func(m *mutant){
		"no file":            func(m *mutant) { m.File = "a/b.go" },
		"no such text":       func(m *mutant) { m.Old = "= 3" },
		"the text twice":     func(m *mutant) { m.Old = "1" },
		"no change":          func(m *mutant) { m.New = m.Old },
		"no package":         func(m *mutant) { m.Packages = nil },
		"no tests":           func(m *mutant) { m.Packages = []string{"a", "b"} },
		"no such package":    func(m *mutant) { m.Packages = []string{"c"} },
		"everything is text": func(m *mutant) { m.Old = "" },
	} {
		bad := good
		spoil(&bad)
		err := fit(root, []mutant{good, bad})
		check.That(t, err != nil && strings.Contains(err.Error(), "A1"), "%s: %v", name, err)
	}
}

func TestListsAreRead(t *testing.T) {
	t.Parallel()
	const two = `[{"id":"A1","what":"x"},{"id":"B1","what":"y"}]`
	for _, test := range []struct {
		text string
		ids  []string
		want int // defects; -1: an error
	}{{two, nil, 2}, {two, []string{"B1"}, 1}, {two, []string{"C1"}, -1}, {`{}`, nil, -1}, {`[{"id":"A1","flie":"a.go"}]`, nil, -1}} {
		read, err := parse([]byte(test.text), test.ids)
		check.That(t, (err != nil) == (test.want < 0) && len(read) == max(0, test.want), "%s, %v: %v %v", test.text,
			test.ids, read, err)
	}
}

// TestDefectsAreTried: defects in a small module, in Go or embedded, are noticed or not; a broken build never is.
func TestDefectsAreTried(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"go.mod":     "module tiny\n\ngo 1.24\n",
		"a/a.go":     "package a\n\nimport _ \"embed\"\n\n//go:embed text.lua\nvar text string\n\nfunc sum(x, y int) int { return x + y }\n",
		"a/text.lua": "return 1\n",
		"a/a_test.go": "package a\n\nimport \"testing\"\n\n" +
			"func TestText(t *testing.T) {\n\tif text != \"return 1\\n\" {\n\t\tt.Error(text)\n\t}\n}\n\n" +
			"func TestSum(t *testing.T) {\n\tif sum(2, 2) != 4 {\n\t\tt.Error(\"no\")\n\t}\n}\n",
	})
	lab := laboratory{root: root, out: filepath.Join(root, "out"), timeout: check.Deadline}
	in := func(id, file, old, changed string) mutant {
		return mutant{
			ID: id, What: "a defect", Change: overlay.Change{File: file, Old: old, New: changed},
			Packages: []string{"a"},
		}
	}
	mutants := []mutant{
		in("A1", "a/a.go", "x + y", "x * y"), in("A2", "a/text.lua", "1", "2"), in("A3", "a/a.go", "x + y", "x + z"),
		in("A4", "a/a.go", "x + y", "x - y"),
	}
	check.Must(t, fit(root, mutants))
	var table strings.Builder
	survived, err := lab.report(t.Context(), &table, mutants)
	check.Must(t, err)
	check.Equal(t, "a defect survived", survived, true)
	for i, want := range []string{"SURVIVED", "killed by TestText", "DOES NOT BUILD", "killed by TestSum"} {
		if line := strings.Split(table.String(), "\n")[i]; !strings.HasPrefix(line, mutants[i].ID) ||
			!strings.HasSuffix(line, want) {
			t.Errorf("line %q, want %s", line, want)
		}
	}
	for _, want := range []string{"2 of 4 defects were noticed", "ONLY=A1\n", "ONLY=A3\n"} {
		check.That(t, strings.Contains(table.String(), want), "the table does not say %q:\n%s", want, table.String())
	}
	kept := check.Value(os.ReadFile(filepath.Join(lab.out, "A4-1.txt")))(t)
	check.That(t, strings.Contains(string(kept), "TestSum"), "kept: %s", kept)
	left := check.Value(os.ReadFile(filepath.Join(root, "a/a.go")))(t)
	check.That(t, strings.Contains(string(left), "x + y"), "the tree was changed: %s", left)
}

// TestRedTestsProveNothing: what fails without a defect is told of before any defect is tried.
func TestRedTestsProveNothing(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"go.mod": "module tiny\n\ngo 1.24\n", "a/a.go": "package a\n",
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestRed(t *testing.T) { t.Error(\"no\") }\n",
	})
	lab := laboratory{root: root, out: filepath.Join(root, "out"), timeout: time.Minute}
	err := lab.control(t.Context(), []mutant{{ID: "A1", Packages: []string{"a"}}})
	check.That(t, err != nil && strings.Contains(err.Error(), "TestRed"), "%v", err)
}
