package lab

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
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
	Name string `json:"name"`
	Finding
	Holds []Hold `json:"holds"`
}

// Row is one strategy and what it was found to do.
type Row struct {
	Name   string `json:"name"`
	Group  string `json:"group"`
	On     string `json:"on"`
	Broken bool   `json:"broken"`
	Why    string `json:"why"`
	Cure   string `json:"cure,omitempty"`

	Attacks []Attack `json:"attacks"`
	Free    Finding  `json:"free"` // of the free run
	Finding          // of both

	// Of the free run alone.
	Throughput float64       `json:"ops_per_second"`
	Median     time.Duration `json:"median_ns"`
	P99        time.Duration `json:"p99_ns"`
	Longest    time.Duration `json:"longest_ns"`
	Commands   float64       `json:"redis_per_op"` // sent to Redis by the lock, per operation answered

	Verdict Verdict `json:"verdict"`
	Err     error   `json:"-"` // why the row failed
	Error   string  `json:"error,omitempty"`
}

// Report is a whole run.
type Report struct {
	Rows       []Row         `json:"rows"`
	Contests   []Contest     `json:"contests,omitempty"`
	Workers    int           `json:"workers"`
	Operations int           `json:"operations"`
	Seed       uint64        `json:"seed"`
	Took       time.Duration `json:"took_ns"`
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
	r.sayWhoWon(text)
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
	Expected   int64 `json:"expected"`   // the balance, had every worker that was not told otherwise been served
	Actual     int64 `json:"actual"`     // the balance
	Lost       int64 `json:"lost"`       // updates that were reported as done and are not there
	Oversold   int64 `json:"oversold"`   // units sold that there never were
	Unsold     int64 `json:"unsold"`     // units left although a worker heard "sold out"
	Deadlocked bool  `json:"deadlocked"` // a worker gave up waiting for a lock without a living holder
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

// NewProgress shows how far a run is: a bar on a terminal, a line per row
// elsewhere.
func NewProgress(w io.Writer, terminal bool) Progress {
	if terminal {
		return &bar{out: w}
	}
	return &plain{out: w}
}

// plain writes a line per row, for logs.
type plain struct {
	out        io.Writer
	rows, done int
	began      time.Time
}

func (p *plain) Attacked() {}
func (p *plain) End()      {}

func (p *plain) Start(string) { p.began = time.Now() }

func (p *plain) Begin(rows int) {
	p.rows = rows
	fmt.Fprintf(p.out, "forcing the interleavings on %d strategies\n", rows)
}

func (p *plain) Done(r Row) {
	p.done++
	fmt.Fprintf(p.out, "%2d/%d %s: %s (%s)\n", p.done, p.rows, r.Name, r.Verdict, short(time.Since(p.began)))
}

// bar is a progress bar with the name of the row that runs.
type bar struct {
	out  io.Writer
	all  *mpb.Progress
	line *mpb.Bar

	name atomic.Value
}

func (b *bar) Begin(rows int) {
	b.name.Store("forced interleavings")
	b.all = mpb.New(mpb.WithOutput(b.out), mpb.WithWidth(40), mpb.WithAutoRefresh())
	b.line = b.all.AddBar(2*int64(rows), // each is attacked, and runs
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d/%d ")),
		mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO), decor.Any(func(decor.Statistics) string {
			return fmt.Sprint("  ", b.name.Load())
		})))
}

func (b *bar) Start(name string) { b.name.Store("free run: " + name) }
func (b *bar) Attacked()         { b.line.Increment() }
func (b *bar) Done(Row)          { b.line.Increment() }

func (b *bar) End() {
	b.line.Abort(true) // nothing, when it is complete
	b.all.Wait()
}
