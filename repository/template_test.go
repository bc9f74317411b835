package repository_test

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"sync"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/repository/sqldb"
)

// A migration takes a hundred times as long as most tests. So a schema is migrated once and goes from one test to the
// next, emptied; and SQLite's file is a copy of one that was migrated.

// spare are the schemas that no test uses now. TestMain has nowhere to hand it to the tests.
var spare struct {
	mu      sync.Mutex
	schemas []*schema
	sqlite  []byte // a migrated file
}

// schema is one of MySQL that was migrated.
type schema struct {
	dsn   string
	clean string // the statements that make it as it was after the migrations
}

// migrated is a database of the test's own that is as the migrations leave it.
func migrated(t testing.TB, s store) sqldb.Options {
	t.Helper()
	if s.dialect == "sqlite" {
		options := emptyDatabase(t, s)
		check.Must(t, os.WriteFile(options.SQLiteFile, sqliteTemplate(t), 0o600))
		return options
	}
	spare.mu.Lock()
	defer spare.mu.Unlock()
	last := len(spare.schemas) - 1
	if last < 0 {
		spare.schemas, last = []*schema{newSchema(t)}, 0
	}
	taken := spare.schemas[last]
	spare.schemas = spare.schemas[:last]
	t.Cleanup(func() { taken.giveBack(t) }) // behind the closing of all that the test opens
	return sqldb.Options{DSN: taken.dsn, Slack: check.Deadline}
}

// lasting is a test whose schema stays when it ends. The server that all tests share goes, with all schemas.
type lasting struct{ testing.TB }

func (lasting) Cleanup(func()) {}

func newSchema(t testing.TB) *schema {
	t.Helper()
	s := &schema{dsn: testserver.Schema(lasting{t})}
	db := check.Value(sqldb.Open(t.Context(), sqldb.Options{DSN: s.dsn, Slack: check.Deadline}))(t)
	defer func() { check.Must(t, db.Close()) }()
	check.Must(t, db.Migrate(t.Context()))
	for _, table := range list(t, db.SQL(), "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()") {
		if table == "schema_versions" {
			continue
		}
		s.clean += "DELETE FROM " + table + ";"
		columns := strings.Join(list(t, db.SQL(), "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '"+table+"'"), ", ")
		for _, row := range list(t, db.SQL(), "SELECT CONCAT_WS(', ', QUOTE("+strings.ReplaceAll(columns, ", ", "), QUOTE(")+")) FROM "+table) {
			s.clean += "INSERT INTO " + table + " (" + columns + ") VALUES (" + row + ");"
		}
	}
	return s
}

func (s *schema) giveBack(t testing.TB) {
	t.Helper()
	db := check.Value(sql.Open("mysql", s.dsn+"?multiStatements=true"))(t)
	defer db.Close()
	if _, err := db.ExecContext(context.Background(), s.clean); err != nil {
		t.Errorf("the schema cannot be emptied: %v (is a transaction of the test still open, or a table changed?)", err)
		return
	}
	spare.mu.Lock()
	defer spare.mu.Unlock()
	spare.schemas = append(spare.schemas, s)
}

// list is the only column of what a question finds.
func list(t testing.TB, db *sql.DB, question string) (all []string) {
	t.Helper()
	rows := check.Value(db.QueryContext(t.Context(), question))(t)
	defer rows.Close()
	for rows.Next() {
		var one string
		check.Must(t, rows.Scan(&one))
		all = append(all, one)
	}
	check.Must(t, rows.Err())
	return all
}

func sqliteTemplate(t testing.TB) []byte {
	t.Helper()
	spare.mu.Lock()
	defer spare.mu.Unlock()
	if spare.sqlite == nil {
		options := emptyDatabase(t, store{dialect: "sqlite"})
		db := check.Value(sqldb.Open(t.Context(), options))(t)
		check.Must(t, db.Migrate(t.Context()))
		check.Must(t, db.Close()) // which empties the log into the file
		spare.sqlite = check.Value(os.ReadFile(options.SQLiteFile))(t)
	}
	return spare.sqlite
}
