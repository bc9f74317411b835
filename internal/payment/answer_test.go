package payment_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// calling is a client of a provider that answers every call in one way.
func calling(t *testing.T, answer http.HandlerFunc) *payment.Client {
	t.Helper()
	server := httptest.NewServer(answer)
	client := check.Value(payment.NewClient(server.URL, key))(t)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client
}

// saying answers every call with a document.
func saying(document string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(document))
	}
}

// Money goes where it was sent: no call follows a redirect, which a refund would repeat at another place.
func TestNoCallFollowsARedirect(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		saying(`{"payment_id":"p1","amount":1000,"currency":"CNY"}`)(w, r)
	}))
	defer other.Close()
	client := calling(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	refund := payment.Refund{PaymentID: "p1", Money: request("p1").Money}
	check.Is(t, "a refund", client.Refund(t.Context(), "r1", refund), model.ErrUnknownOutcome)
	check.Is(t, "a start", check.ErrorOf(client.Start(t.Context(), request("p1"))), model.ErrUnknownOutcome)
	check.Is(t, "a look-up", check.ErrorOf(client.LookUp(t.Context(), "p1")), model.ErrUnknownOutcome)
	check.Equal(t, "calls elsewhere", elsewhere.Load(), 0)
}

// An answer about other money than was sent back is none: the refund is not done.
func TestARefundOfOtherMoneyIsNotDone(t *testing.T) {
	t.Parallel()
	refund := payment.Refund{PaymentID: "p1", Money: payment.Money{Amount: 1000, Currency: "CNY"}}
	for name, test := range map[string]struct {
		answer string
		want   error
	}{
		"the same":         {`{"payment_id":"p1","amount":1000,"currency":"CNY"}`, nil},
		"less":             {`{"payment_id":"p1","amount":999,"currency":"CNY"}`, model.ErrUnknownOutcome},
		"another currency": {`{"payment_id":"p1","amount":1000,"currency":"JPY"}`, model.ErrUnknownOutcome},
		"another payment":  {`{"payment_id":"p2","amount":1000,"currency":"CNY"}`, model.ErrUnknownOutcome},
		"nothing":          {`{}`, model.ErrUnknownOutcome},
	} {
		err := calling(t, saying(test.answer)).Refund(t.Context(), "r1", refund)
		if !errors.Is(err, test.want) || errors.Is(err, payment.ErrRefused) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// A buyer is only sent to a page on the web: whatever else an address begins with, a browser might carry it out here.
func TestOnlyPagesOfTheWebAreShown(t *testing.T) {
	t.Parallel()
	for url, good := range map[string]bool{
		"https://pay.example/p1":            true,
		"http://pay.example/p1":             true,
		"javascript://pay.example/%0aalert": false,
		"data://pay.example/p1":             false,
		"//pay.example/p1":                  false,
		"https:///p1":                       false,
		"https://pay.example/ p1":           false,
	} {
		client := calling(t, saying(`{"id":"p1","order_id":"order.1","amount":1000,"currency":"CNY","status":"pending","url":"`+url+`"}`))
		_, err := client.Start(t.Context(), request("p1"))
		if (err == nil) != good {
			t.Errorf("the page %s: %v", url, err)
		}
	}
}
