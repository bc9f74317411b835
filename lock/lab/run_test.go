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

func TestEmbedded(t *testing.T) {
	t.Parallel()
	rows := slices.DeleteFunc(catalog(), func(s strategy) bool { return s.real })
	wantVerdicts(t, run(t, Options{}), rows, func(s strategy) bool { return s.on == onMySQL })
}

// TestOnMySQL: the rows that need it, on the servers that tests share. (All rows on servers: TestOnServers.)
func TestOnMySQL(t *testing.T) {
	t.Parallel()
	var rows []strategy
	for _, s := range catalog() {
		if s.on == onMySQL {
			rows = append(rows, s)
		}
	}
	report := run(t, Options{Redis: []string{testserver.SharedRedis(t)}, DSN: testserver.Schema(t), rows: rows})
	wantVerdicts(t, report, rows, func(strategy) bool { return false })
	for _, row := range report.Rows {
		check.Equal(t, "where "+row.Name+" ran", row.On, "mysql")
	}
}

// What an environment made is gone when it is undone, also when its run was interrupted: its schema, and its keys,
// those that locks name after them too.
func TestUndone(t *testing.T) {
	t.Parallel()
	dsn, url := testserver.Schema(t), testserver.SharedRedis(t)
	e := check.Value(openEnvironment(t.Context(), Options{Redis: []string{url}, DSN: dsn}))(t)
	client := check.Value(newClient(url, nil))(t)
	defer client.Close()
	left := func() []string { return client.Keys(t.Context(), "*"+e.site.Prefix+"*").Val() }
	for _, key := range []string{e.site.Prefix + "balance", "lock_token:{" + e.site.Prefix + "lock}"} {
		check.Must(t, client.Set(t.Context(), key, "1", 0).Err())
	}
	check.Equal(t, "keys before", len(left()), 2)
	ended, interrupt := context.WithCancel(t.Context())
	interrupt()
	check.Must(t, e.undo.run(ended))
	check.Equal(t, "keys afterwards", len(left()), 0)
	db := check.Value(sql.Open("mysql", e.site.DSN))(t)
	defer db.Close()
	if err := db.PingContext(t.Context()); err == nil {
		t.Error("the schema is there afterwards")
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"", "redis hash"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("Ctrl-C")
		interrupt := interruptedAt(at, func() { cancel(stopped) })
		_, err := Run(ctx, Options{
			Spawn: spawnSelf, Progress: interrupt, only: func(s strategy) bool { return s.group == groupLock && s.on == onRedis },
		})
		check.Is(t, "interrupted at "+at, err, stopped)
	}
}

// interruptedAt stops a run when a row begins, or, without a name, when the first has been attacked and others are in the middle of it.
func interruptedAt(name string, cancel func()) Progress {
	return func(_, _ int, r Row, free bool) {
		if name == "" && !free || free && r.Name == name {
			cancel()
		}
	}
}

// wantVerdicts wants every defect shown and every cure to hold.
func wantVerdicts(t *testing.T, report Report, rows []strategy, missing func(strategy) bool) {
	t.Helper()
	for i, s := range rows {
		row := report.Rows[i]
		want := VerdictCorrect
		switch {
		case missing(s):
			want = VerdictNeedsMySQL
		case s.broken():
			want = VerdictBroken
		}
		if row.Name != s.name || row.Verdict != want {
			t.Errorf("%s: %s, want %s: %s", row.Name, row.Verdict, want, s.name)
		}
		if want == VerdictNeedsMySQL {
			continue
		}
		if len(row.Attacks) != len(s.attacks) || len(row.Attacks) == 0 {
			t.Errorf("%s: %d attacks, want %d", s.name, len(row.Attacks), len(s.attacks))
		}
		for _, a := range row.Attacks {
			if !a.shows(s.defect) {
				t.Errorf("%s: %s: %s, want %q", s.name, a.Name, a.Finding, s.defect)
			}
		}
		if row.Free.Actual == 0 || row.Throughput == 0 || row.Longest < row.P99 || row.P99 < row.Median {
			t.Errorf("%s: the free run measured nothing: %+v", s.name, row)
		}
		if lock := s.group == groupLock && s.on != onMySQL; lock != (row.Commands > 0) && s.group != groupBroken {
			t.Errorf("%s: %.1f commands an operation", s.name, row.Commands)
		}
	}
}
