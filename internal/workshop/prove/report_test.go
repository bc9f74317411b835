package main

import (
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// told is what the report says of the lines of go test.
func told(t *testing.T, tags string, lines ...string) (string, error) {
	t.Helper()
	t.Chdir(t.TempDir()) // it keeps the outputs below the directory that it runs in
	var screen strings.Builder
	r := newReport(&screen, tags)
	for _, line := range lines {
		r.read([]byte(line + "\n"))
	}
	err := r.close()
	return screen.String(), err
}

func TestAFailureSaysHowToRunItAgain(t *testing.T) { //nolint:paralleltest // each has a working directory of its own
	said, err := told(
		t, "faults",
		`{"Action":"output","Package":"seckill/lock","Output":"-test.shuffle 42\n"}`,
		`{"Action":"output","Package":"seckill/lock","Test":"TestA/b","Output":"    a_test.go:1: SEED=7\n"}`,
		`{"Action":"output","Package":"seckill/lock","Test":"TestA/b","Output":"    a_test.go:2: two holders\n"}`,
		`{"Action":"fail","Package":"seckill/lock","Test":"TestA/b","Elapsed":1.5}`,
		`{"Action":"output","Package":"seckill/lock","Test":"TestA","Output":"--- FAIL: TestA (1.50s)\n"}`,
		`{"Action":"fail","Package":"seckill/lock","Test":"TestA","Elapsed":1.5}`,
		`{"Action":"pass","Package":"seckill/lock","Test":"TestC"}`,
		`{"Action":"fail","Package":"seckill/lock","Elapsed":2}`,
	)
	check.Is(t, "verdict", err, errRed)
	for _, want := range []string{
		"FAIL\tseckill/lock\t2.0s\tbin/tests/lock.log\n",
		"FAILED seckill/lock TestA/b (1.5 s)\n    a_test.go:2: two holders\n",
		"again:  SEED=7 make test PKG=./lock ARGS='-tags=faults -run=^TestA$$ -shuffle=42'\n",
		"\n1 passed, 1 failed\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the report lacks %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "TestA (") {
		t.Errorf("the parent of a failed test is named too:\n%s", said)
	}
}

// The detector blames every test that runs when it finds a race. The one with the trace is told of.
func TestARaceIsToldOfOnce(t *testing.T) { //nolint:paralleltest // each has a working directory of its own
	said, err := told(
		t, "",
		`{"Action":"output","Package":"seckill/lock","Test":"TestA","Output":"WARNING: DATA RACE\n"}`,
		`{"Action":"output","Package":"seckill/lock","Test":"TestA","Output":"    testing.go:1712: race detected during execution of test\n"}`,
		`{"Action":"fail","Package":"seckill/lock","Test":"TestA"}`,
		`{"Action":"output","Package":"seckill/lock","Test":"TestB","Output":"    testing.go:1712: race detected during execution of test\n"}`,
		`{"Action":"fail","Package":"seckill/lock","Test":"TestB"}`,
		`{"Action":"fail","Package":"seckill/lock","Elapsed":2}`,
	)
	check.Is(t, "verdict", err, errRed)
	check.Equal(t, "tests that are told of", strings.Count(said, "FAILED "), 1)
	for _, want := range []string{"FAILED seckill/lock TestA", "while these ran, which they need not have to do with: TestB\n", "0 passed, 2 failed\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("the report lacks %q:\n%s", want, said)
		}
	}
}

// A package may fail beside its tests: it hangs, it panics, it does not build, or it leaves goroutines.
func TestAPackageThatFailsBesideItsTests(t *testing.T) { //nolint:paralleltest // each has a working directory of its own
	for name, lines := range map[string][]string{
		"panic: test timed out after 20m0s": {
			`{"Action":"output","Package":"seckill/lock","Test":"TestHangs","Output":"panic: test timed out after 20m0s\n"}`,
			`{"Action":"fail","Package":"seckill/lock","Elapsed":2}`,
		},
		"goroutines are left over": {
			`{"Action":"pass","Package":"seckill/lock","Test":"TestA"}`,
			`{"Action":"output","Package":"seckill/lock","Output":"testserver: goroutines are left over: 1\n"}`,
			`{"Action":"fail","Package":"seckill/lock","Elapsed":2}`,
		},
		"undefined: x": {
			`{"Action":"build-output","ImportPath":"seckill/lock [seckill/lock.test]","Output":"lock/a.go:1: undefined: x\n"}`,
			`{"Action":"build-fail","ImportPath":"seckill/lock [seckill/lock.test]"}`,
			`{"Action":"fail","Package":"seckill/lock","Elapsed":0}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			said, err := told(t, "", lines...)
			check.Is(t, "verdict", err, errRed)
			if !strings.Contains(said, name) || !strings.Contains(said, "make test PKG=./lock") {
				t.Errorf("the report does not say %q, or how to run it again:\n%s", name, said)
			}
		})
	}
}

func TestALongFailureIsCut(t *testing.T) { //nolint:paralleltest // each has a working directory of its own
	lines := make([]string, 0, 3000)
	for range cap(lines) - 2 {
		lines = append(lines, `{"Action":"output","Package":"seckill/lock","Test":"TestA","Output":"goroutine\n"}`)
	}
	said, _ := told(t, "", append(lines, `{"Action":"fail","Package":"seckill/lock","Test":"TestA"}`, `{"Action":"fail","Package":"seckill/lock"}`)...)
	if shown := strings.Count(said, "\n"); shown > excerpt+10 {
		t.Errorf("a failure takes %d lines", shown)
	}
}

func TestNoTestIsNoProof(t *testing.T) { //nolint:paralleltest // each has a working directory of its own
	if _, err := told(t, "", `{"Action":"pass","Package":"seckill/lock"}`); err == nil {
		t.Error("a run without a test is green")
	}
}
