package main

import (
	"bytes"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// TestUsage: what makes no sense is refused with exit code 2, and no password is repeated.
func TestUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-workers 1": "2 to 512 workers", "-workers 0": "greater than 0", "-operations -1": "operations a worker", "-duration 2h": "duration",
		"-think 1m": "think time", "-redis redis://:hunter2@a,b://": "one Redis URL or 3", "-seed yes": "seed", "rats": "no arguments",
	} {
		var stdout, stderr bytes.Buffer
		code := command(t.Context(), strings.Fields(args), strings.NewReader(""), &stdout, &stderr)
		said := stderr.String()
		if code != exitUsage || !strings.Contains(said, want) || stdout.Len() > 0 || strings.Contains(said, "hunter2") {
			t.Errorf("%s: exit %d, %q, want exit 2 and %q", args, code, said, want)
		}
	}
}

func TestVerdictOfAReport(t *testing.T) {
	t.Parallel()
	fine := []Row{{Verdict: VerdictBroken}, {Verdict: VerdictCorrect}, {Verdict: VerdictNeedsMySQL}}
	check.Must(t, Report{Rows: fine}.verdict())
	for _, verdict := range []Verdict{VerdictDefect, VerdictHidden, VerdictFailed} {
		err := Report{Rows: append([]Row{{Name: "odd", Verdict: verdict}}, fine...)}.verdict()
		if err == nil || !strings.Contains(err.Error(), "odd: "+string(verdict)) {
			t.Errorf("%s: %v, want an error that names the row", verdict, err)
		}
	}
}
