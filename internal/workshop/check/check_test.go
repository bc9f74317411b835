package check_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"seckill/internal/workshop/check"
)

// witness is a test that notes what is said of it, and ends as a real one does.
type witness struct {
	testing.TB
	failed string
}

func (w *witness) Helper()                           {}
func (w *witness) Fatal(args ...any)                 { w.Fatalf("%s", fmt.Sprint(args...)) }
func (w *witness) Errorf(format string, args ...any) { w.failed = fmt.Sprintf(format, args...) }

func (w *witness) Fatalf(format string, args ...any) {
	w.Errorf(format, args...)
	runtime.Goexit()
}

func said(assert func(t testing.TB)) string {
	w := &witness{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert(w)
	}()
	<-done
	return w.failed
}

// Each assertion fails for what it is there for, and only for that.
func TestAssertionsFail(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	for name, c := range map[string]struct {
		right, wrong func(t testing.TB)
		want         string
	}{
		"Must":  {func(t testing.TB) { check.Must(t, nil) }, func(t testing.TB) { check.Must(t, odd) }, "odd"},
		"Value": {func(t testing.TB) { check.Value(1, nil)(t) }, func(t testing.TB) { check.Value(1, odd)(t) }, "odd"},
		"Equal": {func(t testing.TB) { check.Equal(t, "n", 1, 1) }, func(t testing.TB) { check.Equal(t, "n", 1, 2) }, "n: 1, want 2"},
		"Is": {
			func(t testing.TB) { check.Is(t, "it", fmt.Errorf("as usual: %w", odd), odd) },
			func(t testing.TB) { check.Is(t, "it", nil, odd) }, "it: error <nil>, want odd",
		},
		"Eventually": {
			func(t testing.TB) { n := 0; check.Eventually(t, "it", func() bool { n++; return n == 3 }) },
			func(t testing.TB) { check.Eventually(t, "it", func() bool { return false }) }, "it never happened: it",
		},
		"Receive": {
			func(t testing.TB) { ready := make(chan int, 1); ready <- 1; check.Receive(t, "it", ready) },
			func(t testing.TB) { check.Receive(t, "it", make(chan int)) }, "it never came: it",
		},
		"Stays": {
			func(t testing.TB) { check.Stays(t, "it", func() bool { return true }) },
			func(t testing.TB) { n := 0; check.Stays(t, "it", func() bool { n++; return n < 3 }) },
			"it did not stay so: it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // the common deadline passes at once
				check.Equal(t, "said of what is right", said(c.right), "")
				check.Equal(t, "said of what is wrong", said(c.wrong), c.want)
			})
		})
	}
}

func TestTheVariableSaysHowMuch(t *testing.T) {
	usual := map[bool]int{false: 3, true: 300}[check.Faults]
	check.Equal(t, "usual", check.Count(t, "CHECK_ROUNDS", 3, 300), usual)
	t.Setenv("CHECK_ROUNDS", "7")
	check.Equal(t, "said", check.Count(t, "CHECK_ROUNDS", 3, 300), 7)
	t.Setenv("CHECK_ROUNDS", "none")
	check.Equal(t, "nonsense", said(func(t testing.TB) { check.Count(t, "CHECK_ROUNDS", 3, 300) }),
		"CHECK_ROUNDS=none is no positive number")
	t.Setenv("SEED", "9")
	check.Equal(t, "chance", check.Seeded(t).Int64(), check.Seeded(t).Int64())
}
