// Package simulator is a payment provider to try out, without real money: a ledger, a page to decide on, and webhooks.
package simulator

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/internal/payment"
	"seckill/internal/poll"
	"seckill/internal/sqlitefile"
	"seckill/internal/words"
)

// maxBody bounds a request's body in bytes; an honest one has some hundred.
const maxBody = 16 << 10

// Options are what a simulator works with. All but DelayFor are required.
type Options struct {
	File       string              // of the ledger, made when missing
	Keys       []string            // the bearer keys of the API
	Signatures *payment.Signatures // of its webhooks
	Log        *slog.Logger
	// DelayFor is how long a delayed payment waits; zero is 30 s.
	DelayFor time.Duration
}

// Server is a simulated provider. It is an http.Handler; Run sends its webhooks.
type Server struct {
	Options
	*ledger

	pages *template.Template
	words *words.Catalogue
	mux   http.Handler
	wake  chan struct{}
}

//go:embed page.html style.css
var files embed.FS

// New opens the ledger.
func New(ctx context.Context, options Options) (*Server, error) {
	texts, err := words.New()
	if err != nil {
		return nil, err
	}
	pages, err := template.ParseFS(files, "page.html")
	if err != nil {
		return nil, fmt.Errorf("read the simulator's page: %w", err)
	}
	options.DelayFor = cmp.Or(options.DelayFor, budget.Settled)
	file, err := sqlitefile.Open(ctx, options.File, schema)
	if err != nil {
		return nil, fmt.Errorf("open the simulator's ledger: %w", err)
	}
	book := &ledger{file}
	s := &Server{Options: options, ledger: book, pages: pages, words: texts, wake: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	payment.Serve(mux, book, options.Keys, budget.Answer, options.Log)
	mux.HandleFunc("GET /pay/{id}", s.page)
	mux.HandleFunc("POST /pay/{id}", s.decide)
	mux.Handle("GET /style.css", http.FileServerFS(files))
	// A page of another origin must not press the buttons.
	s.mux = http.NewCrossOriginProtection().Handler(mux)
	return s, nil
}

// Close closes the ledger. Nothing may be under way.
func (s *Server) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close the simulator's ledger: %w", err)
	}
	return nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), budget.Answer)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin") // the path of a page is what allows to pay
	header.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	s.mux.ServeHTTP(w, r)
}

// Decision is what becomes of a payment on its page.
type Decision string

// The decisions.
const (
	Approve Decision = "approve"
	Decline Decision = "decline"
	Delay   Decision = "delay" // approves by itself after Options.DelayFor

	// Of a payment that has succeeded, by whoever runs the provider: the service has not asked for it.
	Refund     Decision = "refund"      // all that is left
	RefundPart Decision = "refund-part" // the smallest one
	Dispute    Decision = "dispute"
	Win        Decision = "win"  // the dispute, for the shop
	Lose       Decision = "lose" // all that is left goes back
)

// page shows a payment. Whoever knows its id, which cannot be guessed, may decide it.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	p, err := s.LookUp(r.Context(), r.PathValue("id"))
	if err != nil {
		s.failPage(w, r, err)
		return
	}
	var page bytes.Buffer
	// The simulator takes every currency for one with two decimals.
	price := fmt.Sprintf("%d.%02d %s", p.Amount/100, p.Amount%100, p.Currency)
	err = s.pages.ExecuteTemplate(&page, "page.html", shown{
		Payment: p, Price: price, Pending: p.Status == payment.Pending, Kept: p.Status == payment.Succeeded &&
			p.Refunded < p.Amount, Delay: s.DelayFor,
		Back: back(r), Language: s.words.Asked(r.Header.Get("Accept-Language")),
	})
	if err != nil {
		s.failPage(w, r, err)
		return
	}
	s.words.Asked(r.Header.Get("Accept-Language")).Label(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = page.WriteTo(w)
}

type shown struct {
	payment.Payment

	Price    string
	Pending  bool
	Kept     bool // money of it
	Delay    time.Duration
	Back     string // where the buyer came from; empty: that is not known
	Language *words.Language
}

// T is a text in the language of the page.
func (s shown) T(key string, args ...any) string { return s.Language.Text(key, args...) }

// back is where a page of this machine has said that the buyer came from. No other site is led to.
func back(r *http.Request) string {
	u, err := url.Parse(r.URL.Query().Get("back"))
	here := url.URL{Host: r.Host}
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() != here.Hostname() || u.User != nil {
		return ""
	}
	return u.String()
}

func (s *Server) decide(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form is not valid.", http.StatusBadRequest)
		return
	}
	id := r.PathValue("id")
	err := s.Decide(r.Context(), id, Decision(r.PostForm.Get("decision")))
	if err != nil && !errors.Is(err, errDecided) { // pressed twice: the page says how it was decided
		s.failPage(w, r, err)
		return
	}
	next := "/pay/" + id
	if from := back(r); from != "" {
		next += "?back=" + url.QueryEscape(from)
	}
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // to a path of this server
}

func (s *Server) failPage(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, payment.ErrNotFound):
		http.Error(w, "There is no such payment.", http.StatusNotFound)
	case errors.Is(err, errDecision):
		http.Error(w, "A payment is approved, declined or delayed.", http.StatusUnprocessableEntity)
	default:
		s.Log.WarnContext(r.Context(), "the payment simulator's page failed", slog.Any("error", err))
		http.Error(w, "The ledger failed.", http.StatusInternalServerError)
	}
}

const (
	deliverTimeout = budget.Answer + budget.Look // of one attempt: the service answers within 5 s
	deliverers     = 8                           // send at once, so that one slow answer does not hold up all
	// lease is how long a webhook is left to the process that sends it: an attempt, and noting it.
	lease = deliverTimeout + budget.Answer
	// maxAttempts are three days' worth; then the webhook is given up, and the service finds the payment by asking.
	maxAttempts = 440
)

var errDecision = errors.New("there is no such decision")

// Decide does what a button on the payment's page does.
func (s *Server) Decide(ctx context.Context, id string, decision Decision) error {
	if !slices.Contains([]Decision{Approve, Decline, Delay, Refund, RefundPart, Dispute, Win, Lose}, decision) {
		return errDecision
	}
	if err := s.ledger.decide(ctx, id, decision, time.Now(), s.DelayFor); err != nil {
		return err
	}
	poll.Wake(s.wake)
	return nil
}

// Run approves delayed payments and sends webhooks until ctx ends: each until a 204, ever more slowly, 3 days.
func (s *Server) Run(ctx context.Context, target string) {
	client := &http.Client{
		Transport: &http.Transport{
			MaxConnsPerHost: deliverers, MaxIdleConnsPerHost: deliverers,
			IdleConnTimeout: budget.Survey,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	var sending errgroup.Group
	sending.SetLimit(deliverers) // Go waits for a turn
	ticker := time.NewTicker(budget.Brief)
	defer ticker.Stop()
	for ctx.Err() == nil {
		more, err := s.look(ctx, func(hook webhook) {
			sending.Go(func() error {
				s.deliver(ctx, client, target, hook)
				return nil
			})
		})
		if err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "the payment simulator cannot work", slog.Any("error", err))
		}
		if more {
			continue
		}
		select {
		case <-ticker.C:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
	_ = sending.Wait()
}

// look does what is due of delayed payments and one webhook, and reports whether there may be more.
func (s *Server) look(ctx context.Context, send func(webhook)) (more bool, err error) {
	due, err := s.delayed(ctx, time.Now())
	if err != nil {
		return false, err
	}
	if due != "" {
		if err := s.Decide(ctx, due, Approve); err != nil && !errors.Is(err, errDecided) {
			return false, err
		}
	}
	hook, err := s.claim(ctx, time.Now(), lease)
	if err != nil || hook.id == "" {
		return due != "", err
	}
	send(hook)
	return true, nil
}

func (s *Server) deliver(ctx context.Context, client *http.Client, target string, hook webhook) {
	attempt, enough := context.WithTimeout(ctx, deliverTimeout)
	defer enough()
	err := s.Signatures.Send(attempt, client, target, hook.id, hook.body)
	next := time.Time{}
	if err != nil && hook.attempts < maxAttempts {
		next = time.Now().Add(backoff.Doubled(budget.Look, budget.Late, hook.attempts-1))
	}
	// At the stop too, so that what was delivered is not sent again after the next start.
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Answer)
	defer cancel()
	if err := errors.Join(err, s.reschedule(noting, hook.id, next)); err != nil && ctx.Err() == nil {
		s.Log.InfoContext(ctx, "the payment simulator could not deliver a webhook",
			slog.String("webhook_id", hook.id), slog.Int("attempt", hook.attempts), slog.Any("error", err))
	}
}

var errSecondLedger = errors.New("another instance on this database has the payment simulator, and this one keeps a ledger of its own, which does not know the payments of the other: " +
	"set SECKILL_PAYMENT_SIMULATOR=off here, SECKILL_PAYMENT_URL to the other one's simulator, and SECKILL_WEBHOOK_SECRETS as there")

// Claim logs whether another instance has a simulator, with a ledger of its own. An error: no answer until ctx ended.
func Claim(ctx context.Context, held func(ctx context.Context) (bool, error), log *slog.Logger) error {
	var ours bool
	var failed error    // of the last question, unless it was cut short
	var taken time.Time // when another instance was first seen to have it: a question that fails does not say that
	_ = poll.Until(ctx, budget.Call/10, func() (_ bool, err error) {
		ours, err = held(ctx)
		if ctx.Err() == nil {
			failed = err
		}
		if err == nil && taken.IsZero() {
			taken = time.Now()
		}
		return ours || !taken.IsZero() && time.Since(taken) >= budget.Call, nil
	})
	switch {
	case ours:
	case failed != nil:
		return fmt.Errorf("claim the payment simulator: %w", failed)
	default:
		log.WarnContext(ctx, "this is a second payment simulator", slog.Any("error", errSecondLedger))
	}
	return nil
}

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
