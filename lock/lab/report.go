package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Verdict is what the lab says about a row.
type Verdict string

// The verdicts.
const (
	VerdictBroken     Verdict = "broken as expected"
	VerdictCorrect    Verdict = "correct"
	VerdictNeedsMySQL Verdict = "needs MySQL: --dsn"
	VerdictHidden     Verdict = "DEFECT NOT SHOWN" // a broken strategy got away
	VerdictDefect     Verdict = "DEFECT"           // a real strategy did not hold
	VerdictFailed     Verdict = "FAILED"           // the row could not run
)

// Attack is one forced interleaving and what came of it.
type Attack struct {
	Name string
	Finding
	Holds []Hold
}

// Row is one strategy and what it was found to do.
type Row struct {
	Name   string
	Group  string
	On     string
	Broken bool
	Why    string
	Cure   string

	Attacks []Attack
	Free    Finding // of the free run
	Finding         // of both

	// Of the free run alone.
	Throughput float64
	Median     time.Duration
	P99        time.Duration
	Longest    time.Duration
	Commands   float64 // sent to Redis by the lock, per operation answered

	Verdict Verdict
	Err     error // why the row failed
	Error   string
}

// Report is a whole run.
type Report struct {
	Rows       []Row
	Workers    int
	Operations int
	Seed       uint64
	Took       time.Duration
}

// OK says that the row is as it should be: broken and shown to be, or real and
// correct, or not run because what it needs was not given.
func (r Row) OK() bool {
	return r.Verdict == VerdictBroken || r.Verdict == VerdictCorrect || r.Verdict == VerdictNeedsMySQL
}

func (r *Row) measure(t tally, took time.Duration, commands int64) {
	r.Throughput = float64(t.answers()) / took.Seconds()
	r.Median, r.P99, r.Longest = t.quantile(0.5), t.quantile(0.99), t.quantile(1)
	r.Commands = float64(commands) / float64(max(t.answers(), 1))
}

// judge gives the verdict. A broken strategy must show its defect under every attack;
// its free run does not count.
func (r *Row) judge(s strategy) {
	switch {
	case r.Verdict == VerdictNeedsMySQL:
	case r.Err != nil:
		r.Verdict, r.Error = VerdictFailed, r.Err.Error()
	case !s.broken() && r.clean():
		r.Verdict = VerdictCorrect
	case !s.broken():
		r.Verdict = VerdictDefect
	case slices.ContainsFunc(r.Attacks, func(a Attack) bool { return !a.shows(s.defect) }):
		r.Verdict = VerdictHidden
	default:
		r.Verdict = VerdictBroken
	}
}

// Write prints the table and, below it, why the broken ones break.
func (r Report) Write(w io.Writer) error {
	text := &strings.Builder{}
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STRATEGY\tON\tEXPECTED\tACTUAL\tLOST\tOVERSOLD\tDEADLOCK\tOPS/S\tMEDIAN\tP99\tLONGEST\tREDIS/OP\tVERDICT")
	group := ""
	for _, row := range r.Rows {
		if group != "" && group != row.Group {
			fmt.Fprintln(table, strings.Repeat("\t", 12))
		}
		group = row.Group
		row.writeTo(table)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	fmt.Fprintf(text, "\n%d workers in two processes, up to %d operations each, seed %d; %s in all.\n"+
		"EXPECTED, ACTUAL, LOST, OVERSOLD and DEADLOCK cover the forced interleavings and the free run, the other figures the free run.\n"+
		"MEDIAN, P99 and LONGEST are the waits for the lock; where there is none, for the whole operation.\n"+
		"REDIS/OP are the commands the lock sends per operation; reading and writing the account is not among them.\n",
		r.Workers, r.Operations, r.Seed, r.Took.Round(100*time.Millisecond))
	r.explain(text)
	if _, err := io.WriteString(w, blanksAtEnd().ReplaceAllString(text.String(), "")); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

func (r Row) writeTo(w io.Writer) {
	if r.Verdict == VerdictNeedsMySQL || r.Verdict == VerdictFailed {
		fmt.Fprintf(w, "%s\t%s\t%s%s\n", r.Name, r.On, strings.Repeat("-\t", 10), r.Verdict)
		return
	}
	fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%.0f\t%s\t%s\t%s\t%.1f\t%s\n", r.Name, r.On,
		r.Expected, r.Actual, r.Lost, r.Oversold, map[bool]string{true: "yes", false: "no"}[r.Deadlocked],
		r.Throughput, short(r.Median), short(r.P99), short(r.Longest), r.Commands, r.Verdict)
}

// explain says why the broken ones break, what the real ones do, and what was not
// expected.
func (r Report) explain(w io.Writer) {
	r.list(w, VerdictBroken, "\nWhy the broken ones break, and what does it right:\n")
	r.list(w, VerdictCorrect, "\nWhat the real ones do:\n")
	for _, row := range r.Rows {
		if row.OK() {
			continue
		}
		fmt.Fprintf(w, "\n%s: %s\n", row.Name, row.Verdict)
		if row.Err != nil {
			fmt.Fprintf(w, "  %v\n", row.Err)
			continue
		}
		for _, a := range row.Attacks {
			fmt.Fprintf(w, "  %s: %s\n", a.Name, a.Finding)
		}
		fmt.Fprintf(w, "  free run: %s\n", row.Free)
	}
}

// list prints a line for each row with a verdict, under a heading.
func (r Report) list(w io.Writer, v Verdict, heading string) {
	for _, row := range r.Rows {
		if row.Verdict != v {
			continue
		}
		why := row.Why
		if row.Cure != "" {
			why += "; right: " + row.Cure
		}
		fmt.Fprintf(w, "%s  %-26s %s\n", heading, row.Name, why)
		heading = ""
	}
}

// String is a finding in one line.
func (f Finding) String() string {
	return fmt.Sprintf("expected %d, actual %d, lost %d, oversold %d, unsold %d, deadlocked %t",
		f.Expected, f.Actual, f.Lost, f.Oversold, f.Unsold, f.Deadlocked)
}

// short is a duration with about three digits.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	default:
		d = d.Round(time.Microsecond)
	}
	return d.String()
}

// blanksAtEnd are those that tabwriter leaves at the ends of lines.
func blanksAtEnd() *regexp.Regexp { return regexp.MustCompile(`(?m) +$`) }

// tally is what came of one unit of work, or of many. It travels from child processes as
// JSON.
type tally struct {
	Requested int64           `json:"requested"`
	Done      int64           `json:"done"`     // added to the account and, if anything was left, sold
	Sold      int64           `json:"sold"`     // units
	SoldOut   int64           `json:"sold_out"` // a sale without an account found nothing left
	Repeated  int64           `json:"repeated"` // a message that had been handled before
	Refused   int64           `json:"refused"`  // the lock was lost; the worker was told, and wrote nothing
	Stuck     int64           `json:"stuck"`    // the lock was not to be had within the longest wait
	Waits     []time.Duration `json:"waits"`    // until the lock was there, or until the answer where there is none
}

// answered is one unit of work, of which it is not said yet what came of it.
func answered(asked time.Time) tally {
	return tally{Requested: 1, Waits: []time.Duration{time.Since(asked)}}
}

// done is one unit of work that was done.
func done(asked time.Time, sold int64) tally {
	told := answered(asked)
	told.Done, told.Sold = 1, sold
	return told
}

// answers are those that say what became of the work.
func (t *tally) answers() int64 { return t.Done + t.SoldOut + t.Repeated }

func (t *tally) merge(o tally) {
	t.Requested += o.Requested
	t.Done += o.Done
	t.Sold += o.Sold
	t.SoldOut += o.SoldOut
	t.Repeated += o.Repeated
	t.Refused += o.Refused
	t.Stuck += o.Stuck
	t.Waits = append(t.Waits, o.Waits...)
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

// judge compares what workers were told with what is there. A worker that was refused
// counts as expected where leases must not lapse, and not where they may.
func (t *tally) judge(stock int64, left figures, lapses bool) Finding {
	expected := t.Requested - t.SoldOut - t.Repeated
	if lapses {
		expected -= t.Refused
	}
	f := Finding{
		Expected:   expected,
		Actual:     left.Balance,
		Lost:       max(t.Done-left.Balance, 0),
		Oversold:   max(t.Sold-stock, 0),
		Deadlocked: t.Stuck > 0,
	}
	if t.SoldOut > 0 {
		f.Unsold = left.Remaining
	}
	// Sold units that the stock does not know of would be sold once more.
	f.Lost = max(f.Lost, t.Sold-(stock-left.Remaining))
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

// clean says that nothing is wrong.
func (f *Finding) clean() bool {
	return f.Expected == f.Actual && f.Lost == 0 && f.Oversold == 0 && f.Unsold == 0 && !f.Deadlocked
}

// shows says that the figures show a defect.
func (f *Finding) shows(d defect) bool {
	return map[defect]bool{
		defectLost:     f.Lost > 0 && f.Oversold > 0,
		defectDeadlock: f.Deadlocked,
		defectOversold: f.Oversold > 0,
		defectUnserved: f.Expected > f.Actual && !f.Deadlocked,
		defectNone:     f.clean(),
	}[d]
}

// quantile returns the wait that a share q of all waits does not exceed; 0 when
// there are none. It sorts the waits.
func (t *tally) quantile(q float64) time.Duration {
	if len(t.Waits) == 0 {
		return 0
	}
	slices.Sort(t.Waits)
	return t.Waits[min(int(q*float64(len(t.Waits))), len(t.Waits)-1)]
}
