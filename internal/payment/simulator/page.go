package simulator

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"seckill/internal/payment"
	"seckill/internal/words"
)

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
	p, err := s.ledger.find(r.Context(), r.PathValue("id"))
	if err != nil {
		s.failPage(w, r, err)
		return
	}
	var page bytes.Buffer
	err = s.pages.ExecuteTemplate(&page, "page.html", shown{
		Payment: p, Price: price(p.Money), Pending: p.Status == payment.Pending, Kept: p.Status == payment.Succeeded && p.Refunded < p.Amount, Delay: s.DelayFor,
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

// shown is what the page shows.
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

// price writes minor units as people do. The simulator takes every currency for one with two decimals.
func price(m payment.Money) string {
	return fmt.Sprintf("%d.%02d %s", m.Amount/100, m.Amount%100, m.Currency)
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
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (s *Server) failPage(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errNotFound):
		http.Error(w, "There is no such payment.", http.StatusNotFound)
	case errors.Is(err, errDecision):
		http.Error(w, "A payment is approved, declined or delayed.", http.StatusUnprocessableEntity)
	default:
		s.Log.WarnContext(r.Context(), "the payment simulator's page failed", slog.Any("error", err))
		http.Error(w, "The ledger failed.", http.StatusInternalServerError)
	}
}

func style(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, "style.css") }
