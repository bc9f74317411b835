//go:build faults

//part:locks

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// The laboratory as a person runs it, each row with its own servers, and a page. Nothing of it is left.
func TestProgram(t *testing.T) {
	testserver.Redis(t) // the servers of tests have their directory from now on
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	var stdout, stderr bytes.Buffer
	page := filepath.Join(t.TempDir(), "lab.html")
	code := command(check.Context(t), []string{"-workers", "2", "-html", page}, &stdout, &stderr)
	check.Equal(t, "the exit code: "+stderr.String(), code, 0)
	html := string(check.Value(os.ReadFile(page))(t))
	for _, want := range []string{"local mutex, 2 processes", "broken as expected", "redis hash", "correct"} {
		check.That(t, strings.Contains(stdout.String(), want), "the table lacks %q:\n%s", want, stdout.String())
		check.That(t, strings.Contains(html, want), "the page lacks %q", want)
	}
	check.That(t, strings.Contains(html, "B did not get the lock"), "the page does not tell what happened")
	// The claims of ports (seckill-ports) may stay.
	left := check.Value(filepath.Glob(filepath.Join(temporary, "[^s]*")))(t)
	check.That(t, len(left) == 0, "it has left %v behind", left)
}
