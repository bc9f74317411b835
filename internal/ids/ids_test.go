package ids

import (
	"strings"
	"testing"
)

func TestIdsAreNewAndSort(t *testing.T) {
	t.Parallel()
	last := ""
	for range 10_000 {
		id, err := New()
		if err != nil || strings.Trim(id, "0123456789abcdefghijklmnopqrstuv") != "" || len(id) != 26 || id <= last {
			t.Fatalf("%q after %q, %v", id, last, err)
		}
		last = id
	}
}
