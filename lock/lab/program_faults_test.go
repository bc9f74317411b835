//go:build faults

//part:locks

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// TestProgram runs the laboratory as a person does: with a MariaDB of its own, and a page.
func TestProgram(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	page := filepath.Join(t.TempDir(), "lab.html")
	code := command(check.Context(t), []string{"-workers", "2", "-operations", "2", "-html", page}, strings.NewReader(""), &stdout, &stderr)
	check.Equal(t, "the exit code: "+stderr.String(), code, 0)
	html := string(check.Value(os.ReadFile(page))(t))
	for _, want := range []string{"local mutex, 2 processes", "broken as expected", "redis hash", "correct"} {
		check.That(t, strings.Contains(stdout.String(), want), "the table lacks %q:\n%s", want, stdout.String())
		check.That(t, strings.Contains(html, want), "the page lacks %q", want)
	}
	check.That(t, strings.Contains(html, `class="twice"`), "the page shows no two holders at once")
	check.That(t, !strings.Contains(stdout.String(), string(VerdictNeedsMySQL)), "it started no MariaDB of its own")
}

func TestProgramInterrupted(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	ctx, interrupt := context.WithCancel(check.Context(t))
	stderr := &interrupting{at: " 3/", interrupt: interrupt}
	code := command(ctx, []string{"-redis", server.URL()}, strings.NewReader(""), &bytes.Buffer{}, stderr)
	check.That(t, code == exitError && strings.Contains(stderr.String(), "interrupted"), "exit %d, stderr %q", code, stderr.String())
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	check.Equal(t, "keys left behind", len(check.Value(client.Keys(context.Background(), "*").Result())(t)), 0)
}

// interrupting interrupts when a text is written.
type interrupting struct {
	bytes.Buffer

	at        string
	interrupt func()
}

func (w *interrupting) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.at)) {
		w.interrupt()
	}
	return w.Buffer.Write(b)
}
