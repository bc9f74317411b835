package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver of the server's own connections
	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
)

func TestEmbedded(t *testing.T) {
	t.Parallel()
	wantVerdicts(t, run(t, Options{}), func(s strategy) bool { return s.on == onMySQL })
}

//nolint:tparallel // one after the other: each looks at what the ones before have left behind
func TestOnServers(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	var urls []string
	for range quorumSize {
		urls = append(urls, testserver.Redis(t).URL())
	}
	dsn := database.DSN(testserver.DefaultSchema)
	foreign(t, dsn, urls)

	t.Run("every strategy", func(t *testing.T) { //nolint:paralleltest // see above
		report := run(t, Options{Redis: urls, DSN: dsn})
		wantVerdicts(t, report, func(strategy) bool { return false })
		for _, row := range report.Rows {
			if row.On == "embedded" || row.On == "sqlite" {
				t.Errorf("%s ran on %s", row.Name, row.On)
			}
		}
		wantOnlyForeign(t, dsn, urls)
	})
	t.Run("one Redis", func(t *testing.T) { //nolint:paralleltest // see above
		report := run(t, Options{Redis: urls[:1], only: func(s strategy) bool { return s.name == "redis hash" || s.name == "redlock" }})
		check.Equal(t, "where the Redis hash ran", report.Rows[0].On, "redis")
		check.Equal(t, "where the quorum ran", report.Rows[1].On, "embedded ×3")
		wantOnlyForeign(t, dsn, urls)
	})
	t.Run("broken, said to be real", func(t *testing.T) { //nolint:paralleltest // see above
		liar := strategyNamed("FOR UPDATE after the read")
		liar.defect = defectNone
		if row := run(t, Options{DSN: dsn, rows: []strategy{liar}}).Rows[0]; row.Verdict != VerdictDefect {
			t.Errorf("%s, want %s", row.Verdict, VerdictDefect)
		}
	})
	t.Run("an account that may not", func(t *testing.T) { //nolint:paralleltest // see above
		withMySQL(t, database.AdminDSN(testserver.DefaultSchema), func(db *sql.DB) error {
			_, err := db.ExecContext(t.Context(), "CREATE USER poor@'%'")
			return err
		})
		_, err := Run(t.Context(), Options{DSN: "poor@tcp(" + database.Addr() + ")/", Spawn: spawnSelf})
		if err == nil || !strings.Contains(err.Error(), "GRANT ALL ON `seckill_lab_%`.*") {
			t.Errorf("%v, want a hint at what is missing", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) { //nolint:paralleltest // see above
		for _, at := range []string{"", "mysql table"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := errors.New("Ctrl-C")
			interrupt := &interrupter{Progress: NewProgress(io.Discard, false), cancel: func() { cancel(stopped) }, at: at}
			_, err := Run(ctx, Options{
				Redis: urls, DSN: dsn, Spawn: spawnSelf, Progress: interrupt,
				only: func(s strategy) bool { return s.group == groupLock || s.group == groupStock },
			})
			if !errors.Is(err, stopped) {
				t.Fatalf("interrupted at %q Run answered %v, want what stopped it", at, err)
			}
			wantOnlyForeign(t, dsn, urls)
		}
	})
}

// interrupter stops a run when a row begins, or when the first has been
// attacked and others are in the middle of it.
type interrupter struct {
	Progress
	cancel func()
	at     string // the row; empty: under attack
}

func (i *interrupter) Attacked() {
	if i.at == "" {
		i.cancel()
	}
}

func (i *interrupter) Start(name string) {
	if name == i.at {
		i.cancel()
	}
}

// wantVerdicts wants every defect shown and every cure to hold.
func wantVerdicts(t *testing.T, report Report, missing func(strategy) bool) {
	t.Helper()
	for i, s := range catalog() {
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

// foreign puts keys and a table that are not the lab's where it works.
func foreign(t *testing.T, dsn string, urls []string) {
	t.Helper()
	for _, url := range urls {
		withRedis(t, url, func(c *redis.Client) error {
			return c.Set(t.Context(), "seckill:lab:somebody:else", "1", 0).Err()
		})
	}
	withMySQL(t, dsn, func(db *sql.DB) error {
		_, err := db.ExecContext(t.Context(), "CREATE TABLE vouchers (mine INT)")
		return err
	})
}

func wantOnlyForeign(t *testing.T, dsn string, urls []string) {
	t.Helper()
	for _, url := range urls {
		withRedis(t, url, func(c *redis.Client) error {
			keys, err := c.Keys(t.Context(), "*").Result()
			if len(keys) != 1 || keys[0] != "seckill:lab:somebody:else" {
				t.Errorf("keys afterwards: %q", keys)
			}
			return err
		})
	}
	withMySQL(t, dsn, func(db *sql.DB) error {
		var schemas, tables int
		err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE ?",
			schemaPrefix+"%").Scan(&schemas)
		if err != nil {
			return fmt.Errorf("count schemas: %w", err)
		}
		err = db.QueryRowContext(t.Context(),
			"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&tables)
		if schemas != 0 || tables != 1 {
			t.Errorf("afterwards there are %d schemas of the lab and %d tables in the foreign one, want 0 and 1", schemas, tables)
		}
		return err
	})
}

func withRedis(t *testing.T, url string, use func(*redis.Client) error) {
	t.Helper()
	client := check.Value(newClient(url, nil))(t)
	defer client.Close()
	check.Must(t, use(client))
}

func withMySQL(t *testing.T, dsn string, use func(*sql.DB) error) {
	t.Helper()
	db := check.Value(sql.Open("mysql", dsn))(t)
	defer db.Close()
	check.Must(t, use(db))
}
