package payment_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"seckill/internal/payment"
	"seckill/internal/workshop/check"
)

// The names on the wire, which every adapter reads; and the same payment again may be told of otherwise, because a
// voucher's title changes.
func TestTheCheckoutOnTheWire(t *testing.T) {
	t.Parallel()
	var sent string
	client := calling(t, func(w http.ResponseWriter, r *http.Request) {
		sent = string(check.Value(io.ReadAll(r.Body))(t))
		saying(`{"id":"p1","order_id":"order.1","amount":1000,"currency":"CNY","status":"pending","title":"another"}`)(w, r)
	})
	checkout := request("p1")
	check.Must(t, check.ErrorOf(client.Start(t.Context(), checkout)))
	check.Equal(t, "the least", sent, `{"id":"p1","order_id":"order.1","amount":1000,"currency":"CNY"}`)
	checkout.Title, checkout.ReturnURL, checkout.Buyer = "Coffee for two", "https://shop.example/orders?id=order.1", "b1"
	checkout.ExpiresAt = time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	check.Must(t, check.ErrorOf(client.Start(t.Context(), checkout)))
	check.Equal(t, "all of it", sent, `{"id":"p1","order_id":"order.1","amount":1000,"currency":"CNY","title":"Coffee for two",`+
		`"return_url":"https://shop.example/orders?id=order.1","expires_at":"2031-01-02T03:04:05Z","buyer":"b1"}`)
}

// What the simulator has started once is started, whatever the voucher is called by now.
func TestAPaymentUnderAnotherTitle(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	started := check.Value(p.Start(t.Context(), request("p1")))(t)
	renamed := payment.Checkout{Request: request("p1").Request, Title: "Coffee for three"}
	check.Equal(t, "the same again", check.Value(p.Start(t.Context(), renamed))(t), started)
}
