// Package demo is a flash sale from start to finish, against a running service over real HTTP. Only `seckill demo` runs it.
//
// Read demo.go first: it is the order of events. buyers.go are the people who press the button, report.go counts what they
// bought in three ways, later.go is what comes after the sale, and ledger.go compares it with the payment provider's books.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"seckill/internal/api"
	"seckill/internal/token"
	"seckill/model"
)

const (
	// Longest is how long a sale may be open, and how long its tokens are good: longer than a demo runs.
	Longest = time.Hour
	// connections is how many connections the buyers share: what a proxy
	// in front of the service would keep open, and few enough for the limits
	// on open files that machines come with.
	connections = 200
	// shortestWindow is how long orders stay unpaid, and windowOfBuyer more for each buyer: the sale has to be
	// counted, and its payers to pay, before the first order expires.
	shortestWindow = 5 * time.Second
	windowOfBuyer  = 500 * time.Microsecond
)

// Sale is the demo's flash sale.
type Sale struct {
	Buyers int
	Stock  int64
	// Window is how long an order may stay unpaid; zero chooses it by the number of buyers.
	Window time.Duration

	Base   string // of the service's main listener
	Tokens *token.Authority
	HTTP   *http.Client // nil: one of its own
	// OpenLedger opens the payment provider's ledger, by the base URL of its API.
	OpenLedger func(base string) (Ledger, error)

	Out  io.Writer
	Bars bool // Out is a terminal

	voucher string
}

// Run puts a voucher up, sells it, and shows what comes after. The error says what does not add up.
func (s Sale) Run(ctx context.Context) error {
	if s.Window == 0 {
		s.Window = shortestWindow + time.Duration(s.Buyers)*windowOfBuyer
		if s.tooLarge() {
			s.Window = Longest / 2 // nothing lapses
		}
	}
	if s.HTTP == nil {
		transport := api.Transport(connections)
		defer transport.CloseIdleConnections()
		s.HTTP = &http.Client{Transport: transport}
	}
	admin, err := s.client("admin", model.RoleAdmin)
	if err != nil {
		return err
	}
	if s.voucher, err = s.putUp(ctx, admin); err != nil {
		return fmt.Errorf("put the voucher up: %w", err)
	}
	answers, err := s.sell(ctx, admin)
	if err != nil {
		return err
	}
	return s.afterwards(ctx, admin, answers)
}

// sell sells the voucher and counts what was sold.
func (s Sale) sell(ctx context.Context, admin api.Client) ([]answer, error) {
	fmt.Fprintf(s.Out, "%d buyers, %d vouchers, one server at %s\n", s.Buyers, s.Stock, s.Base)
	answers, took, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	printAnswers(s.Out, answers, took)
	if err := s.awaitOrders(ctx, answers); err != nil {
		return nil, err
	}
	count, err := countSale(ctx, admin, s, answers)
	if err != nil {
		return nil, fmt.Errorf("count what was sold: %w", err)
	}
	count.print(s.Out)
	if wrong := count.wrong(s); len(wrong) > 0 {
		return nil, errors.New("the sale does not add up:\n  " + strings.Join(wrong, "\n  "))
	}
	fmt.Fprintf(s.Out, "\nIt adds up: %d of %d sold, each to another buyer, and all three counts agree.\n", count.answers, s.Stock)
	return answers, nil
}

// client calls the server in the name of a subject.
func (s Sale) client(subject string, role model.Role) (api.Client, error) {
	signed, err := s.Tokens.Issue(token.Claims{Subject: subject, Role: role}, Longest)
	return api.Client{Base: s.Base, Token: signed, HTTP: s.HTTP}, err
}

// putUp puts up the voucher of the sale, as an administrator would.
func (s Sale) putUp(ctx context.Context, admin api.Client) (id string, err error) {
	now := time.Now().UTC()
	var voucher model.Voucher
	err = admin.Call(ctx, http.MethodPost, "/admin/vouchers", map[string]any{
		"title": "Coffee for two", "price": 1000, "face_value": 2500, "stock": s.Stock,
		"begin_at": now.Add(-time.Minute), "end_at": now.Add(Longest),
		"payment_window": s.Window.String(),
	}, &voucher)
	return voucher.ID, err
}

// userID is the user id of a buyer, from 0.
func userID(buyer int) string { return strconv.Itoa(buyer + 1) }
