package lab

import (
	"context"
	"database/sql"
	"fmt"

	"seckill/repository"
)

// accountsTable is the lab's own table: an account and a stock as one row,
// with the constraint that is the last guard of every strategy.
const accountsTable = `CREATE TABLE lab_accounts (
	name VARCHAR(64) NOT NULL PRIMARY KEY,
	balance BIGINT NOT NULL,
	remaining BIGINT NOT NULL,
	CONSTRAINT lab_remaining_not_negative CHECK (remaining >= 0)
)`

func createAccounts(ctx context.Context, db *repository.Database) error {
	if _, err := db.SQL().ExecContext(ctx, accountsTable); err != nil {
		return fmt.Errorf("make the lab's table: %w", err)
	}
	return nil
}

// row is one account and stock in that table.
type row struct {
	db   *sql.DB
	name string
}

func newRow(s setup) row { return row{s.db.SQL(), s.Name} }

func openRow(_ context.Context, s setup) (ledger, error) { return newRow(s), nil }

func (r row) open(ctx context.Context, stock int64) error {
	_, err := r.db.ExecContext(ctx, "INSERT INTO lab_accounts (name, balance, remaining) VALUES (?, 0, ?)", r.name, stock)
	if err != nil {
		return fmt.Errorf("open the account %s: %w", r.name, err)
	}
	return nil
}

func (r row) read(ctx context.Context) (figures, error) {
	return r.readBy(ctx, r.db, "SELECT balance, remaining FROM lab_accounts WHERE name = ?")
}

func (r row) readBy(ctx context.Context, by querier, query string) (figures, error) {
	var f figures
	if err := by.QueryRowContext(ctx, query, r.name).Scan(&f.Balance, &f.Remaining); err != nil {
		return figures{}, fmt.Errorf("read the account %s: %w", r.name, err)
	}
	return f, nil
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (row) close() error { return nil }
