package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"seckill/internal/payment"
	"seckill/internal/sqlitefile"
)

//go:embed schema.sql
var schema string

// book is what the adapter remembers: an SQLite file.
type book struct{ db *sql.DB }

// entry is one payment in it.
type entry struct {
	payment.Checkout

	sessionExpiresAt time.Time
	session          string // Stripe's id; empty: Stripe has not answered
}

func openBook(ctx context.Context, file string) (*book, error) {
	connector, err := sqlitefile.Connector(file, nil)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	b := &book{db: sql.OpenDB(connector)}
	b.db.SetMaxOpenConns(1)
	if _, err := b.db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", file, err), b.db.Close())
	}
	return b, nil
}

// enter keeps a payment before Stripe hears of it, or finds the one that is there.
func (b *book) enter(ctx context.Context, e entry) (entry, error) {
	document, err := json.Marshal(e.Checkout)
	if err != nil {
		return entry{}, fmt.Errorf("write payment %s: %w", e.ID, err)
	}
	if _, err := b.db.ExecContext(ctx, "INSERT INTO payments (id, checkout, session_expires_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
		e.ID, string(document), e.sessionExpiresAt.Unix()); err != nil {
		return entry{}, fmt.Errorf("keep payment %s: %w", e.ID, err)
	}
	return b.find(ctx, e.ID)
}

func (b *book) find(ctx context.Context, id string) (entry, error) {
	var e entry
	var document string
	var expires int64
	err := b.db.QueryRowContext(ctx, "SELECT checkout, session_expires_at, session FROM payments WHERE id = ?", id).Scan(&document, &expires, &e.session)
	if errors.Is(err, sql.ErrNoRows) {
		return e, payment.ErrNotFound
	}
	if err == nil {
		err = json.Unmarshal([]byte(document), &e.Checkout)
	}
	if err != nil {
		return e, fmt.Errorf("find payment %s: %w", id, err)
	}
	e.sessionExpiresAt = time.Unix(expires, 0)
	return e, nil
}

// note keeps the session that a payment has become.
func (b *book) note(ctx context.Context, id, session string) error {
	if _, err := b.db.ExecContext(ctx, "UPDATE payments SET session = ? WHERE id = ?", session, id); err != nil {
		return fmt.Errorf("keep the session of payment %s: %w", id, err)
	}
	return nil
}

// forget drops a payment that Stripe has refused: nothing has happened.
func (b *book) forget(ctx context.Context, id string) error {
	if _, err := b.db.ExecContext(ctx, "DELETE FROM payments WHERE id = ? AND session = ''", id); err != nil {
		return fmt.Errorf("forget payment %s: %w", id, err)
	}
	return nil
}
