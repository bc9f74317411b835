//go:build faults

//part:browser

package console_test

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"seckill/internal/poll"
	"seckill/model"
)

// picturesInABrowser renews the pictures that README.md shows: of a sale that is going on.
func picturesInABrowser(t *testing.T, c *chromium, _ *site) {
	s := start(t)
	s.administrator(t, "ada")
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for _, voucher := range []map[string]any{
		{"title": "A day at the baths", "stock": 200, "price": 2900, "face_value": 4900, "begin_at": in(-72 * time.Hour), "end_at": in(-48 * time.Hour)},
		{"title": "Cinema on Mondays", "stock": 500, "price": 500, "face_value": 1200, "begin_at": in(30 * time.Hour), "end_at": in(54 * time.Hour)},
		{"title": "Dinner for four", "stock": 0, "price": 9900, "face_value": 18000},
		{"title": "A book of your choice", "stock": 80, "price": 1500, "face_value": 3000, "state": "draft"},
		{"title": "A bicycle for a week", "stock": 50, "price": 1900, "face_value": 5900, "state": "paused"},
	} {
		s.onSale(t, voucher)
	}
	id := s.onSale(t, map[string]any{"title": "Coffee for two", "stock": 300, "end_at": in(2 * time.Hour)})
	path := "/console/vouchers/" + id
	b := c.person(t, s.url)
	b.signIn(t, "ada")
	telephone := b.another(t)
	b.run(t, "the sale", scheme("light"), b.visit(path), marked())
	telephone.run(t, "the sale", scheme("light"), chromedp.EmulateViewport(390, 844), telephone.visit(path), marked())
	b.run(t, "the window of the film", chromedp.EmulateViewport(1100, 760))
	for n := range 12 {
		order := s.paid(t, fmt.Sprint("early-", n), id)
		if n == 0 {
			s.call(t, http.MethodPost, "/admin/orders/"+order+"/refund", s.token(t, "admin", model.RoleAdmin), nil)
		}
	}
	next := 0
	due := 0.0
	sale := film{delay: 50}
	for quarter := range 160 { // of a second; a rush that grows and fades
		due += 4 * math.Exp(-math.Pow(float64(quarter-80)/32, 2))
		if n := int(due) - next; n > 0 {
			s.rush(t, id, next, n)
			next += n
		}
		s.buy(t, buyer(max(0, next-20)), id)                  // somebody who has one
		if quarter >= 60 && quarter < 100 && quarter%2 == 0 { // ten seconds of it
			sale.shoot(t, b)
		}
		poll.Pause(t.Context(), 250*time.Millisecond)
	}
	sale.write(t, "sale")
	telephone.picture(t, "telephone", 390, 844)
	b.run(t, "the overview", b.visit("/console"), visible("main .sale"))
	b.picture(t, "overview", 1100, 700)
	b.run(t, "the vouchers", scheme("dark"), b.visit("/console/vouchers"), visible("main table"))
	b.picture(t, "vouchers-dark", 1100, 700)
	shop := c.person(t, s.url)
	shop.run(t, "the shop window", scheme("light"), shop.visit("/shop"), visible("#vouchers article"))
	shop.picture(t, "shop", 1000, 800)
}
