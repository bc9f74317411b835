//go:build mutants

package mutants

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

var (
	unbuilt = regexp.MustCompile(`(?m)^FAIL\t\S+ \[(build|setup) failed\]$`)
	failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+) `)
)

// TestDefectsAreNoticed tries each defect, or those that ONLY names: tests of its packages have to be red with it.
// The tree stays whole: go test, and by GOFLAGS what tests build, read the changed file in an overlay (go help build).
func TestDefectsAreNoticed(t *testing.T) { //nolint:paralleltest // one defect at a time
	only := strings.FieldsFunc(os.Getenv("ONLY"), func(r rune) bool { return r == ',' || r == ' ' })
	mutants := slices.DeleteFunc(read(t), func(m mutant) bool { return len(only) > 0 && !slices.Contains(only, m.ID) })
	check.Need(t, len(mutants) >= max(len(only), 1), "some of %q is no defect", only)
	t.Run("control", func(t *testing.T) { // tests that are red without any defect prove nothing
		var packages []string
		for _, m := range mutants {
			packages = append(packages, m.Packages...)
		}
		slices.Sort(packages)
		for _, dir := range slices.Compact(packages) {
			check.That(t, !red(t, dir, ""), "%s is red without any defect", dir)
		}
	})
	check.Need(t, !t.Failed(), "no defect was tried")
	for _, m := range mutants {
		t.Run(m.ID, func(t *testing.T) {
			t.Log(m.What)
			overlay := check.Value(m.Write(check.Value(filepath.Abs(root))(t), t.TempDir()))(t)
			noticed := slices.ContainsFunc(m.Packages, func(dir string) bool { return red(t, dir, overlay) })
			check.That(t, noticed, "the defect SURVIVED")
		})
	}
}

// red runs the tests of a package and reports whether some fail. What they say is in bin/mutants.
func red(t *testing.T, dir, overlay string) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-failfast", "-vet=off", "-trimpath", "-ldflags=-w",
		"-timeout=10m", "./"+dir)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the program is released, and linked in half the time
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	said, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		check.Must(t, err)
	}
	kept := filepath.Join(root, "bin", "mutants", strings.ReplaceAll(t.Name()+"/"+dir, "/", "-")+".txt")
	check.Must(t, errors.Join(os.MkdirAll(filepath.Dir(kept), 0o750), os.WriteFile(kept, said, 0o600)))
	check.Need(t, !unbuilt.Match(said), "%s does not build with it:\n%s", dir, said)
	for _, match := range failure.FindAllSubmatch(said, -1) {
		t.Logf("noticed by %s", match[1])
	}
	return err != nil
}
