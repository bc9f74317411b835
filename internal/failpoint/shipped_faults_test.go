//go:build faults

//part:kills

package failpoint_test

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// The shipped program has none of the names. The tests' program has them, or the search would find nothing anywhere.
func TestShippedProgramHoldsNothingOfIt(t *testing.T) {
	t.Parallel()
	words := []string{obeyed}
	words = slices.AppendSeq(words, maps.Values(steps(t)))
	holds := func(program string) map[string]bool {
		binary := check.Value(os.ReadFile(program))(t)
		found := map[string]bool{}
		for _, word := range words {
			found[word] = bytes.Contains(binary, []byte(word))
		}
		return found
	}
	shipped, tested := holds(testserver.Program(t)), holds(testserver.Program(t, "failpoint"))
	for _, word := range words {
		check.That(t, !shipped[word], "the shipped program holds %q", word)
		check.That(t, tested[word], "the program of the tests does not hold %q", word)
	}
}
