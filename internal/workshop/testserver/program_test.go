package testserver

import (
	"os"
	"path/filepath"
	"testing"

	"seckill/internal/workshop/check"
)

// The program that one test binary of a run has built is not built again by another one.
func TestARunBuildsAProgramOnce(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	built := filepath.Join(shared, "tags-of a test", "seckill")
	check.Must(t, os.MkdirAll(filepath.Dir(built), 0o700))
	check.Must(t, os.WriteFile(built, []byte("built by another test binary"), 0o600))
	check.Equal(t, "the program", check.Value(build(shared, "of a test"))(t), built)
	check.Equal(t, "what it holds", string(check.Value(os.ReadFile(built))(t)), "built by another test binary")
}
