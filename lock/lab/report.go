package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Verdict is what the lab says about a row.
type Verdict string

const (
	VerdictBroken  Verdict = "broken as expected"
	VerdictCorrect Verdict = "correct"
	VerdictHidden  Verdict = "DEFECT NOT SHOWN" // a broken strategy got away
	VerdictDefect  Verdict = "DEFECT"           // a real strategy did not hold
	VerdictFailed  Verdict = "FAILED"           // the row could not run
)

// Attack is one forced interleaving and what came of it.
type Attack struct {
	Name string
	Finding
	Story []Moment
}

// Row is one strategy and what it was found to do.
type Row struct {
	strategy

	Attacks []Attack
	Free    Attack // the free run
	Finding        // of both

	// Of the free run alone.
	Throughput           float64
	Median, P99, Longest time.Duration

	Verdict Verdict
	Err     error // why the row failed
}

type report struct {
	load

	Rows []Row
	Took time.Duration
}

// OK says that the row is as it should be: broken and shown to be, or real and correct.
func (r Row) OK() bool { return r.Verdict == VerdictBroken || r.Verdict == VerdictCorrect }

// judge gives the verdict. A broken strategy must show its defect under every attack; its free run does not count.
func (r *Row) judge() {
	switch {
	case r.Err != nil:
		r.Verdict = VerdictFailed
	case !r.broken() && r.clean():
		r.Verdict = VerdictCorrect
	case !r.broken():
		r.Verdict = VerdictDefect
	case slices.ContainsFunc(r.Attacks, func(a Attack) bool { return !a.shows(r.defect) }):
		r.Verdict = VerdictHidden
	default:
		r.Verdict = VerdictBroken
	}
}

func (r report) verdict() (err error) {
	for _, row := range r.Rows {
		if !row.OK() {
			err = errors.Join(err, fmt.Errorf("not as it should be: %s: %s", row.Name, row.Verdict))
		}
	}
	return err
}

// write prints the table and, below it, why the broken ones break, what the real ones do, and what was not expected.
func (r report) write(w io.Writer) {
	text := &strings.Builder{}
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table,
		"STRATEGY\tON\tEXPECTED\tACTUAL\tLOST\tOVERSOLD\tDEADLOCK\tOPS/S\tMEDIAN\tP99\tLONGEST\tVERDICT")
	for i, row := range r.Rows {
		if i > 0 && r.Rows[i-1].broken() != row.broken() {
			fmt.Fprintln(table, strings.Repeat("\t", 11))
		}
		if row.Verdict == VerdictFailed {
			fmt.Fprintf(table, "%s\t%s\t%s%s\n", row.Name, row.On, strings.Repeat("-\t", 9), row.Verdict)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%.0f\t%s\t%s\t%s\t%s\n", row.Name, row.On,
			row.Expected, row.Actual, row.Lost, row.Oversold, map[bool]string{true: "yes", false: "no"}[row.Deadlocked],
			row.Throughput, short(row.Median), short(row.P99), short(row.Longest), row.Verdict)
	}
	must("print the table", table.Flush())
	fmt.Fprintf(text, "\n%d workers in two processes, up to %d operations each; %s in all.\n"+
		"EXPECTED, ACTUAL, LOST, OVERSOLD and DEADLOCK cover the forced interleavings and the free run, "+
		"the other figures the free run.\n"+
		"MEDIAN, P99 and LONGEST are the waits for the lock; where there is none, for the whole operation.\n",
		r.Workers, r.Operations, r.Took.Round(100*time.Millisecond))
	fmt.Fprintln(text, "\nWhy the broken ones break, and what does it right; what the real ones do:")
	for _, row := range r.Rows {
		if row.OK() {
			fmt.Fprintf(text, "  %-26s %s\n", row.Name, strings.TrimSuffix(row.Why+"; right: "+row.Cure, "; right: "))
			continue
		}
		fmt.Fprintf(text, "\n%s: %s\n", row.Name, row.Verdict)
		for _, a := range append(row.Attacks, row.Free) {
			fmt.Fprintf(text, "  %s: %+v\n", a.Name, a.Finding)
		}
		if row.Err != nil {
			fmt.Fprintf(text, "  %v\n", row.Err)
		}
	}
	_, err := io.WriteString(w, text.String())
	must("print the table", err)
}

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// answer is what came of one unit of work. Its end is pointDone (added, and sold if anything was left), pointSoldOut
// (nothing was left), pointRefused (lock lost before the write) or pointStuck (no lock within the longest wait).
type answer struct {
	End    point
	Sold   int64         // units
	Waited time.Duration // for the lock; where there is none, for the whole operation
}

type tally []answer

func (t tally) count(ends ...point) (n int64) {
	for _, a := range t {
		if slices.Contains(ends, a.End) {
			n++
		}
	}
	return n
}

// quantile returns the wait that a share q of all waits does not exceed.
func (t tally) quantile(q float64) time.Duration {
	waits := slices.Clone(t)
	slices.SortFunc(waits, func(a, b answer) int { return int(a.Waited - b.Waited) })
	return waits[min(int(q*float64(len(waits))), len(waits)-1)].Waited
}

// Finding is what the figures say about one piece of work.
type Finding struct {
	Expected   int64 // the balance, had every worker that was not told otherwise been served
	Actual     int64 // the balance
	Lost       int64 // updates that were reported as done and are not there
	Oversold   int64 // units sold that there never were
	Unsold     int64 // units left although a worker heard "sold out"
	Deadlocked bool  // a worker gave up waiting for a lock without a living holder
}

// judge compares what workers were told with what is there. A refused one counts where leases must not lapse.
func (t tally) judge(stock int64, left figures, lapses bool) Finding {
	var sold int64
	for _, a := range t {
		sold += a.Sold
	}
	f := Finding{
		Expected: int64(len(t)) - t.count(pointSoldOut),
		Actual:   left.Balance,
		// Sold units that the stock does not know of would be sold once more.
		Lost:       max(t.count(pointDone)-left.Balance, sold-(stock-left.Remaining), 0),
		Oversold:   max(sold-stock, 0),
		Deadlocked: t.count(pointStuck) > 0,
	}
	if lapses {
		f.Expected -= t.count(pointRefused)
	}
	if t.count(pointSoldOut) > 0 {
		f.Unsold = left.Remaining
	}
	return f
}

func (f *Finding) merge(o Finding) {
	f.Expected += o.Expected
	f.Actual += o.Actual
	f.Lost += o.Lost
	f.Oversold += o.Oversold
	f.Unsold += o.Unsold
	f.Deadlocked = f.Deadlocked || o.Deadlocked
}

func (f *Finding) clean() bool {
	return f.Expected == f.Actual && f.Lost == 0 && f.Oversold == 0 && f.Unsold == 0 && !f.Deadlocked
}

func (f *Finding) shows(d defect) bool {
	return map[defect]bool{
		defectLost:     f.Lost > 0 && f.Oversold > 0,
		defectDeadlock: f.Deadlocked,
		defectOversold: f.Oversold > 0,
		defectNone:     f.clean(),
	}[d]
}

//go:embed page.html
var pageText string

// writePage writes the table, and what happened in each interleaving, to one HTML file.
func (r report) writePage(name string) {
	millis := func(d time.Duration) float64 {
		return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
	}
	form := template.Must(template.New("page").Funcs(template.FuncMap{"short": short, "millis": millis}).Parse(pageText))
	var page bytes.Buffer
	must("make the page", form.Execute(&page, r))
	must("write the page", os.WriteFile(name, page.Bytes(), 0o644)) //nolint:gosec // it is for people
}

// Moment is one thing that a worker did.
type Moment struct {
	At   time.Duration // since the attack began
	Who  string        // A, B or C
	What point
}
