package payment_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"seckill/internal/payment"
	"seckill/internal/payment/simulator"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "the provider's key"

// provider is a simulated one behind real HTTP, that sends no webhooks.
type provider struct {
	*payment.Client

	simulator *simulator.Server
	front     *check.Front
}

// newProvider is one on a network; inside the process, for tests in virtual time, unless that is nil.
func newProvider(t *testing.T, network *check.Network) provider {
	t.Helper()
	p := provider{}
	signatures := check.Value(payment.NewSignatures([]string{"a secret of webhooks, for tests"}))(t)
	p.simulator = check.Value(simulator.New(t.Context(), simulator.Options{
		File: filepath.Join(t.TempDir(), "ledger.db"), Keys: []string{key}, Signatures: signatures,
		Log: slog.New(slog.DiscardHandler),
	}))(t)
	p.front = &check.Front{Server: p.simulator}
	server := httptest.NewUnstartedServer(p.front)
	if network != nil {
		check.Must(t, server.Listener.Close())
		server.Listener = network
	}
	server.Start()
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	p.Client = check.Value(payment.NewClient(server.URL, key))(t)
	if network != nil {
		p.Through(network.Dial)
	}
	t.Cleanup(func() {
		p.Close()
		server.Close()
		check.Must(t, p.simulator.Close())
	})
	return p
}

func request(id string) payment.Checkout {
	return payment.Checkout{Request: payment.Request{
		ID: id, OrderID: "order.1",
		Money: payment.Money{Amount: 1000, Currency: "CNY"},
	}}
}

func TestAPaymentFromItsStartToItsRefund(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	ctx := t.Context()
	for _, want := range []error{payment.ErrNotFound, payment.ErrRefused} {
		check.Is(t, "a look-up of nothing", check.ErrorOf(p.LookUp(ctx, "p1")), want)
	}
	started := check.Value(p.Start(ctx, request("p1")))(t)
	check.Equal(t, "status", started.Status, payment.Pending)
	page := started.URL
	check.That(t, strings.HasPrefix(page, "http://127.0.0.1:") && strings.HasSuffix(page, "/pay/p1"), "its page is %q",
		page)
	// What was started once is started, whatever the voucher is called by now.
	for _, title := range []string{"", "Coffee for three"} {
		again := payment.Checkout{Request: request("p1").Request, Title: title}
		check.Equal(t, "the same again", check.Value(p.Start(ctx, again))(t), started)
	}
	other := request("p1")
	other.Amount++
	err := check.ErrorOf(p.Start(ctx, other))
	check.That(t, errors.Is(err, payment.ErrRefused) && !errors.Is(err, payment.ErrNotFound),
		"another payment under its id: %v", err)
	refund := payment.Refund{PaymentID: "p1", Money: started.Money}
	check.Is(t, "a refund before it is paid", p.Refund(ctx, "r1", refund), payment.ErrRefused)
	check.Must(t, p.simulator.Decide(ctx, "p1", simulator.Approve))
	check.Equal(t, "status", check.Value(p.LookUp(ctx, "p1"))(t).Status, payment.Succeeded)
	for range 3 {
		check.Must(t, p.Refund(ctx, "r1", refund))
	}
	check.Is(t, "a second refund", p.Refund(ctx, "r2", refund), payment.ErrRefused)
	refund.Amount--
	check.Is(t, "another refund under its key", p.Refund(ctx, "r1", refund), payment.ErrRefused)
	check.Equal(t, "ledger", check.Value(p.simulator.Balance(ctx))(t),
		simulator.Balance{Payments: 1, Received: 1000, Refunds: 1, Refunded: 1000, Unsent: 1})
}

// Whatever goes wrong says nothing about the payment, and the same call again finds it done once.
func TestWhateverGoesWrongIsUnknown(t *testing.T) {
	t.Parallel()
	for name, fault := range check.WrongAnswers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newProvider(t, check.NewNetwork())
				ctx := t.Context()
				p.Watch(func(r *http.Request) {
					if end, bounded := r.Context().Deadline(); !bounded || time.Until(end) > payment.CallTimeout {
						t.Errorf("%s %s: may take until %s", r.Method, r.URL, end)
					}
				})
				call := func(what string, call func() error) {
					p.front.Set(fault)
					if err := call(); !errors.Is(err, model.ErrUnknownOutcome) || errors.Is(err, payment.ErrRefused) {
						t.Errorf("%s: %v", what, err)
					}
					p.front.Set(nil)
					check.Must(t, call())
				}
				call("start", func() error { return check.ErrorOf(p.Start(ctx, request("p1"))) })
				call("look-up", func() error { return check.ErrorOf(p.LookUp(ctx, "p1")) })
				check.Must(t, p.simulator.Decide(ctx, "p1", simulator.Approve))
				call("refund", func() error {
					return p.Refund(ctx, "r1", payment.Refund{PaymentID: "p1", Money: request("p1").Money})
				})
				check.Equal(t, "ledger", check.Value(p.simulator.Balance(ctx))(t),
					simulator.Balance{Payments: 1, Received: 1000, Refunds: 1, Refunded: 1000, Unsent: 1})
			})
		})
	}
}

// Well-formed, wrong answers. A buyer goes only to a web page: a browser might run another address. Sums must match.
func TestAnswersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	const good = `{"id":"p1","order_id":"order.1","amount":1000,"currency":"CNY","status":"succeeded","refunded":0,"url":"https://pay.example/p1"}`
	for name, change := range map[string][2]string{ // what is there instead
		"":                   {},
		"a plain page":       {"https:", "http:"},
		"another payment":    {"p1", "p2"},
		"another amount":     {"1000", "1001"},
		"an unknown status":  {"succeeded", "maybe"},
		"too much refunded":  {`"refunded":0`, `"refunded":1001`},
		"a script as page":   {"https:", "javascript:"},
		"data as page":       {"https:", "data:"},
		"half a page":        {"https:", ""},
		"a path":             {"https://pay.example", ""},
		"nobody's page":      {"https://pay.example", "https://"},
		"a page with spaces": {"example/p1", "example/ p1"},
		"nothing":            {good, ""},
		"null":               {good, "null"},
		"an endless answer":  {"example", strings.Repeat("x", 1<<20)},
		"a fraction":         {"1000", "1000.5"},
	} {
		client := calling(t, saying(strings.Replace(good, change[0], change[1], 1)))
		err := check.ErrorOf(client.Start(t.Context(), request("p1")))
		sound := name == "" || name == "a plain page"
		check.That(t, (err == nil) == sound && errors.Is(err, model.ErrUnknownOutcome) != sound, "%q: %v", name, err)
	}
	const refunded = `{"payment_id":"p1","amount":1000,"currency":"CNY"}`
	for name, change := range map[string][2]string{
		"": {}, "less": {"1000", "999"}, "another currency": {"CNY", "JPY"}, "another payment": {"p1", "p2"}, "nothing": {refunded, "{}"},
	} {
		client := calling(t, saying(strings.Replace(refunded, change[0], change[1], 1)))
		err := client.Refund(t.Context(), "r1", payment.Refund{PaymentID: "p1", Money: request("p1").Money})
		check.That(t, (err == nil) == (name == "") && errors.Is(err, model.ErrUnknownOutcome) != (name == ""),
			"a refund, %q: %v", name, err)
	}
}

func TestTheCallerMayGiveUpEarlier(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	p.front.Set(check.WrongAnswers()["slow"])
	ctx := check.Expiring(t)
	want, _ := ctx.Deadline()
	p.Watch(func(r *http.Request) {
		end, _ := r.Context().Deadline()
		check.That(t, end.Equal(want), "the call ends at %s, and its caller leaves at %s", end, want)
	})
	if _, err := p.Start(ctx, request("p1")); !errors.Is(err, model.ErrUnknownOutcome) ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestTheKeyIsNeeded(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil)
	check.Value(p.Start(t.Context(), request("p1")))(t)
	stranger := check.Value(payment.NewClient(strings.TrimSuffix(check.Value(p.LookUp(t.Context(), "p1"))(t).URL,
		"/pay/p1"), "guessed"))(t)
	defer stranger.Close()
	for what, err := range map[string]error{
		"start":   check.ErrorOf(stranger.Start(t.Context(), request("p2"))),
		"look-up": check.ErrorOf(stranger.LookUp(t.Context(), "p1")),
		"refund":  stranger.Refund(t.Context(), "r1", payment.Refund{PaymentID: "p1", Money: request("p1").Money}),
	} {
		check.That(t, errors.Is(err, model.ErrUnknownOutcome) && strings.Contains(err.Error(), "401"),
			"%s: %v", what, err)
	}
}

func TestAddressesOfProviders(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "pay.example", "ftp://pay.example", "https://user:secret@pay.example", "https://pay.example?key=secret", "https://pay.example#x"} {
		if _, err := payment.NewClient(base, key); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", base, err)
		}
	}
	for _, base := range []string{"https://pay.example", "https://pay.example/v1", "http://127.0.0.1:9"} {
		if _, err := payment.NewClient(base, key); err != nil {
			t.Errorf("%q: %v", base, err)
		}
	}
}

// Buyers who start payments, as many as they like, leave the provider reachable for refunds and questions.
func TestStartsLeaveRoomForRefunds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, startsLeaveRoomForRefunds) // a busy machine takes no time of a call
}

func startsLeaveRoomForRefunds(t *testing.T) {
	t.Helper()
	var hanging atomic.Int64
	network := check.NewNetwork()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/refunds") {
			_, _ = w.Write([]byte(`{"payment_id":"p0","amount":1000,"currency":"CNY"}`))
			return
		}
		hanging.Add(1)
		defer hanging.Add(-1)
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})}
	go func() { _ = server.Serve(network) }() // until it is closed
	t.Cleanup(func() { check.Must(t, server.Close()) })
	client := check.Value(payment.NewClient("http://pay.example", key))(t)
	client.Through(network.Dial)
	t.Cleanup(client.Close)
	ctx, leave := context.WithCancel(t.Context())
	var buyers sync.WaitGroup
	defer buyers.Wait()
	defer leave()
	for range 300 {
		buyers.Go(func() {
			for ctx.Err() == nil {
				_, _ = client.Start(ctx, request("p1"))
			}
		})
	}
	beside := 0
	check.Eventually(t, "32 refunds are made beside as many starts as there may be", func() bool {
		before := hanging.Load()
		check.Must(t, client.Refund(t.Context(), "r1", payment.Refund{PaymentID: "p0", Money: request("p1").Money}))
		if min(before, hanging.Load()) >= payment.MaxStarts {
			beside++
		}
		return beside == 32
	})
}

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

// The names on the wire are every adapter's. The same payment may come again under the voucher's new title.
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
	checkout.Title, checkout.ReturnURL, checkout.Buyer = "Coffee for two", "https://shop.example/orders?id=order.1",
		"b1"
	checkout.ExpiresAt = time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	check.Must(t, check.ErrorOf(client.Start(t.Context(), checkout)))
	check.Equal(t, "all of it", sent,
		`{"id":"p1","order_id":"order.1","amount":1000,"currency":"CNY","title":"Coffee for two",`+
			`"return_url":"https://shop.example/orders?id=order.1","expires_at":"2031-01-02T03:04:05Z","buyer":"b1"}`)
}
