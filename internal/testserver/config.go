package testserver

import (
	"fmt"
	"os"
	"path/filepath"
)

// stderr reports for servers that outlive the test which started them.
type stderr struct{}

func (stderr) Helper() {}

func (stderr) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// configFile is the path of a file in deployments/. A test runs in the directory of its package, so the
// module's root is above; the path is looked up there and not at compile time, so that -trimpath works.
func configFile(name string) string {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	// A wrong path fails at the server's start, which names the file.
	return filepath.Join(dir, "deployments", name)
}
