//part:packaging

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// options are what `make bench` asks for. Their defaults are the smoke's, which is in make faults; in make test nothing is
// measured: no round is made of any case.
type options struct {
	rounds, seconds int
	cases           []string
	connections     []int   // the first is the one that every round measures; the others have one round
	builds          []build // beside this checkout's
	openRate        int     // requests a second of the open load; 0: half of what the closed one has reached
	mostOrders      int     // a second, that there are tokens for
	out             string  // where the JSON goes
	keep            bool    // as the record, too
}

// build is a program of the service.
type build struct{ name, program string }

func readOptions(t *testing.T) options {
	t.Helper()
	o := options{
		rounds:     number(t, "BENCH_ROUNDS", map[bool]string{false: "0", true: "1"}[check.Faults]),
		seconds:    number(t, "BENCH_SECONDS", "1"),
		openRate:   number(t, "BENCH_OPEN_RATE", "200"), // the race detector's generator is slow
		mostOrders: number(t, "BENCH_ORDERS", "20000"),
		cases:      strings.Fields(text("BENCH_CASES", map[bool]string{false: "all", true: "async"}[check.Faults])),
		out:        text("BENCH_OUT", ""),
		keep:       text("BENCH_KEEP", "") != "",
	}
	for field := range strings.FieldsSeq(text("BENCH_CONNECTIONS", "32")) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			t.Fatalf("BENCH_CONNECTIONS: %q is no number of connections", field)
		}
		o.connections = append(o.connections, n)
	}
	for field := range strings.FieldsSeq(text("BENCH_BINARY", "")) {
		name, path, named := strings.Cut(field, "=")
		if !named {
			name, path = "other", field
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		path = check.Value(filepath.Abs(path))(t)
		check.Value(os.Stat(path))(t)
		o.builds = append(o.builds, build{name, path})
	}
	if o.cases[0] == "all" {
		o.cases = nil
		for _, c := range cases() {
			o.cases = append(o.cases, c.name)
		}
	}
	return o
}

func text(variable, short string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return short
}

func number(t *testing.T, variable, short string) int {
	t.Helper()
	n, err := strconv.Atoi(text(variable, short))
	if err != nil || n < 0 {
		t.Fatalf("%s is no number: %v", variable, err)
	}
	return n
}

// What the service costs, and that its accounts agree with what clients heard. Long version: make bench. In make test it
// only finds the cases.
//
//nolint:paralleltest // what it measures is not for a machine that is busy with other tests
func TestBench(t *testing.T) {
	o := readOptions(t)
	if o.rounds == 0 {
		check.Equal(t, "cases that are found", len((&harness{T: t, options: o}).chosen()), len(o.cases))
		return
	}
	h := open(t, o)
	chosen := h.chosen()
	results := newResults()
	for round := range o.rounds {
		for i := range chosen {
			c := chosen[(i+round)%len(chosen)] // another one is the first in every round
			for _, b := range h.builds {
				began := time.Now()
				h.round(round, c, b, results)
				t.Logf("round %d, %s %s (%s): %v", round+1, c.name, b.name, c.says, time.Since(began).Round(time.Millisecond))
			}
		}
	}
	report := h.report(results)
	fmt.Fprint(os.Stdout, report.Text())
	if len(h.builds) > 1 {
		fmt.Fprint(os.Stdout, "this build against the other: ", Verdict(Compare(report.of(h.builds[1].name), report.of(""))))
	}
	for _, name := range o.cases {
		for _, load := range []string{OpenLoad, strconv.Itoa(o.connections[0])} {
			row, measured := report.row(name, load)
			if !measured && (load != OpenLoad || find(name).sells) {
				t.Errorf("%s @%s has no figures", name, load)
			}
			if measured && (row.Figures[Rate] <= 0 || row.Figures[CPUProduct] <= 0) {
				t.Errorf("%s: %v", row.name(), row.Figures)
			}
		}
	}
	h.record(report, Cases)
}

// results are the figures of each row, round by round.
type results struct {
	order []Row // without figures
	all   map[rowKey][]Figures
}

// rowKey names a row.
type rowKey struct{ build, name, load string }

func newResults() *results { return &results{all: map[rowKey][]Figures{}} }

func (r *results) add(b, name, load string, figures Figures) {
	key := rowKey{b, name, load}
	if _, known := r.all[key]; !known {
		r.order = append(r.order, Row{Build: b, Case: name, Load: load})
	}
	r.all[key] = append(r.all[key], figures)
}

// rows are the medians, in the order of the cases.
func (r *results) rows() []Row {
	rows := slices.Clone(r.order)
	for i := range rows {
		rounds := r.all[rowKey{rows[i].Build, rows[i].Case, rows[i].Load}]
		rows[i].Figures = middle(rounds)
		for _, figures := range rounds {
			if ratio, has := figures[Ratio]; has {
				rows[i].Ratios = append(rows[i].Ratios, ratio)
			}
		}
	}
	position := func(row Row) int {
		if strings.Contains(row.Case, seriesMark) {
			return len(cases())
		}
		return slices.IndexFunc(cases(), func(c workCase) bool { return c.name == row.Case }) // the yardstick first
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return position(a) - position(b) })
	return rows
}
