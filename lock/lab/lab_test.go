package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func TestMain(m *testing.M) {
	if os.Args[len(os.Args)-1] == childCommand { // this test binary, started again, is a child process of the lab
		os.Exit(command(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	testserver.Main(m)
}

func spawnSelf(ctx context.Context) *exec.Cmd {
	return exec.CommandContext(ctx, os.Args[0], childCommand)
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
