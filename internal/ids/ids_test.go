package ids

import (
	"encoding/base32"
	"testing"

	"github.com/google/uuid"
)

func TestEncodingIsBase32Hex(t *testing.T) {
	t.Parallel()
	want := base32.NewEncoding(digits).WithPadding(base32.NoPadding)
	all := []uuid.UUID{{}, uuid.Max}
	for range 1000 {
		all = append(all, uuid.New())
	}
	for _, id := range all {
		if got := encode(id); got != want.EncodeToString(id[:]) {
			t.Fatalf("%s is encoded as %q, want %q", id, got, want.EncodeToString(id[:]))
		}
	}
}

func TestIdsAreNewAndSort(t *testing.T) {
	t.Parallel()
	last := ""
	for range 10_000 {
		id, err := New()
		if err != nil || len(id) != length || id <= last {
			t.Fatalf("%q after %q, %v", id, last, err)
		}
		last = id
	}
}
