//go:build faults

//part:packaging

package deployments

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// Each module of the tree builds with the requirements that it states, states those and no others, and its tests pass. `make modules`
// is this test. A change of the service's go.mod changes what the modules beside it need.
func TestEveryModule(t *testing.T) {
	t.Parallel()
	var modules []string
	check.Must(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains([]string{".git", "bin", "node_modules"}, entry.Name()) {
			return fs.SkipDir
		}
		if entry.Name() == "go.mod" {
			modules = append(modules, filepath.Dir(path))
		}
		return err
	}))
	check.That(t, len(modules) >= 6, "there are modules in %q alone", modules)
	for _, module := range modules {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			commands := []string{"mod tidy -diff", "build -o /dev/null ./..."}
			switch filepath.Base(module) {
			case "..", "promtool": // the tests of the service are `make test`; the other one has no package, only a tool
			case "bench": // its test is a measurement, `make bench-lock`
				commands = append(commands, "test -run=^$ ./...")
			default:
				commands = append(commands, "test ./...")
			}
			for _, command := range commands {
				cmd := exec.CommandContext(t.Context(), "go", strings.Fields(command)...)
				cmd.Dir = module
				cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("go %s: %v\n%s", command, err, out)
				}
			}
		})
	}
}
