//go:build faults

//part:locks

package command

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/lab"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// TestLab runs the laboratory as a person does: its children are the program itself.
func TestLab(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(check.Context(t), testserver.Program(t), "lab", "--workers", "2", "--operations", "2")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	for _, want := range []string{"local mutex, 2 processes", "broken as expected", "redis hash", "correct", "Optimistic against pessimistic"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, stdout.String())
		}
	}
	if strings.Contains(stdout.String(), string(lab.VerdictNeedsMySQL)) {
		t.Error("it started no MariaDB of its own")
	}
	if !strings.Contains(stderr.String(), "30/30") {
		t.Errorf("the progress is %q", stderr.String())
	}
}

func TestLabInterrupted(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	stderr := &check.Log{}
	cmd := exec.CommandContext(t.Context(), testserver.Program(t), "lab", "--redis", server.URL())
	cmd.Stderr = stderr
	check.Must(t, cmd.Start())
	check.Eventually(t, "three rows are done", func() bool { return stderr.Has("3/30") })
	check.Must(t, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitError || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("exit %d, stderr %q", code, stderr.String())
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if keys, err := client.Keys(context.Background(), "*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("left behind: %q, %v", keys, err)
	}
}
