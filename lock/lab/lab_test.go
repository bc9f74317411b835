//part:locks

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func small(t *testing.T, o options) options {
	t.Helper()
	o.load = load{Workers: 4, Operations: check.Count(t, "OPERATIONS", 4, 10)}
	o.log = &bytes.Buffer{}
	if o.site.DSN == "" {
		o.site.DSN = testserver.Schema(t)
	}
	for database := range 3 {
		o.site.Quorum = append(o.site.Quorum, strings.TrimSuffix(testserver.SharedRedis(t), "0")+strconv.Itoa(database))
	}
	return o
}

func run(t *testing.T, o options) report {
	t.Helper()
	r := check.Value(experiment(t.Context(), small(t, o)))(t)
	text := &strings.Builder{}
	r.write(text)
	t.Log("\n" + text.String())
	return r
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-workers 1": "2 to 512", "-workers 513": "2 to 512", "-workers yes": "invalid value", "rats": "no arguments",
	} {
		var stdout, stderr bytes.Buffer
		code := command(t.Context(), strings.Fields(args), &stdout, &stderr)
		check.That(t, code == 2 && strings.Contains(stderr.String(), want) && stdout.Len() == 0,
			"%s: exit %d, %q, want %q", args, code, stderr.String(), want)
	}
}

func shown(t *testing.T, dsn, name string) Row {
	t.Helper()
	l := &lab{options: small(t, options{site: site{DSN: dsn}}), host: host{ctx: t.Context()}}
	defer func() { check.Must(t, l.host.end()) }()
	check.Must(t, try(func() { l.open(t.Context()) }))
	s, _ := named(catalog(), name)
	row := Row{strategy: s}
	row.try(t.Context(), l.attack)
	row.judge()
	return row
}

// The story of an attack has what each worker did, in the order of time, and who had a lock that nobody could have.
func TestAttacksTellWhatHappened(t *testing.T) {
	t.Parallel()
	dsn := testserver.Schema(t)
	for _, tc := range []struct{ name, at, did string }{
		{"no lock", "two at once", "A has read"},
		{"local mutex, 2 processes", "two at once", "B has the lock"},
		{"setnx, then expire", "crashed holder", "B did not get the lock"},
		{"setnx, no owner check", "late unlock", "C has the lock"},
		{"setnx, no watchdog", "work longer than the lease", "A is done"},
		{"watchdog, no owner check", "renewed by another", "B is killed"},
		{"redis hash", "crashed holder", "A is killed"},
		{"redis hash", "late unlock", "A hears that the lock is lost"},
	} {
		t.Run(tc.name+", "+tc.at, func(t *testing.T) {
			t.Parallel()
			row := shown(t, dsn, tc.name)
			check.That(t, row.OK(), "%s: %v", row.Verdict, row.Err)
			i := slices.IndexFunc(row.Attacks, func(a Attack) bool { return a.Name == tc.at })
			check.Need(t, i >= 0, "%+v has no such attack", row.Attacks)
			story := row.Attacks[i].Story
			told := func(m Moment) bool { return m.Who+" "+string(m.What) == tc.did }
			check.That(t, slices.ContainsFunc(story, told), "%q is not in the story: %v", tc.did, story)
			inOrder := slices.IsSortedFunc(story, func(a, b Moment) int { return cmp.Compare(a.At, b.At) })
			check.That(t, inOrder, "the story is not in the order of time: %v", story)
		})
	}
}

func TestJudgement(t *testing.T) {
	t.Parallel()
	done, sold := answer{End: pointDone}, answer{End: pointDone, Sold: 1}
	refused, soldOut, stuck := answer{End: pointRefused}, answer{End: pointSoldOut}, answer{End: pointStuck}
	for name, test := range map[string]struct {
		told  tally
		stock int64
		left  figures
		want  Finding
	}{
		"all is well":       {tally{done, sold, sold}, 2, figures{Balance: 3}, Finding{Expected: 3, Actual: 3}},
		"a lost update":     {tally{done, sold}, 1, figures{Balance: 1}, Finding{Expected: 2, Actual: 1, Lost: 1}},
		"oversold":          {tally{sold, sold}, 1, figures{Balance: 2}, Finding{Expected: 2, Actual: 2, Lost: 1, Oversold: 1}},
		"sold, and there":   {tally{sold}, 5, figures{1, 5, 0}, Finding{Expected: 1, Actual: 1, Lost: 1}},
		"stuck":             {tally{done, stuck}, 0, figures{Balance: 1}, Finding{Expected: 2, Actual: 1, Deadlocked: true}},
		"refused honestly":  {tally{done, refused}, 0, figures{Balance: 1}, Finding{Expected: 1, Actual: 1}},
		"refused wrongly":   {tally{done, refused}, 0, figures{Balance: 1}, Finding{Expected: 2, Actual: 1}},
		"sold out honestly": {tally{sold, soldOut}, 1, figures{Balance: 1}, Finding{Expected: 1, Actual: 1}},
		"sold out early":    {tally{soldOut}, 1, figures{Remaining: 1}, Finding{Unsold: 1}},
	} {
		got := test.told.judge(test.stock, test.left, name == "refused honestly")
		clean := name == "all is well" || strings.HasSuffix(name, "honestly")
		check.That(t, got == test.want && got.clean() == clean, "%s: %+v, want %+v, clean %t", name, got, test.want, clean)
	}
	var waits tally
	for i := range 100 {
		waits = append(waits, answer{Waited: time.Duration(100 - i)})
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		check.Equal(t, "a quantile", waits.quantile(q), want)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := report{load: load{Workers: 2, Operations: 3}, Took: time.Second, Rows: []Row{
		{
			strategy: strategy{Name: "rotten", Why: "it is rotten", Cure: "fresh"}, Verdict: VerdictBroken,
			Finding: Finding{Expected: 7, Actual: 5, Lost: 2, Deadlocked: true}, Median: 1234567,
			Longest: 3 * time.Second,
		},
	}}
	check.Must(t, r.verdict())
	for name, verdict := range map[string]Verdict{"fresh": VerdictDefect, "odd": VerdictHidden, "gone": VerdictFailed} {
		r.Rows = append(r.Rows, Row{
			strategy: strategy{Name: name}, Verdict: verdict,
			Attacks: []Attack{{Name: "two at once"}},
		})
		if verdict == VerdictFailed {
			r.Rows[len(r.Rows)-1].Err = errors.New("no such host")
		}
		check.That(t, strings.Contains(r.verdict().Error(), name+": "+string(verdict)), "%v does not name the row",
			r.verdict())
	}
	var out bytes.Buffer
	r.write(&out)
	for _, want := range []string{
		"yes       0      1.23ms  0s   3s", "rotten                     it is rotten; right: fresh\n",
		"fresh: DEFECT\n  two at once: {Expected:0", "  no such host\n",
		"2 workers in two processes, up to 3 operations each; 1s",
	} {
		check.That(t, strings.Contains(out.String(), want), "the report lacks %q:\n%s", want, out.String())
	}
}

// The negative control: a broken strategy that claims to be real, or the reverse, is found out by its own attack. No
// verdict depends on a time limit.
func TestControl(t *testing.T) {
	t.Parallel()
	dsn := testserver.Schema(t)
	wants := func(name string, s strategy, said defect, want Verdict) {
		t.Run(s.Name+", "+name, func(t *testing.T) {
			t.Parallel()
			row := run(t, options{rows: []strategy{s}, site: site{DSN: dsn}}).Rows[0]
			row.defect = said
			row.judge()
			check.That(t, row.Verdict == want && !row.OK(), "%s: %v, want %s", row.Verdict, row.Err, want)
		})
	}
	// There is one of each attack.
	each := []string{"no lock", "setnx, no expiry", "setnx, no owner check", "setnx, no watchdog", "setnx, re-entered"}
	for _, s := range catalog() {
		if s.broken() && s.On != onMySQL && (check.Faults || slices.Contains(each, s.Name)) {
			wants("said to be real", s, defectNone, VerdictDefect)
		}
	}
	liar, _ := named(catalog(), "redis hash")
	liar.attacks = []attack{crash(pointRead), reenter()}
	wants("said to be broken", liar, defectDeadlock, VerdictHidden)
	liar, _ = named(catalog(), "setnx, no expiry")
	liar.lock = func(setup) locker { stop(errRefused); return nil }
	wants("cannot run", liar, liar.defect, VerdictFailed)
}

func named(all []strategy, name string) (s strategy, found bool) {
	i := slices.IndexFunc(all, func(s strategy) bool { return s.Name == name })
	if i < 0 {
		return strategy{}, false
	}
	return all[i], true
}

func TestEveryRow(t *testing.T) {
	t.Parallel()
	for _, row := range run(t, options{rows: catalog()}).Rows {
		want := VerdictCorrect
		if row.broken() {
			want = VerdictBroken
		}
		check.That(t, row.Verdict == want, "%s: %s, want %s", row.Name, row.Verdict, want)
		check.That(t, len(row.Attacks) == len(row.attacks) && len(row.Attacks) > 0, "%s: %d attacks", row.Name,
			len(row.Attacks))
		for _, a := range row.Attacks {
			check.That(t, a.shows(row.defect), "%s: %s: %+v, want %q", row.Name, a.Name, a.Finding, row.defect)
		}
		if row.Free.Actual == 0 || row.Throughput == 0 || row.Longest < row.P99 || row.P99 < row.Median {
			t.Errorf("%s: the free run measured nothing: %+v", row.Name, row)
		}
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("Ctrl-C")
	rows := slices.DeleteFunc(catalog(), func(s strategy) bool { return s.broken() || s.On != onRedis })
	rows[0].attacks = append(rows[0].attacks, attack{name: "Ctrl-C", run: func(*arena) { cancel(stopped) }})
	_, err := experiment(ctx, small(t, options{rows: rows}))
	check.Is(t, "interrupted", err, stopped)
}
