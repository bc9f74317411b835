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
	code := command(check.Context(t), []string{"-workers", "2", "-real", "-html", page}, &stdout, &stderr)
	check.Equal(t, "the exit code: "+stderr.String(), code, 0)
	html := string(check.Value(os.ReadFile(page))(t))
	for _, want := range []string{"local mutex, 2 processes", "broken as expected", "redis hash", "correct"} {
		check.That(t, strings.Contains(stdout.String(), want), "the table lacks %q:\n%s", want, stdout.String())
		check.That(t, strings.Contains(html, want), "the page lacks %q", want)
	}
	check.That(t, strings.Contains(html, `class="twice"`), "the page shows no two holders at once")
	// The claims of ports (seckill-ports) may stay.
	left := check.Value(filepath.Glob(filepath.Join(temporary, "[^s]*")))(t)
	check.That(t, len(left) == 0, "it has left %v behind", left)
}

// Each promotion gives a lock two holders, also when the primary lives on; the cures never. ROUNDS sets how often.
func TestPromotedRows(t *testing.T) {
	t.Parallel()
	dsn := testserver.Schema(t)
	for _, s := range onReplicas() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			var together [2]int // by attack
			rounds := check.Count(t, "ROUNDS", 1, 2)
			for range rounds {
				row := shown(t, dsn, s.Name)
				check.That(t, row.OK(), "%s: %v %+v", row.Verdict, row.Err, row.Attacks)
				for i, a := range row.Attacks {
					together[i] += min(int(a.Together()), 1)
				}
			}
			t.Logf("%s: of %d rounds %d had two holders after a promotion, and %d in a split brain", s.Name, rounds,
				together[0], together[1])
			want := 0
			if s.broken() {
				want = rounds
			}
			check.Equal(t, "rounds with two holders", together, [2]int{want, want})
		})
	}
}
