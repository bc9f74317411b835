package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

func TestCommandsAreCounted(t *testing.T) {
	t.Parallel()
	hello := "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"
	get := "*2\r\n$3\r\nGET\r\n$4\r\n*1\r\n\r\n" // an argument that looks like a command
	empty := "*2\r\n$3\r\nget\r\n$0\r\n\r\n"
	tests := []struct {
		name, sent string
		want       int64
	}{
		{"nothing", "", 0},
		{"one", get, 1},
		{"what opens a connection", hello, 0},
		{"an empty argument", empty, 1},
		{"a pipeline", hello + get + empty + get, 3},
		{"cut off", get + "*2\r\n$3\r\nG", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(test.sent)+1; size++ { // however it is cut
				var parser commandParser
				var got int64
				for piece := range slices.Chunk([]byte(test.sent), size) {
					got += parser.feed(piece)
				}
				if got != test.want {
					t.Fatalf("in pieces of %d: %d commands, want %d", size, got, test.want)
				}
			}
		})
	}
}

func TestJudgement(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		told  tally
		stock int64
		left  figures
		want  Finding
		clean bool
	}{
		{"all is well", tally{Requested: 3, Done: 3, Sold: 2}, 2, figures{3, 0}, Finding{Expected: 3, Actual: 3}, true},
		{"a lost update", tally{Requested: 2, Done: 2, Sold: 1}, 1, figures{1, 0}, Finding{Expected: 2, Actual: 1, Lost: 1}, false},
		{"oversold", tally{Requested: 2, Done: 2, Sold: 2}, 1, figures{2, 0}, Finding{Expected: 2, Actual: 2, Lost: 1, Oversold: 1}, false},
		{"a unit sold that is there still", tally{Requested: 1, Done: 1, Sold: 1}, 5, figures{1, 5}, Finding{Expected: 1, Actual: 1, Lost: 1}, false},
		{"stuck", tally{Requested: 2, Done: 1, Stuck: 1}, 0, figures{1, 0}, Finding{Expected: 2, Actual: 1, Deadlocked: true}, false},
		{"refused honestly", tally{Requested: 2, Done: 1, Refused: 1}, 0, figures{1, 0}, Finding{Expected: 1, Actual: 1}, true},
		{"refused where nobody may be", tally{Requested: 2, Done: 1, Refused: 1}, 0, figures{1, 0}, Finding{Expected: 2, Actual: 1}, false},
		{"sold out honestly", tally{Requested: 2, Done: 1, Sold: 1, SoldOut: 1}, 1, figures{1, 0}, Finding{Expected: 1, Actual: 1}, true},
		{"sold out too early", tally{Requested: 1, SoldOut: 1}, 1, figures{0, 1}, Finding{Unsold: 1}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := test.told.judge(test.stock, test.left, test.name == "refused honestly")
			if got != test.want || got.clean() != test.clean {
				t.Errorf("%+v, clean %t; want %+v, clean %t", got, got.clean(), test.want, test.clean)
			}
		})
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	var waits tally
	check.Equal(t, "the median of nothing", waits.quantile(0.5), 0)
	for i := range 100 {
		waits.Waits = append(waits.Waits, time.Duration(100-i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		check.Equal(t, fmt.Sprint("quantile ", q), waits.quantile(q), want)
	}
}

func TestThinkTimesRepeat(t *testing.T) {
	t.Parallel()
	for i, half := range (Load{Workers: 5, Seed: 7}).split() {
		if want := []int{3, 2}[i]; half.Workers != want || half.Process != uint64(i) {
			t.Errorf("process %d: %+v, want %d workers", i, half, want)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	think := Load{Think: time.Hour}.thinker()
	if err := think(ended, pointRead); !errors.Is(err, context.Canceled) {
		t.Errorf("thinking on after the end: %v", err)
	}
	if err := think(ended, pointHalf); err != nil {
		t.Errorf("thinking elsewhere: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Options)
		want   string
	}{
		"one worker":         {func(o *Options) { o.Workers = 1 }, "2 to 512 workers"},
		"no operation":       {func(o *Options) { o.Operations = -1 }, "operations a worker"},
		"too long":           {func(o *Options) { o.Duration = 2 * time.Hour }, "duration"},
		"thinking too long":  {func(o *Options) { o.Think = time.Minute }, "think time"},
		"two Redis":          {func(o *Options) { o.Redis = []string{"a", "b"} }, "one Redis URL or 3"},
		"no child processes": {func(o *Options) { o.Spawn = nil }, "child processes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Spawn: spawnSelf}
			test.change(&o)
			if err := o.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error that names %q", err, test.want)
			}
			if _, err := Run(t.Context(), o); err == nil {
				t.Error("the laboratory ran all the same")
			}
		})
	}
}

func TestSecretsAreNotRepeated(t *testing.T) {
	t.Parallel()
	tests := map[string]Options{
		"redis": {Redis: []string{"redis://user:hunter2@ho st:6379"}},
		"dsn":   {DSN: "user:hunter2@tcp(127.0.0.1:1/x"},
	}
	for name, o := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Spawn = spawnSelf
			if _, err := Run(t.Context(), o); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v, want an error without the password", err)
			}
		})
	}
}

func TestChildEndsWithItsParent(t *testing.T) {
	t.Parallel()
	for _, job := range []string{
		"",
		`{"strategy":"no lock","terms":{"site":{"redis":"redis://127.0.0.1:1/0"}},"load":{"workers":1}}` + "\n",
	} {
		err := RunChild(t.Context(), strings.NewReader(job), io.Discard)
		if !errors.Is(err, errParentGone) {
			t.Errorf("job %q ended with %v, want %v", job, err, errParentGone)
		}
	}
	for _, job := range []string{"nonsense\n", `{"strategy":"nothing"}` + "\n"} {
		if err := RunChild(t.Context(), strings.NewReader(job), io.Discard); err == nil || errors.Is(err, errParentGone) {
			t.Errorf("job %q ended with %v, want a complaint", job, err)
		}
	}
}

func TestChildThatDoesNotStart(t *testing.T) {
	t.Parallel()
	spawn := Spawn(func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, "/nowhere/seckill") })
	worker := newActor(t.Context(), "A", spawn.work(strategyNamed("no lock"), setup{}))
	if _, err := worker.finish(t.Context()); err == nil {
		t.Error("a worker without a process ended well")
	}
	worker = newActor(t.Context(), "A", spawn.work(strategyNamed("no lock"), setup{load: &Load{}}))
	if worker.to(t.Context(), certain, pointReady) {
		t.Error("a worker of a free run without a process is ready")
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	report := Report{Workers: 2, Operations: 3, Seed: 4, Took: time.Second, Rows: []Row{
		{
			Name: "rotten", Group: groupBroken, On: "redis", Broken: true, Why: "it is rotten", Cure: "fresh", Verdict: VerdictBroken,
			Finding: Finding{Expected: 7, Actual: 5, Lost: 2, Deadlocked: true}, Median: 1234567, Longest: 3 * time.Second,
		},
		{Name: "fresh", Group: groupLock, On: "redis", Verdict: VerdictDefect, Attacks: []Attack{{Name: "two at once"}}},
		{Name: "absent", Group: groupLock, On: "mysql", Verdict: VerdictNeedsMySQL},
		{Name: "gone", Group: groupLock, On: "mysql", Verdict: VerdictFailed, Err: errors.New("no such host")},
	}}
	var out bytes.Buffer
	check.Must(t, report.Write(&out))
	for _, want := range []string{
		"yes       0      1.23ms  0s   3s", "rotten                     it is rotten; right: fresh\n", "needs MySQL: --dsn",
		"fresh: DEFECT\n  two at once: expected 0", "gone: FAILED\n  no such host", "2 workers in two processes, up to 3 operations each, seed 4; 1s",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), " \n") {
		t.Error("lines end in blanks")
	}
	if err := report.Write(broken{}); err == nil {
		t.Error("a report that could not be written was")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }
