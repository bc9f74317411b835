package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// childRole makes this test binary, started again, a child process of the lab.
const childRole = "role=lab-child"

func TestMain(m *testing.M) {
	if os.Args[len(os.Args)-1] == childRole {
		if err := RunChild(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testserver.Main(m)
}

func spawnSelf(ctx context.Context) *exec.Cmd {
	return exec.CommandContext(ctx, os.Args[0], childRole)
}

// run runs a small laboratory.
func run(t *testing.T, o Options) Report {
	t.Helper()
	o.Spawn = spawnSelf
	o.Workers, o.Operations = 4, check.Count(t, "OPERATIONS", 4, 10)
	o.Duration = time.Minute // a loaded machine is no reason to do less
	report := check.Value(Run(t.Context(), o))(t)
	text := &strings.Builder{}
	check.Must(t, report.Write(text))
	t.Log("\n" + text.String())
	return report
}
