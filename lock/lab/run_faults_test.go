//go:build faults

//part:locks

package main

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// TestProgram runs the laboratory as a person does: with a MariaDB of its own, and a page.
func TestProgram(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	page := filepath.Join(t.TempDir(), "lab.html")
	code := command(check.Context(t), []string{"-workers", "2", "-operations", "2", "-html", page}, strings.NewReader(""), &stdout, &stderr)
	check.Equal(t, "the exit code: "+stderr.String(), code, 0)
	html := string(check.Value(os.ReadFile(page))(t))
	for _, want := range []string{"local mutex, 2 processes", "broken as expected", "redis hash", "correct"} {
		check.That(t, strings.Contains(stdout.String(), want), "the table lacks %q:\n%s", want, stdout.String())
		check.That(t, strings.Contains(html, want), "the page lacks %q", want)
	}
	check.That(t, strings.Contains(html, `class="twice"`), "the page shows no two holders at once")
	check.That(t, !strings.Contains(stdout.String(), string(VerdictNeedsMySQL)), "it started no MariaDB of its own")
}

// interrupting interrupts when a text is written.
type interrupting struct {
	bytes.Buffer

	at        string
	interrupt func()
}

func (w *interrupting) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.at)) {
		w.interrupt()
	}
	return w.Buffer.Write(b)
}

//nolint:tparallel // one after the other: each looks at what the ones before have left behind
func TestOnServers(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	var urls []string
	for range quorumSize {
		urls = append(urls, testserver.Redis(t).URL())
		withRedis(t, urls[len(urls)-1], func(c *redis.Client) error {
			return c.Set(t.Context(), "seckill:lab:somebody:else", "1", 0).Err()
		})
	}
	dsn := database.DSN(testserver.DefaultSchema)
	withMySQL(t, dsn, "CREATE TABLE vouchers (mine INT)")

	t.Run("every strategy", func(t *testing.T) {
		r := run(t, options{redis: urls, dsn: dsn, rows: catalog()})
		wantVerdicts(t, r, func(strategy) bool { return false })
		for _, row := range r.Rows {
			check.That(t, row.On != "embedded" && row.On != "sqlite", "%s ran on %s", row.Name, row.On)
		}
		wantOnlyForeign(t, dsn, urls)
	})
	t.Run("one Redis", func(t *testing.T) {
		rows := rowsOf(func(s strategy) bool { return s.Name == "redis hash" || s.Name == "redlock" })
		r := run(t, options{redis: urls[:1], rows: rows})
		check.Equal(t, "where the Redis hash ran", r.Rows[0].On, "redis")
		check.Equal(t, "where the quorum ran", r.Rows[1].On, "embedded ×3")
		wantOnlyForeign(t, dsn, urls)
	})
	t.Run("an account that may not", func(t *testing.T) {
		withMySQL(t, database.AdminDSN(testserver.DefaultSchema), "CREATE USER poor@'%'")
		_, err := experiment(t.Context(), small(t, options{dsn: "poor@tcp(" + database.Addr() + ")/"}))
		if err == nil || !strings.Contains(err.Error(), "GRANT ALL ON `seckill_lab_%`.*") {
			t.Errorf("%v, want a hint at what is missing", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, interrupt := context.WithCancel(check.Context(t))
		stderr := &interrupting{at: " 3/", interrupt: interrupt}
		args := []string{"-redis", strings.Join(urls, ","), "-dsn", dsn}
		code := command(ctx, args, strings.NewReader(""), &bytes.Buffer{}, stderr)
		check.That(t, code == exitError && strings.Contains(stderr.String(), "interrupted"), "exit %d, stderr %q", code, stderr.String())
		wantOnlyForeign(t, dsn, urls)
	})
}

// TestPromotedRows: one lock has two holders each time that its replica is promoted, also when its primary lives on, and the
// cures never have. ROUNDS says how often.
func TestPromotedRows(t *testing.T) {
	t.Parallel()
	for _, s := range onReplicas() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			var together [2]int // by attack
			rounds := check.Count(t, "ROUNDS", 1, 2)
			for range rounds {
				row := shown(t, s.Name)
				check.That(t, row.OK(), "%s: %v %+v", row.Verdict, row.Err, row.Attacks)
				for i, a := range row.Attacks {
					together[i] += min(int(a.Together()), 1)
				}
			}
			t.Logf("%s: of %d rounds %d had two holders after a promotion, and %d in a split brain", s.Name, rounds, together[0], together[1])
			want := 0
			if s.broken() {
				want = rounds
			}
			check.Equal(t, "rounds with two holders", together, [2]int{want, want})
		})
	}
}

// wantOnlyForeign wants what was there before, and nothing of the lab.
func wantOnlyForeign(t *testing.T, dsn string, urls []string) {
	t.Helper()
	for _, url := range urls {
		withRedis(t, url, func(c *redis.Client) error {
			keys, err := c.Keys(t.Context(), "*").Result()
			check.That(t, len(keys) == 1 && keys[0] == "seckill:lab:somebody:else", "keys afterwards: %q", keys)
			return err
		})
	}
	db := check.Value(sql.Open("mysql", dsn))(t)
	defer db.Close()
	var schemas, tables int
	check.Must(t, db.QueryRowContext(t.Context(), `SELECT
		(SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE ?),
		(SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE())`, schemaPrefix+"%").Scan(&schemas, &tables))
	check.That(t, schemas == 0 && tables == 1,
		"afterwards there are %d schemas of the lab and %d tables in the foreign one, want 0 and 1", schemas, tables)
}

func withRedis(t *testing.T, url string, use func(*redis.Client) error) {
	t.Helper()
	client := newClient(url)
	defer client.Close()
	check.Must(t, use(client))
}

func withMySQL(t *testing.T, dsn, statement string) {
	t.Helper()
	db := check.Value(sql.Open("mysql", dsn))(t)
	defer db.Close()
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
}
