package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// tables are the lab's own: an account and a stock as one row, with the constraint that is
// the last guard of every strategy, and once more as units, without; messages; locks.
func tables() []string {
	return []string{
		`CREATE TABLE lab_accounts (
			name VARCHAR(64) NOT NULL PRIMARY KEY,
			balance BIGINT NOT NULL,
			remaining BIGINT NOT NULL,
			units BIGINT NOT NULL DEFAULT 0,
			version BIGINT NOT NULL DEFAULT 0,
			CONSTRAINT lab_remaining_not_negative CHECK (remaining >= 0)
		)`,
		"CREATE TABLE lab_messages (name VARCHAR(96) NOT NULL, number VARCHAR(64) NOT NULL, PRIMARY KEY (name, number))",
		"CREATE TABLE lab_locks (name VARCHAR(64) NOT NULL PRIMARY KEY, owner VARCHAR(64) NOT NULL)",
	}
}

const selectAccount = "SELECT balance, remaining FROM lab_accounts WHERE name = ?"

// row is one account and stock in that table.
type row struct {
	db   *sql.DB
	name string
}

func openRow(s setup) ledger { return row{s.db.SQL(), s.Name} }

func (r row) open(ctx context.Context, stock int64) error {
	_, err := r.db.ExecContext(ctx, "INSERT INTO lab_accounts (name, balance, remaining) VALUES (?, 0, ?)", r.name, stock)
	if err != nil {
		return fmt.Errorf("open the account %s: %w", r.name, err)
	}
	return nil
}

func (r row) read(ctx context.Context) (figures, error) { return r.readBy(ctx, r.db, selectAccount) }

// connection is a database or a transaction.
type connection interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (r row) readBy(ctx context.Context, by connection, query string) (f figures, err error) {
	if err := by.QueryRowContext(ctx, query, r.name).Scan(&f.Balance, &f.Remaining); err != nil {
		return figures{}, fmt.Errorf("read the account %s: %w", r.name, err)
	}
	return f, nil
}

// write changes the account; the name is the last argument of the statement.
func (r row) write(ctx context.Context, by connection, statement string, args ...any) error {
	if _, err := by.ExecContext(ctx, statement, append(args, r.name)...); err != nil {
		return fmt.Errorf("write the account %s: %w", r.name, err)
	}
	return nil
}

// openOnRow makes the opener of a strategy that works on a row.
func openOnRow(work func(ctx context.Context, r row, stand pause) (tally, error)) opener {
	return func(s setup) (perform, error) {
		return func(ctx context.Context) (tally, error) { return work(ctx, row{s.db.SQL(), s.Name}, s.pause) }, nil
	}
}

// cells are an account and a stock kept as two plain Redis keys. Nothing but
// the lock under test protects them.
type cells struct {
	client             *redis.Client
	balance, remaining string
}

func newCells(s setup) cells { return cells{s.redis, s.key("balance"), s.key("remaining")} }

// openCells is the ledger of strategies whose account lives in Redis.
func openCells(s setup) ledger { return newCells(s) }

func (c cells) open(ctx context.Context, stock int64) error {
	return c.write(ctx, figures{Remaining: stock})
}

func (c cells) read(ctx context.Context) (f figures, err error) {
	values, err := c.client.MGet(ctx, c.balance, c.remaining).Result()
	if err == nil {
		_, err = fmt.Sscan(fmt.Sprintln(values...), &f.Balance, &f.Remaining)
	}
	if err != nil {
		return figures{}, fmt.Errorf("read the account: %w", err)
	}
	return f, nil
}

func (c cells) write(ctx context.Context, f figures) error {
	if err := c.client.MSet(ctx, c.balance, f.Balance, c.remaining, f.Remaining).Err(); err != nil {
		return fmt.Errorf("write the account: %w", err)
	}
	return nil
}
