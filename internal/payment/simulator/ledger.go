package simulator

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"seckill/internal/ids"
	"seckill/internal/payment"
)

//go:embed schema.sql
var schema string

var (
	errConflict = fmt.Errorf("%w: the key was used with another body", payment.ErrRefused)
	errInvalid  = fmt.Errorf("%w: the payment cannot be refunded by that much", payment.ErrRefused)
	errDecided  = errors.New("the payment is decided already")
)

// ledger is the simulator's memory: an SQLite file that survives a power cut, and that several processes may use.
type ledger struct{ db *sql.DB }

func (l *ledger) write(ctx context.Context, action string, work func(*sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	if err := work(tx); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", action, err), tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// Start makes a payment, or finds it.
func (l *ledger) Start(ctx context.Context, asked payment.Checkout) (p payment.Payment, err error) {
	r := asked.Request
	err = l.write(ctx, "start payment "+r.ID, func(tx *sql.Tx) error {
		err := execute(ctx, tx,
			"INSERT INTO payments (id, order_id, amount, currency) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
			r.ID, r.OrderID, r.Amount, r.Currency)
		if err != nil {
			return err
		}
		if p, err = find(ctx, tx, r.ID); err == nil && p.Request != r {
			err = errConflict
		}
		return err
	})
	return p, err
}

func (l *ledger) LookUp(ctx context.Context, id string) (p payment.Payment, err error) {
	err = l.write(ctx, "find payment "+id, func(tx *sql.Tx) error {
		p, err = find(ctx, tx, id)
		return err
	})
	return p, err
}

func find(ctx context.Context, tx *sql.Tx, id string) (payment.Payment, error) {
	p := payment.Payment{Request: payment.Request{ID: id}, URL: "/pay/" + id}
	err := tx.QueryRowContext(ctx, "SELECT order_id, amount, currency, status, refunded, EXISTS (SELECT 1 FROM disputes WHERE payment_id = id) FROM payments WHERE id = ?", id).
		Scan(&p.OrderID, &p.Amount, &p.Currency, &p.Status, &p.Refunded, &p.Disputed)
	if errors.Is(err, sql.ErrNoRows) {
		err = payment.ErrNotFound
	}
	return p, err
}

// decide makes a decision, and writes the webhooks that tell of it in the same transaction, so that none is forgotten.
func (l *ledger) decide(ctx context.Context, id string, decision Decision, now time.Time, delay time.Duration) error {
	return l.write(ctx, string(decision)+" payment "+id, func(tx *sql.Tx) error {
		p, err := find(ctx, tx, id)
		if err != nil {
			return err
		}
		pending, succeeded := p.Status == payment.Pending, p.Status == payment.Succeeded
		ended := map[Decision]payment.Status{Approve: payment.Succeeded, Decline: payment.Failed}[decision] //nolint:exhaustive // the others end nothing
		back := map[Decision]int64{Refund: p.Amount, Lose: p.Amount, RefundPart: 1}[decision]               //nolint:exhaustive // the others give nothing back
		back = min(back, p.Amount-p.Refunded)
		switch {
		case pending && decision == Delay:
			return execute(ctx, tx, "UPDATE payments SET approve_at = ? WHERE id = ?", now.Add(delay).UnixMicro(), id)
		case pending && ended != "":
			err = execute(ctx, tx, "UPDATE payments SET status = ?, approve_at = NULL WHERE id = ?", ended, id)
			return errors.Join(err, tell(ctx, tx, "payment."+string(ended), p, now))
		case succeeded && back > 0:
			key, err := ids.New()
			err = errors.Join(err, giveBack(ctx, tx, "page_"+key,
				payment.Refund{PaymentID: id, Money: payment.Money{Amount: back, Currency: p.Currency}}))
			p.Refunded += back
			if err = errors.Join(err, tell(ctx, tx, payment.EventRefunded, p, now)); err != nil || decision != Lose ||
				!p.Disputed {
				return err
			}
			return dispute(ctx, tx, p, now)
		case succeeded && decision == Dispute && !p.Disputed, succeeded && decision == Win && p.Disputed:
			return dispute(ctx, tx, p, now)
		default:
			return errDecided
		}
	})
}

func execute(ctx context.Context, tx *sql.Tx, statement string, args ...any) error {
	_, err := tx.ExecContext(ctx, statement, args...)
	return err
}

// dispute opens a payment's dispute, or ends the one that is open.
func dispute(ctx context.Context, tx *sql.Tx, p payment.Payment, now time.Time) error {
	change := "INSERT INTO disputes (payment_id) VALUES (?)"
	if p.Disputed {
		change = "DELETE FROM disputes WHERE payment_id = ?"
	}
	p.Disputed = !p.Disputed
	return errors.Join(execute(ctx, tx, change, p.ID), tell(ctx, tx, payment.EventDisputed, p, now))
}

// tell writes a webhook that is to be sent from an instant on.
func tell(ctx context.Context, tx *sql.Tx, kind string, p payment.Payment, at time.Time) error {
	event := payment.Event{Type: kind, Data: payment.EventData{PaymentID: p.ID, OrderID: p.OrderID, Money: p.Money}}
	if kind == payment.EventRefunded || kind == payment.EventDisputed {
		event.Data.Refunded, event.Data.Disputed = p.Refunded, &p.Disputed
	}
	body, err := json.Marshal(event)
	if err != nil {
		return err
	}
	id, err := ids.New()
	if err != nil {
		return err
	}
	return execute(ctx, tx, "INSERT INTO webhooks (id, body, send_at) VALUES (?, ?, ?)", "msg_"+id, body,
		at.UnixMicro())
}

// delayed is a payment that is due to approve itself; empty: there is none.
func (l *ledger) delayed(ctx context.Context, now time.Time) (id string, err error) {
	err = l.db.QueryRowContext(ctx, "SELECT id FROM payments WHERE approve_at <= ? ORDER BY approve_at LIMIT 1",
		now.UnixMicro()).Scan(&id)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("find a delayed payment: %w", err)
	}
	return id, nil
}

// Refund gives money back, once for a key.
func (l *ledger) Refund(ctx context.Context, key string, r payment.Refund) error {
	return l.write(ctx, "refund payment "+r.PaymentID, func(tx *sql.Tx) error {
		p, err := find(ctx, tx, r.PaymentID)
		if err != nil {
			return err
		}
		done := payment.Refund{}
		err = tx.QueryRowContext(ctx, "SELECT payment_id, amount, currency FROM refunds WHERE idempotency_key = ?",
			key).
			Scan(&done.PaymentID, &done.Amount, &done.Currency)
		switch {
		case err == nil && done == r:
			return nil
		case err == nil:
			return errConflict
		case !errors.Is(err, sql.ErrNoRows):
			return err
		case p.Status != payment.Succeeded || p.Currency != r.Currency || r.Amount > p.Amount-p.Refunded:
			return errInvalid
		}
		return giveBack(ctx, tx, key, r)
	})
}

func giveBack(ctx context.Context, tx *sql.Tx, key string, r payment.Refund) error {
	return errors.Join(
		execute(ctx, tx, "UPDATE payments SET refunded = refunded + ? WHERE id = ?", r.Amount, r.PaymentID),
		execute(ctx, tx, "INSERT INTO refunds (idempotency_key, payment_id, amount, currency) VALUES (?, ?, ?, ?)",
			key, r.PaymentID, r.Amount, r.Currency))
}

type webhook struct {
	id       string
	body     []byte
	attempts int
}

// claim takes a due webhook and puts its next attempt off for a lease, so that no other process sends it. Zero: none.
func (l *ledger) claim(ctx context.Context, now time.Time, lease time.Duration) (hook webhook, err error) {
	err = l.db.QueryRowContext(ctx, `UPDATE webhooks SET attempts = attempts + 1, send_at = ?
		WHERE id = (SELECT id FROM webhooks WHERE send_at <= ? ORDER BY send_at LIMIT 1) RETURNING id, body, attempts`,
		now.Add(lease).UnixMicro(), now.UnixMicro()).Scan(&hook.id, &hook.body, &hook.attempts)
	if errors.Is(err, sql.ErrNoRows) {
		return webhook{}, nil
	}
	if err != nil {
		return webhook{}, fmt.Errorf("claim a webhook: %w", err)
	}
	return hook, nil
}

// reschedule has a webhook sent again at an instant; a zero one means never.
func (l *ledger) reschedule(ctx context.Context, id string, at time.Time) error {
	next := sql.NullInt64{Int64: at.UnixMicro(), Valid: !at.IsZero()}
	if _, err := l.db.ExecContext(ctx, "UPDATE webhooks SET send_at = ? WHERE id = ?", next, id); err != nil {
		return fmt.Errorf("reschedule webhook %s: %w", id, err)
	}
	return nil
}

// Balance is what the ledger adds up to.
type Balance struct {
	Payments  int64 // that have succeeded
	Received  int64 // minor units
	Refunds   int64
	Refunded  int64 // minor units
	Undecided int64 // payments
	Unsent    int64 // webhooks that are still to be delivered
}

// Balance adds the ledger up.
func (s *Server) Balance(ctx context.Context) (b Balance, err error) {
	err = s.ledger.db.QueryRowContext(ctx, `SELECT
		(SELECT COUNT(*) FROM payments WHERE status = 'succeeded'), (SELECT COALESCE(SUM(amount), 0) FROM payments WHERE status = 'succeeded'),
		(SELECT COUNT(*) FROM refunds), (SELECT COALESCE(SUM(amount), 0) FROM refunds),
		(SELECT COUNT(*) FROM payments WHERE status = 'pending'), (SELECT COUNT(*) FROM webhooks WHERE send_at IS NOT NULL)`).
		Scan(&b.Payments, &b.Received, &b.Refunds, &b.Refunded, &b.Undecided, &b.Unsent)
	if err != nil {
		return b, fmt.Errorf("add the ledger up: %w", err)
	}
	return b, nil
}
