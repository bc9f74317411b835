package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"

	"seckill/repository"
)

// schemaPrefix begins the name of every schema the lab makes.
const schemaPrefix = "seckill_lab_"

// What MySQL answers to an account that may not make a schema.
const (
	deniedSchema  = 1044
	deniedCommand = 1142
)

// ownSchema makes a schema for this run alone, so that nothing in the one the
// DSN names is touched. It returns the DSN of the new one and what drops it.
func ownSchema(ctx context.Context, dsn, id string) (own string, drop func(context.Context) error, err error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		// The parser's message may repeat a piece of the password.
		return "", nil, errors.New("the DSN does not parse: user:password@tcp(host:port)/schema is expected")
	}
	name := schemaPrefix + id
	config.DBName = ""
	statement := func(ctx context.Context, text string) error {
		// An interrupted CREATE may have happened, and no one could tell.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBudget)
		defer cancel()
		db, err := sql.Open("mysql", config.FormatDSN())
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, text)
		return errors.Join(err, db.Close())
	}
	if err := statement(ctx, "CREATE DATABASE "+name); err != nil {
		hint := ""
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && slices.Contains([]uint16{deniedSchema, deniedCommand}, e.Number) {
			hint = fmt.Sprintf(" (GRANT ALL ON `%s%%`.* lets an account do that)", schemaPrefix)
		}
		return "", nil, fmt.Errorf("make a schema of the lab's own%s: %w", hint, err)
	}
	drop = func(ctx context.Context) error {
		if err := statement(ctx, "DROP DATABASE "+name); err != nil {
			return fmt.Errorf("drop the lab's schema %s: %w", name, err)
		}
		return nil
	}
	config.DBName = name
	return config.FormatDSN(), drop, nil
}

// openDatabase opens the run's database with the tables of the product, that of
// its MySQL locks among them, and the lab's own.
func openDatabase(ctx context.Context, s site) (*repository.Database, error) {
	db, err := repository.Open(ctx, repository.Options{DSN: s.DSN, SQLiteFile: s.SQLite})
	if err != nil {
		return nil, err
	}
	err = db.Migrate(ctx)
	if err == nil {
		err = createAccounts(ctx, db)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// isMySQL is for the few statements that SQLite does not have.
func isMySQL(db *repository.Database) bool { return db.Dialect() == "mysql" }
