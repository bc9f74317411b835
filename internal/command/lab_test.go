package command

import (
	"strings"
	"testing"

	"seckill/internal/lab"
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
