package lab

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
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
}

// Row is one strategy and what it was found to do.
type Row struct {
	Name, Group, On string
	Broken          bool
	Why, Cure       string

	Attacks []Attack
	Free    Finding // of the free run
	Finding         // of both

	// Of the free run alone.
	Throughput           float64 // operations answered per second
	Median, P99, Longest time.Duration
	Commands             float64 // sent to Redis by the lock, per operation answered

	Verdict Verdict
	Err     error // why the row failed
}

// Report is a whole run.
type Report struct {
	Rows                []Row
	Workers, Operations int
	Seed                uint64
	Took                time.Duration
}

// OK says that the row is as it should be: broken and shown to be, or real and
// correct, or not run because what it needs was not given.
func (r Row) OK() bool {
	return r.Verdict == VerdictBroken || r.Verdict == VerdictCorrect || r.Verdict == VerdictNeedsMySQL
}

func (r *Row) measure(t tally, took time.Duration, commands int64) {
	r.Throughput = float64(t.Done+t.SoldOut) / took.Seconds()
	r.Median, r.P99, r.Longest = t.quantile(0.5), t.quantile(0.99), t.quantile(1)
	r.Commands = float64(commands) / float64(max(t.Done+t.SoldOut, 1))
}

// judge gives the verdict. What counts for a broken strategy is the forced
// part: there its defect must show every time.
func (r *Row) judge(s strategy) {
	switch {
	case r.Verdict == VerdictNeedsMySQL:
	case r.Err != nil:
		r.Verdict = VerdictFailed
	case !s.broken() && r.clean():
		r.Verdict = VerdictCorrect
	case !s.broken():
		r.Verdict = VerdictDefect
	default:
		r.Verdict = VerdictBroken
		for _, a := range r.Attacks {
			if !a.shows(s.defect) {
				r.Verdict = VerdictHidden
			}
		}
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
	if _, err := io.WriteString(w, trimLines(text.String())); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

func (r Row) writeTo(w io.Writer) {
	if r.Verdict == VerdictNeedsMySQL || r.Verdict == VerdictFailed {
		fmt.Fprintf(w, "%s\t%s\t%s%s\n", r.Name, r.On, strings.Repeat("-\t", 10), r.Verdict)
		return
	}
	deadlock := "no"
	if r.Deadlocked {
		deadlock = "yes"
	}
	fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%.0f\t%s\t%s\t%s\t%.1f\t%s\n", r.Name, r.On,
		r.Expected, r.Actual, r.Lost, r.Oversold, deadlock,
		r.Throughput, short(r.Median), short(r.P99), short(r.Longest), r.Commands, r.Verdict)
}

// explain says why the broken ones break, what the real ones do, and what went
// wrong unexpectedly.
func (r Report) explain(w io.Writer) {
	r.list(w, VerdictBroken, "Why the broken ones break, and what does it right", func(row Row) string {
		return row.Why + "; right: " + row.Cure
	})
	r.list(w, VerdictCorrect, "What the real ones do", func(row Row) string { return row.Why })
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
func (r Report) list(w io.Writer, v Verdict, heading string, line func(Row) string) {
	for _, row := range r.Rows {
		if row.Verdict != v {
			continue
		}
		if heading != "" {
			fmt.Fprintf(w, "\n%s:\n", heading)
			heading = ""
		}
		fmt.Fprintf(w, "  %-26s %s\n", row.Name, line(row))
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

// trimLines takes the blanks off the ends of lines that tabwriter leaves there.
func trimLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// cells are an account and a stock kept as two plain Redis keys. Nothing but
// the lock under test protects them.
type cells struct {
	client             *redis.Client
	balance, remaining string
}

func newCells(s setup) (*cells, error) {
	client, err := newClient(s.Site.Redis, nil)
	if err != nil {
		return nil, err
	}
	return &cells{client: client, balance: s.Site.key(s.Name + ":balance"), remaining: s.Site.key(s.Name + ":remaining")}, nil
}

// openCells is the ledger of strategies whose account lives in Redis.
func openCells(_ context.Context, s setup) (ledger, error) { return newCells(s) }

func (c *cells) open(ctx context.Context, stock int64) error {
	return c.write(ctx, figures{Remaining: stock})
}

func (c *cells) read(ctx context.Context) (figures, error) {
	values, err := c.client.MGet(ctx, c.balance, c.remaining).Result()
	if err != nil {
		return figures{}, fmt.Errorf("read the account: %w", err)
	}
	var numbers [2]int64
	for i, value := range values {
		text, _ := value.(string)
		if numbers[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return figures{}, fmt.Errorf("read the account: %w", err)
		}
	}
	return figures{Balance: numbers[0], Remaining: numbers[1]}, nil
}

func (c *cells) write(ctx context.Context, f figures) error {
	if err := c.client.MSet(ctx, c.balance, f.Balance, c.remaining, f.Remaining).Err(); err != nil {
		return fmt.Errorf("write the account: %w", err)
	}
	return nil
}

func (c *cells) close() error { return c.client.Close() }
