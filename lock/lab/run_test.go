package main

import (
	"context"
	"errors"
	"slices"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver of the server's own connections

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// rowsOf are those of the catalog that it says.
func rowsOf(wanted func(strategy) bool) []strategy {
	return slices.DeleteFunc(catalog(), func(s strategy) bool { return !wanted(s) })
}

func TestEmbedded(t *testing.T) {
	t.Parallel()
	rows := rowsOf(func(s strategy) bool { return !s.replicas })
	wantVerdicts(t, run(t, options{rows: rows}), func(s strategy) bool { return s.on == onMySQL })
}

// TestOnMySQL: the rows that need it, on the servers that tests share. (All rows on servers: TestOnServers.)
func TestOnMySQL(t *testing.T) {
	t.Parallel()
	rows := rowsOf(func(s strategy) bool { return s.on == onMySQL })
	r := run(t, options{dsn: testserver.Schema(t), rows: rows})
	wantVerdicts(t, r, func(strategy) bool { return false })
	for _, row := range r.Rows {
		check.Equal(t, "where "+row.Name+" ran", row.On, "mysql")
	}
}

// TestInterrupted: a run ends while strategies are under attack, and removes what it made.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("Ctrl-C")
	rows := rowsOf(func(s strategy) bool { return s.group == groupLock && s.on == onRedis && !s.replicas })
	rows[0].attacks = append(rows[0].attacks, attack{name: "Ctrl-C", run: func(*arena) { cancel(stopped) }})
	_, err := experiment(ctx, small(t, options{rows: rows}))
	check.Is(t, "interrupted", err, stopped)
}

// wantVerdicts wants every defect shown and every cure to hold.
func wantVerdicts(t *testing.T, r report, missing func(strategy) bool) {
	t.Helper()
	for _, row := range r.Rows {
		want := VerdictCorrect
		switch {
		case missing(row.strategy):
			want = VerdictNeedsMySQL
		case row.broken():
			want = VerdictBroken
		}
		check.That(t, row.Verdict == want, "%s: %s, want %s", row.Name, row.Verdict, want)
		if want == VerdictNeedsMySQL {
			continue
		}
		check.That(t, len(row.Attacks) == len(row.attacks) && len(row.Attacks) > 0, "%s: %d attacks", row.Name, len(row.Attacks))
		for _, a := range row.Attacks {
			check.That(t, a.shows(row.defect), "%s: %s: %+v, want %q", row.Name, a.Name, a.Finding, row.defect)
		}
		if row.Free.Actual == 0 || row.Throughput == 0 || row.Longest < row.P99 || row.P99 < row.Median {
			t.Errorf("%s: the free run measured nothing: %+v", row.Name, row)
		}
	}
}
