package check

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Count is how much a test does: little in `make test`, more in `make faults` (build tag faults), and as much as the
// environment variable of that name says, where it is set.
func Count(t testing.TB, variable string, short, long int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		if Faults {
			return long
		}
		return short
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s is no positive number", variable, text)
	}
	return n
}

// Seeded is the chance of a test. The variable SEED repeats it; a test that fails says which one it had.
func Seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := Count(t, "SEED", int(rand.Int32())+1, int(rand.Int32())+1)
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(uint64(seed), uint64(seed)))
}
