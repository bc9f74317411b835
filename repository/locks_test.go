package repository_test

import (
	"os"
	"strings"
	"testing"

	"seckill/lock"
)

// The lock package says how its table looks; the migration must say the same,
// comments aside.
func TestLockTableIsTheLockPackagesOwn(t *testing.T) {
	t.Parallel()
	migration, err := os.ReadFile("migrations/mysql/00005_locks.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, statement, found := strings.Cut(string(migration), "-- +goose Up")
	if !found {
		t.Fatal("the migration has no Up")
	}
	if got, want := bare(statement), bare(lock.MySQLTable(lock.DefaultTable)); got != want {
		t.Errorf("the migration says\n%s\nthe lock package\n%s", got, want)
	}
}

// bare leaves out what does not matter: comments, spaces, the semicolon.
func bare(statement string) string {
	for {
		before, after, found := strings.Cut(statement, " COMMENT '")
		if !found {
			break
		}
		_, after, _ = strings.Cut(after, "'")
		statement = before + after
	}
	return strings.ToLower(strings.Join(strings.Fields(strings.TrimSuffix(strings.TrimSpace(statement), ";")), " "))
}
