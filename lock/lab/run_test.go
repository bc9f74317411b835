package main

import (
	"context"
	"database/sql"
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
	r := run(t, options{redis: []string{testserver.SharedRedis(t)}, dsn: testserver.Schema(t), rows: rows})
	wantVerdicts(t, r, func(strategy) bool { return false })
	for _, row := range r.Rows {
		check.Equal(t, "where "+row.Name+" ran", row.On, "mysql")
	}
}

// What a lab made is gone when it is undone, also when its run was interrupted: its schema, and its keys,
// those that locks name after them too.
func TestUndone(t *testing.T) {
	t.Parallel()
	dsn, url := testserver.Schema(t), testserver.SharedRedis(t)
	l := &lab{options: options{redis: []string{url}, dsn: dsn}}
	check.Must(t, try(func() { l.open(t.Context()) }))
	client := newClient(url)
	defer client.Close()
	left := func() []string { return client.Keys(t.Context(), "*"+l.site.Prefix+"*").Val() }
	for _, key := range []string{l.site.Prefix + "balance", "lock_token:{" + l.site.Prefix + "lock}"} {
		check.Must(t, client.Set(t.Context(), key, "1", 0).Err())
	}
	check.Equal(t, "keys before", len(left()), 2)
	ended, interrupt := context.WithCancel(t.Context())
	interrupt()
	check.Must(t, l.undo.run(ended))
	check.Equal(t, "keys afterwards", len(left()), 0)
	db := check.Value(sql.Open("mysql", l.site.DSN))(t)
	defer db.Close()
	if err := db.PingContext(t.Context()); err == nil {
		t.Error("the schema is there afterwards")
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
