// Package simulator is a payment provider to try out: an HTTP server with a ledger of its own, a page on which a
// payment is approved, declined or delayed, and signed webhooks that are sent until they arrive. No real money
// moves. It speaks the protocol of package payment, and knows nothing else of the service.
package simulator

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"time"

	"seckill/internal/budget"
	"seckill/internal/payment"
	"seckill/internal/words"
	"seckill/model"
)

const (
	// maxBody bounds a request's body in bytes; an honest one has some hundred.
	maxBody = 16 << 10
	// maxKey bounds an idempotency key in bytes.
	maxKey = 255
)

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

	ledger *ledger
	pages  *template.Template
	words  *words.Catalogue
	mux    http.Handler
	wake   chan struct{}
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
	options.DelayFor = cmp.Or(options.DelayFor, budget.Settle)
	book, err := openLedger(ctx, options.File)
	if err != nil {
		return nil, err
	}
	s := &Server{Options: options, ledger: book, pages: pages, words: texts, wake: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", s.authorized(s.start))
	mux.HandleFunc("GET /payments/{id}", s.authorized(s.show))
	mux.HandleFunc("POST /payments/{id}/refunds", s.authorized(s.refund))
	mux.HandleFunc("GET /pay/{id}", s.page)
	mux.HandleFunc("POST /pay/{id}", s.decide)
	mux.HandleFunc("GET /style.css", style)
	// A page of another origin must not press the buttons.
	s.mux = http.NewCrossOriginProtection().Handler(mux)
	return s, nil
}

// Close closes the ledger. Nothing may be under way.
func (s *Server) Close() error {
	if err := s.ledger.close(); err != nil {
		return fmt.Errorf("close the simulator's ledger: %w", err)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), budget.Answer)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin") // the path of a page is what allows to pay
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	s.mux.ServeHTTP(w, r)
}

// authorized lets only the service in.
func (s *Server) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !payment.Authorized(r, s.Keys) {
			refuse(w, http.StatusUnauthorized, "the key is wrong")
			return
		}
		next(w, r)
	}
}

func (s *Server) start(w http.ResponseWriter, r *http.Request) {
	var asked payment.Request
	if !read(w, r, &asked) {
		return
	}
	if !model.ValidID(asked.ID) || !model.ValidID(asked.OrderID) || asked.Amount < 0 || asked.Amount > model.MaxAmount || len(asked.Currency) != 3 ||
		r.Header.Get("Idempotency-Key") != asked.ID {
		refuse(w, http.StatusUnprocessableEntity, "the payment is not valid")
		return
	}
	p, err := s.ledger.start(r.Context(), asked)
	s.answer(w, r, p, err)
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	p, err := s.ledger.find(r.Context(), r.PathValue("id"))
	s.answer(w, r, p, err)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, p payment.Payment, err error) {
	if err != nil {
		s.fail(w, r, err)
		return
	}
	p.URL = "http://" + r.Host + "/pay/" + p.ID // where whoever asks has found the simulator
	write(w, http.StatusOK, p)
}

func (s *Server) refund(w http.ResponseWriter, r *http.Request) {
	asked := payment.Refund{PaymentID: r.PathValue("id")}
	if !read(w, r, &asked.Money) {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if key == "" || len(key) > maxKey {
		refuse(w, http.StatusUnprocessableEntity, "an idempotency key is needed")
		return
	}
	if err := s.ledger.refund(r.Context(), key, asked); err != nil {
		s.fail(w, r, err)
		return
	}
	write(w, http.StatusOK, asked)
}

// fail translates an error of the ledger.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	for refusal, status := range map[error]int{
		errNotFound: http.StatusNotFound,
		errConflict: http.StatusUnprocessableEntity,
		errInvalid:  http.StatusUnprocessableEntity,
	} {
		if errors.Is(err, refusal) {
			refuse(w, status, refusal.Error())
			return
		}
	}
	s.Log.WarnContext(r.Context(), "the payment simulator failed", slog.Any("error", err))
	refuse(w, http.StatusInternalServerError, "the ledger failed")
}

// read decodes a request's body, and answers when that fails.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, "the body is not valid")
	}
	return err == nil
}

func refuse(w http.ResponseWriter, status int, why string) {
	write(w, status, map[string]string{"error": why})
}

func write(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // a client that is gone asks again
}
