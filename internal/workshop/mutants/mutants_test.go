// Package mutants shows that the tests notice defects: it puts each small defect of mutants.json into the product and
// runs the tests of the packages that should notice (`make mutants`, in TestDefectsAreNoticed).
package mutants

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/overlay"
)

//go:embed mutants.json
var list []byte

const root = "../../.."

type mutant struct {
	overlay.Change

	ID       string   `json:"id"`
	What     string   `json:"what"`
	Packages []string `json:"packages"` // whose tests should notice it
}

func read(t *testing.T) (mutants []mutant) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(list))
	decoder.DisallowUnknownFields()
	check.Must(t, decoder.Decode(&mutants))
	return mutants
}

// TestEveryDefectFits keeps the list from rotting: each defect is a text that the product has, once.
func TestEveryDefectFits(t *testing.T) {
	t.Parallel()
	mutants, known := read(t), map[string]bool{}
	check.That(t, len(mutants) >= 50, "the list has %d defects", len(mutants))
	for _, m := range mutants {
		check.That(t, m.What != "" && m.ID != "" && !known[m.ID],
			"defect %q, %q: it needs an id of its own, and a description", m.ID, m.What)
		check.That(t, !strings.HasSuffix(m.File, "_test.go"), "defect %s is one of a test", m.ID)
		known[m.ID] = true
		err := check.ErrorOf(m.Text(root))
		check.That(t, err == nil, "defect %s (%s): %v", m.ID, m.What, err)
		check.That(t, len(m.Packages) > 0, "defect %s: no package is to notice it", m.ID)
		for _, dir := range m.Packages {
			tests := check.Value(filepath.Glob(filepath.Join(root, dir, "*_test.go")))(t)
			check.That(t, len(tests) > 0, "defect %s: %s has no tests", m.ID, dir)
		}
	}
}
