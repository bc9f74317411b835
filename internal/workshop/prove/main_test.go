package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

const root = "../../.."

// Each part has tests, and each test that `make test` does not compile is in a part.
func TestEveryFaultHasAPart(t *testing.T) {
	t.Parallel()
	for _, p := range check.Value(faults(root, nil))(t) {
		check.That(t, len(p.tests) > 0, "no test is in the part %s", p.name)
	}
	tagged := regexp.MustCompile(`\A//go:build (faults|interop)\n`)
	check.Must(t, testFiles(root, func(path, text string) error {
		check.That(t, !tagged.MatchString(text) || !function.MatchString(text) || directive.MatchString(text),
			"%s is compiled only for the faults, and names no part: //part:NAME", path)
		check.That(t, strings.HasSuffix(path, "_faults_test.go") == strings.HasPrefix(text, "//go:build faults\n"),
			"%s: the name of a file with the build tag faults ends in _faults_test.go, and of no other", path)
		return nil
	}))
}

func TestAPartThatIsNotThereIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, part string) {
		text := "//part:" + part + "\n\npackage a\n\nfunc TestA(t *testing.T) {}\n"
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("a_test.go", "locks")
	locks := check.Value(faults(dir, []string{"locks"}))(t)
	check.Equal(t, "the part locks", fmt.Sprint(len(locks), locks[0].tests, locks[0].packages), "1 [TestA] [./.]")
	check.That(t, check.ErrorOf(faults(dir, []string{"lock"})) != nil, "a part that does not exist is run")
	write("b_test.go", "lock")
	err := check.ErrorOf(faults(dir, nil))
	check.That(t, err != nil && strings.Contains(err.Error(), `"lock"`), "a part that does not exist: %v", err)
}

// Every commit runs one part, and every part has its turn.
func TestEveryPartHasItsTurn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for n := range 1000 {
		var said strings.Builder
		show(&said, []string{"parts", strings.Repeat("a", n)})
		seen[strings.TrimSpace(said.String())] = true
	}
	for _, p := range parts() {
		check.Equal(t, p.name, seen[p.name], true)
	}
}

// A failing test is repeated with its chance. So is a package that panics, does not build, or leaves goroutines.
func TestAFailureSaysHowToRunItAgain(t *testing.T) {
	t.Parallel()
	said := filepath.Join(t.TempDir(), "said.json")
	check.Must(t, os.WriteFile(said, []byte(`
		{"Action":"output","Package":"seckill/lock","Output":"-test.shuffle 42\n"}
		{"Action":"output","Package":"seckill/lock","Test":"TestA/b","Output":"    a_test.go:1: SEED=7\n"}
		{"Action":"fail","Package":"seckill/lock","Test":"TestA/b"}
		{"Action":"fail","Package":"seckill/lock","Test":"TestA"}
		{"Action":"pass","Package":"seckill/lock","Test":"TestC"}
		{"Action":"fail","Package":"seckill/lock"}
		{"Action":"build-output","ImportPath":"seckill/queue [seckill/queue.test]","Output":"queue/a.go:1: undefined: x\n"}
		{"Action":"build-fail","ImportPath":"seckill/queue [seckill/queue.test]"}
		{"Action":"fail","Package":"seckill/queue","FailedBuild":"seckill/queue [seckill/queue.test]"}
	`), 0o600))
	var o outcome
	check.Must(t, o.read(said, run{tags: "faults", environ: []string{"TESTSERVER_DATABASE="}}))
	check.Equal(t, "tests that passed", o.passed, 1)
	check.Equal(t, "commands", strings.Join(o.again, ""), "again: TESTSERVER_DATABASE= SEED=7 "+
		"make test PKG=./lock ARGS='-tags=faults -run=^TestA$$ -shuffle=42'\n"+
		"again: TESTSERVER_DATABASE= make test PKG=./queue ARGS='-tags=faults'\n")
}
