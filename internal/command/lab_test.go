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
	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
)

func TestLabUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--workers 1":            "2 to 512 workers",
		"--workers 0":            "--workers",
		"--operations -1":        "operations a worker",
		"--duration 2h":          "duration",
		"--think 1m":             "think time",
		"--redis redis://a,b://": "one Redis URL or 3",
		"--seed yes":             "seed",
		"rats":                   `"rats"`,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			got := call(t, nil, "", append([]string{"lab"}, strings.Fields(args)...)...)
			if got.code != exitUsage || !strings.Contains(got.stderr, want) || got.stdout != "" {
				t.Errorf("%+v, want exit 2 and %q", got, want)
			}
		})
	}
}

func TestLabVerdict(t *testing.T) {
	t.Parallel()
	fine := []lab.Row{{Verdict: lab.VerdictBroken}, {Verdict: lab.VerdictCorrect}, {Verdict: lab.VerdictNeedsMySQL}}
	check.Must(t, labVerdict(lab.Report{Rows: fine}))
	for _, verdict := range []lab.Verdict{lab.VerdictDefect, lab.VerdictHidden, lab.VerdictFailed} {
		err := labVerdict(lab.Report{Rows: append([]lab.Row{{Name: "odd", Verdict: verdict}}, fine...)})
		if err == nil || !strings.Contains(err.Error(), "odd: "+string(verdict)) {
			t.Errorf("%s: %v, want an error that names the row", verdict, err)
		}
	}
}

// TestLab runs the laboratory as a person does: its children are the program itself.
func TestLab(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), testserver.Program(t), "lab", "--workers", "2", "--operations", "2")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	for _, want := range []string{"local mutex, 2 processes", "broken as expected", "redis hash", "correct", "needs MySQL: --dsn"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, stdout.String())
		}
	}
	if !strings.Contains(stderr.String(), "19/19") {
		t.Errorf("the progress is %q", stderr.String())
	}
}

func TestLabInterrupted(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	stderr := &watched{more: make(chan struct{}, 1)}
	cmd := exec.CommandContext(t.Context(), testserver.Program(t), "lab", "--redis", server.URL())
	cmd.Stderr = stderr
	check.Must(t, cmd.Start())
	for !strings.Contains(stderr.String(), "3/19") {
		<-stderr.more
	}
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
