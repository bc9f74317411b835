package bench

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// target is what was promised and what came out.
type target struct {
	name, got string
	met       bool
}

func (b *bench) target(met bool, name, format string, args ...any) {
	b.targets = append(b.targets, target{name, fmt.Sprintf(format, args...), met})
}

func (b *bench) missed() bool {
	return slices.ContainsFunc(b.targets, func(t target) bool { return !t.met })
}

func (b *bench) printTargets() {
	rows := [][]string{{"target", "", "measured"}}
	for _, t := range b.targets {
		verdict := "met"
		if !t.met {
			verdict = "MISSED"
		}
		rows = append(rows, []string{t.name, verdict, t.got})
	}
	table("Targets", rows)
}

// table prints rows under a title, the first of them as the head.
func table(title string, rows [][]string) {
	fmt.Fprintf(os.Stdout, "\n%s\n", title)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	_ = w.Flush() // to stdout: there is nowhere to report it to
}

// median of values, of which there is at least one.
func median[T cmp.Ordered](values []T) T {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// medianOf is the median of a figure over rounds.
func medianOf[T cmp.Ordered](rounds []outcome, figure func(outcome) T) T {
	values := make([]T, len(rounds))
	for i, o := range rounds {
		values[i] = figure(o)
	}
	return median(values)
}

// ratio is the median over the rounds of how many times as fast the first one was as the second one.
func ratio(fast, slow []outcome) float64 {
	values := make([]float64, min(len(fast), len(slow)))
	for i := range values {
		values[i] = fast[i].rate() / slow[i].rate()
	}
	return median(values)
}

func perSecond(rate float64) string { return fmt.Sprintf("%.0f", rate) }
func times(ratio float64) string    { return fmt.Sprintf("%.2f", ratio) }

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }
func micros(d time.Duration) string { return fmt.Sprintf("%d µs", d.Microseconds()) }
func microsEach(µs float64) string  { return fmt.Sprintf("%.1f µs", µs) }
