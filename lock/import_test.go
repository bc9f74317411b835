package lock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// TestAnotherModuleImportsIt as README.md says: no go get reaches a module whose path has no dot, so its directory is
// named, by a replace or in a workspace.
func TestAnotherModuleImportsIt(t *testing.T) {
	t.Parallel()
	const program = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

func main() {
	ctx := context.Background()
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		panic(err)
	}
	locks := lock.New(lock.NewRedisStore(redis.NewClient(options)))
	lease, err := locks.Mutex(os.Args[2]).Lock(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Print("held: ", lease.Context().Err() == nil, ", given back: ", lease.Unlock() == nil, ", closed: ", locks.Close(ctx) == nil)
}
`
	module := check.Value(filepath.Abs(".."))(t)
	guide := string(check.Value(os.ReadFile("README.md"))(t))
	for way, commands := range map[string]string{
		"a replace":   "go mod edit -replace=seckill=../seckill && go get seckill/lock",
		"a workspace": "go work init . ../seckill",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(guide, "\n"+commands) {
				t.Errorf("README.md does not say %q", commands)
			}
			dir := t.TempDir()
			check.Must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
			run := func(script string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "bash", "-euc", script, "bash", testserver.SharedRedis(t), nameOf(t))
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=", "GONOSUMDB=*") // go.sum of this module vouches for them
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", script, err, out)
				}
				return string(out)
			}
			run("go mod init example.com/shop && " + strings.ReplaceAll(commands, "../seckill", module))
			run("go build -o shop .")
			check.Equal(t, "what the program says", run(`./shop "$1" "$2"`), "held: true, given back: true, closed: true")
		})
	}
}
