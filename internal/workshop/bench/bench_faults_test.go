//go:build faults

//part:packaging

package bench

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// secret signs the tokens of the benchmark.
const secret = "a secret of the benchmark, 32 bytes or more"

// harness is what `make bench` asks for, and what all sessions use.
type harness struct {
	rounds, vouchers, instances int
	lasts                       time.Duration // of each measurement
	connections                 []int         // to each instance
	open                        []float64     // rates of open loads, as a part of what the closed one reached
	cases                       []workCase
	builds                      []build // this checkout's last: benchstat compares with the first one it sees

	yardstick *testserver.Command
	address   string // of the yardstick
	authority *token.Authority
	tokens    []string
	client    *http.Client
}

// build is a program of the service.
type build struct{ name, program string }

// What the service costs, and that its accounts agree with what clients heard. `make bench` is the long form.
//
//nolint:paralleltest // what it measures is not for a machine that is busy with other tests
func TestBench(t *testing.T) {
	h := prepare(t)
	for round := range h.rounds {
		for i := range h.cases {
			c := h.cases[(i+round)%len(h.cases)] // another one is the first in every round
			for j := range h.builds {
				b := h.builds[(j+round)%len(h.builds)]
				t.Run(fmt.Sprintf("%s/%s/%d", c.name, b.name, round+1), func(t *testing.T) { h.round(t, c, b) })
			}
		}
	}
}

func prepare(t *testing.T) *harness {
	t.Helper()
	h := &harness{rounds: number(t, "ROUNDS", "1"), vouchers: number(t, "VOUCHERS", "1"), instances: number(t, "INSTANCES", "1")}
	h.lasts = time.Duration(number(t, "SECONDS", "1")) * time.Second
	for _, field := range words("CONNECTIONS", "32") {
		h.connections = append(h.connections, check.Value(strconv.Atoi(field))(t))
	}
	for _, field := range words("OPEN", "0.5") {
		h.open = append(h.open, check.Value(strconv.ParseFloat(field, 64))(t))
	}
	for _, name := range words("CASES", "async sold-out") {
		all := slices.DeleteFunc(cases(), func(c workCase) bool { return name != "all" && c.name != name })
		check.That(t, len(all) > 0, "there is no case %q", name)
		h.cases = append(h.cases, all...)
	}
	for _, path := range words("BINARY", "") {
		if !filepath.IsAbs(path) {
			path = check.Value(filepath.Abs(filepath.Join("../../..", path)))(t)
		}
		check.Value(os.Stat(path))(t)
		h.builds = append(h.builds, build{"other", path})
	}
	h.builds = append(h.builds, build{"this", testserver.Program(t)})
	h.authority, h.client = check.Value(remote.Authority(secret))(t), remote.Client(t, "", 16)
	const ordersASecond = 40_000 // more than are reached
	for n := range ordersASecond * max(1, int(h.lasts.Seconds())) {
		h.tokens = append(h.tokens, h.bearer(t, userName(n))+"\r\n\r\n")
	}
	program := filepath.Join(t.TempDir(), "yardstick")
	if said, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./yardstick").CombinedOutput(); err != nil {
		t.Fatalf("build the yardstick: %v\n%s", err, said)
	}
	h.address = testserver.Address(t)
	h.yardstick = testserver.Run(t, environ(), program, "-listen", h.address, "-secret", secret)
	check.Eventually(t, "the yardstick answers", func() bool {
		return (remote.Service{URL: "http://" + h.address, Client: h.client}).Status("/") != 0
	})
	return h
}

// words are those of a variable.
func words(variable, short string) []string {
	if value := os.Getenv("BENCH_" + variable); value != "" {
		short = value
	}
	return strings.Fields(short)
}

func number(t *testing.T, variable, short string) int {
	t.Helper()
	return check.Value(strconv.Atoi(strings.Join(words(variable, short), "")))(t)
}

// userName is one buyer's.
func userName(n int) string { return fmt.Sprintf("b%07d", n) }

func (h *harness) bearer(t testing.TB, user string) string {
	t.Helper()
	return check.Value(h.authority.Issue(token.Claims{Subject: user, Role: model.RoleUser}, 24*time.Hour))(t)
}

// openConnections are more than an open load needs while the service answers within its budgets.
const openConnections = 512

// round measures a case of a build once: on each number of connections, and under the open loads.
func (h *harness) round(t *testing.T, c workCase, b build) {
	t.Helper()
	s := h.begin(t, c, b.program)
	w := c.prepare(s)
	s.load(w, h.connections[0], 0, time.Second).run(t) // everything is warm
	point := func(name string, connections, rate int) (reached float64) {
		if c.sells {
			w = c.prepare(s)
		}
		s.drained()
		before := h.yardsticks(t, connections)
		f, err := s.measure(w, s.load(w, connections, rate, h.lasts))
		if err != nil {
			t.Errorf("%s, %s: %v", c.name, name, err)
			return 0
		}
		after := h.yardsticks(t, connections)
		f["yardstick-µs/op"] = (before["µs"] + after["µs"]) / 2
		f["yardsticks/op"] = f["all-µs/op"] / f["yardstick-µs/op"]
		if rate == 0 {
			f["of-yardstick"] = 2 * f["answers/s"] / (before["rate"] + after["rate"])
		}
		write(fmt.Sprintf("BenchmarkRequest/case=%s/load=%s/build=%s", c.name, name, b.name), f)
		return f["answers/s"]
	}
	for i, connections := range h.connections {
		reached := point(strconv.Itoa(connections), connections, 0)
		for _, part := range h.open {
			if i == 0 && c.sells && reached > 0 {
				point(fmt.Sprintf("open-%v", part), openConnections, int(part*reached))
			}
		}
	}
	s.audit()
}

// yardsticks asks the yardstick as a case is asked.
func (h *harness) yardsticks(t *testing.T, connections int) map[string]float64 {
	t.Helper()
	w := work{heads: purchases("00000000"), ends: h.tokens}
	before := testserver.CPU(t, h.yardstick.PID())
	told := load{addresses: []string{h.address}, connections: connections, lasts: h.lasts / 3, request: w.request}.run(t)
	if len(told.good) == 0 || len(told.refused)+told.broken > 0 {
		t.Fatalf("the yardstick: %d good answers, %d refused, %d broken", len(told.good), len(told.refused), told.broken)
	}
	cpu := testserver.CPU(t, h.yardstick.PID()) - before
	return map[string]float64{"rate": told.rate(), "µs": float64(cpu.Microseconds()) / float64(len(told.good))}
}

// write prints figures as a line of Go's benchmark format.
func write(name string, figures map[string]float64) {
	fmt.Fprintf(os.Stdout, "\n%s 1", name)
	for _, unit := range slices.Sorted(maps.Keys(figures)) {
		if figures[unit] != 0 {
			fmt.Fprintf(os.Stdout, " %.5g %s", figures[unit], unit)
		}
	}
	fmt.Fprintln(os.Stdout)
}

// account says what does not add up between what clients heard and what the service and its servers counted. Only an
// open load may be refused.
func (w work) account(sells bool, mode model.OrderMode, open bool, told heard, counted counts) error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	rows, good, refused := counted["rows"], len(told.good), len(told.refused)
	refuse(good+refused == 0, "there was no answer")
	refuse(told.broken > 0, "%d requests had no answer, or a late one", told.broken)
	refuse(!w.opposes && !open && refused > 0, "%d of %d answers were refusals", refused, good+refused)
	refuse(!sells && rows != 0 || sells && rows != float64(good), "%d answers were good, and there are %.0f new rows", good, rows)
	refuse(sells && counted["fsyncs"] <= 0, "the database wrote %.0f orders without an fsync", rows)
	refuse(sells && mode == model.ModeAsync && counted["messages"] <= 0, "the queue stored no message for %.0f orders", rows)
	if w.opposes {
		placed := counted["seckill_orders_placed_total "+string(w.code)]
		refuse(good > 0, "%d of %d answers were no refusal", good, good+refused)
		refuse(placed != float64(refused), "%d answers, and the service counts %.0f × %s", refused, placed, w.code)
	}
	return errors.Join(errs...)
}
