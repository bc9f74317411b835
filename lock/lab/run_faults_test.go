//go:build faults

//part:locks

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

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

	t.Run("every strategy", func(t *testing.T) {
		report := run(t, Options{Redis: urls, DSN: dsn, Real: true})
		wantVerdicts(t, report, catalog(), func(strategy) bool { return false })
		for _, row := range report.Rows {
			if row.On == "embedded" || row.On == "sqlite" {
				t.Errorf("%s ran on %s", row.Name, row.On)
			}
		}
		wantOnlyForeign(t, dsn, urls)
	})
	t.Run("one Redis", func(t *testing.T) {
		report := run(t, Options{Redis: urls[:1], only: func(s strategy) bool { return s.name == "redis hash" || s.name == "redlock" }})
		check.Equal(t, "where the Redis hash ran", report.Rows[0].On, "redis")
		check.Equal(t, "where the quorum ran", report.Rows[1].On, "embedded ×3")
		wantOnlyForeign(t, dsn, urls)
	})
	t.Run("an account that may not", func(t *testing.T) {
		withMySQL(t, database.AdminDSN(testserver.DefaultSchema), func(db *sql.DB) error {
			_, err := db.ExecContext(t.Context(), "CREATE USER poor@'%'")
			return err
		})
		_, err := Run(t.Context(), Options{DSN: "poor@tcp(" + database.Addr() + ")/", Spawn: spawnSelf})
		if err == nil || !strings.Contains(err.Error(), "GRANT ALL ON `seckill_lab_%`.*") {
			t.Errorf("%v, want a hint at what is missing", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		for _, at := range []string{"", "mysql table"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := errors.New("Ctrl-C")
			interrupt := interruptedAt(at, func() { cancel(stopped) })
			_, err := Run(ctx, Options{
				Redis: urls, DSN: dsn, Spawn: spawnSelf, Progress: interrupt,
				only: func(s strategy) bool { return s.group == groupLock || s.group == groupStock },
			})
			check.Is(t, "interrupted at "+at, err, stopped)
			wantOnlyForeign(t, dsn, urls)
		}
	})
}

// TestPromotedRows: one lock has two holders each time that its replica is promoted, also when its primary lives on, and the
// cures never have. ROUNDS says how often.
func TestPromotedRows(t *testing.T) {
	t.Parallel()
	for _, s := range onReplicas(false) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var together [2]int // by attack
			rounds := check.Count(t, "ROUNDS", 1, 2)
			for range rounds {
				row := shown(t, s.name)
				check.That(t, row.OK(), "%s: %v %+v", row.Verdict, row.Err, row.Attacks)
				for i, a := range row.Attacks {
					together[i] += min(int(a.Together()), 1)
				}
			}
			t.Logf("%s: of %d rounds %d had two holders after a promotion, and %d in a split brain", s.name, rounds, together[0], together[1])
			want := 0
			if s.broken() {
				want = rounds
			}
			check.Equal(t, "rounds with two holders", together, [2]int{want, want})
		})
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
