// Package demo is a flash sale from start to finish, against a running service over real HTTP. Only `seckill demo` runs
// it.
//
// Read demo.go first: it is the order of events. buyers.go are the people who press the button, and report.go counts
// what they bought in three ways.
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
	"seckill/internal/budget"
	"seckill/internal/token"
	"seckill/model"
)

const (
	// connections is how many connections the buyers share: what a proxy in front of the service would keep open, and
	// few enough for the limits on open files that machines come with.
	connections = 200
)

// Sale is the demo's flash sale.
type Sale struct {
	Buyers int
	Stock  int64

	Base   string // of the service's main listener
	Tokens *token.Authority
	HTTP   *http.Client // nil: one of its own

	Out  io.Writer
	Bars bool // Out is a terminal

	voucher string
}

// Run puts a voucher up and sells it. The error says what does not add up.
func (s Sale) Run(ctx context.Context) error {
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
	return s.sell(ctx, admin)
}

// sell sells the voucher and counts what was sold.
func (s Sale) sell(ctx context.Context, admin api.Client) error {
	fmt.Fprintf(s.Out, "%d buyers, %d vouchers, one server at %s\n", s.Buyers, s.Stock, s.Base)
	answers, took, err := s.open(ctx)
	if err != nil {
		return err
	}
	printAnswers(s.Out, answers, took)
	if err := s.awaitOrders(ctx, answers); err != nil {
		return err
	}
	count, err := countSale(ctx, admin, s, answers)
	if err != nil {
		return fmt.Errorf("count what was sold: %w", err)
	}
	count.print(s.Out)
	if wrong := count.wrong(s); len(wrong) > 0 {
		return errors.New("the sale does not add up:\n  " + strings.Join(wrong, "\n  "))
	}
	fmt.Fprintf(s.Out, "\nIt adds up: %d of %d sold, each to another buyer, and all three counts agree.\n", count.answers, s.Stock)
	return nil
}

// client calls the server in the name of a subject.
func (s Sale) client(subject string, role model.Role) (api.Client, error) {
	signed, err := s.Tokens.Issue(token.Claims{Subject: subject, Role: role}, budget.Hour)
	return api.Client{Base: s.Base, Token: signed, HTTP: s.HTTP}, err
}

// putUp puts up the voucher of the sale, as an administrator would.
func (s Sale) putUp(ctx context.Context, admin api.Client) (id string, err error) {
	now := time.Now().UTC()
	var voucher model.Voucher
	err = admin.Call(ctx, http.MethodPost, "/admin/vouchers", map[string]any{
		"title": "Coffee for two", "price": 1000, "face_value": 2500, "stock": s.Stock,
		"begin_at": now.Add(-time.Minute), "end_at": now.Add(budget.Hour),
		"payment_window": budget.Hour.String(), // nothing expires before it is counted
	}, &voucher)
	return voucher.ID, err
}

// userID is the user id of a buyer, from 0.
func userID(buyer int) string { return strconv.Itoa(buyer + 1) }
