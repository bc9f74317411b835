package servicetest

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// Bubble runs a subtest beside the others, on a clock of its own.
func Bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

// Pass lets time pass on the clock of a bubble, which goes as fast as the test does.
func Pass(d time.Duration) {
	inBubble()
	<-time.After(d)
}

// Lasting is a context that ends with the test, or after so long on the clock of a bubble.
func Lasting(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	inBubble()
	ctx, end := context.WithTimeout(t.Context(), d)
	t.Cleanup(end)
	return ctx
}

// InTime checks that something which began then took no longer than that, on the clock of a bubble. No machine is too
// slow for it: the clock stands while anything computes.
func InTime(t *testing.T, what string, began time.Time, most time.Duration) {
	t.Helper()
	Took(t, what, began, 0, most)
}

// TookJust is InTime for what takes a certain time, and no less.
func TookJust(t *testing.T, what string, began time.Time, want time.Duration) {
	t.Helper()
	Took(t, what, began, want, want)
}

// Took is InTime for what also takes a while.
func Took(t *testing.T, what string, began time.Time, least, most time.Duration) {
	t.Helper()
	inBubble()
	if took := time.Since(began); took < least || took > most {
		t.Errorf("%s: after %v, want %v to %v", what, took, least, most)
	}
}

// inBubble stops a test that would measure the machine. The clock of a bubble begins in the year 2000.
func inBubble() {
	const latest = 2020
	if time.Now().Year() > latest {
		panic("this is no bubble of synctest: the test would wait for the machine's clock, or measure it")
	}
}

// WantCode checks that an error has a code.
func WantCode(t *testing.T, err error, want model.Code) {
	t.Helper()
	if err == nil || model.CodeOf(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Hears checks what somebody is answered: an error with a code, or none where the code is empty.
func Hears(t *testing.T, who string, err error, want model.Code) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && model.CodeOf(err) != want {
		t.Errorf("%s: error %v, want %q", who, err, want)
	}
}

// Counted is the value of a counter, over all its labels.
func Counted(t *testing.T, metrics *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			sum := 0.0
			for _, metric := range family.GetMetric() {
				sum += metric.GetCounter().GetValue()
			}
			return sum
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// Main is testserver.Main on one processor where races are looked for.
//
// The race detector sometimes dies when many timers of a bubble of synctest fire on several processors at once, see
// https://go.dev/issue/78156. On one processor it sees races all the same, because it goes by what happens before what.
func Main(m *testing.M) {
	if raceDetector {
		runtime.GOMAXPROCS(1)
	}
	testserver.Main(m)
}
