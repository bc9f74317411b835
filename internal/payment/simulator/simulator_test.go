package simulator_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seckill/internal/payment"
	"seckill/internal/payment/simulator"
	"seckill/internal/workshop/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type shop struct {
	*httptest.Server

	mu     sync.Mutex
	refuse int
	got    []payment.Event
	tries  int
}

func newShop(t *testing.T, signatures *payment.Signatures, refuse int) *shop {
	t.Helper()
	s := &shop{refuse: refuse}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var event payment.Event
		_, wrong := signatures.Verify(r.Header, body)
		check.That(t, err == nil && wrong == nil && json.Unmarshal(body, &event) == nil,
			"a webhook is not valid: %s", body)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tries++; s.tries <= s.refuse {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		s.got = append(s.got, event)
		w.WriteHeader(http.StatusNoContent)
	}))
	return s
}

func (s *shop) received() []payment.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

type world struct {
	*simulator.Server

	options simulator.Options
	url     string
	shop    *shop
	stop    func()
}

func newWorld(t *testing.T, file string, refuse int) *world {
	t.Helper()
	signatures := check.Value(payment.NewSignatures([]string{"a secret of webhooks, for tests"}))(t)
	w := &world{shop: newShop(t, signatures, refuse)}
	w.options = simulator.Options{
		File: file, Keys: []string{"key"}, Signatures: signatures,
		Log: slog.New(slog.DiscardHandler), DelayFor: time.Second,
	}
	w.Server = check.Value(simulator.New(t.Context(), w.options))(t)
	server := httptest.NewServer(w.Server)
	w.url = server.URL
	w.stop = func() {
		server.Close()
		check.Must(t, w.Close())
		w.shop.Close()
	}
	return w
}

// run sends webhooks until the function it returns is called.
func (w *world) run(t *testing.T) (stop func()) {
	t.Helper()
	return check.Running(t, func(ctx context.Context) { w.Run(ctx, w.shop.URL) })
}

func (w *world) start(t *testing.T, id string) {
	t.Helper()
	client := check.Value(payment.NewClient(w.url, "key"))(t)
	defer client.Close()
	r := payment.Request{ID: id, OrderID: "order." + id, Money: payment.Money{Amount: 1234, Currency: "CNY"}}
	check.Value(client.Start(t.Context(), payment.Checkout{Request: r}))(t)
}

func (w *world) press(t *testing.T, id, decision string, headers ...string) (status int) {
	t.Helper()
	headers = append(headers, "Content-Type", "application/x-www-form-urlencoded")
	status, _, _ = w.call(t, http.MethodPost, "/pay/"+id, "decision="+decision, headers...)
	return status
}

func (w *world) call(
	t *testing.T, method, path, body string, headers ...string,
) (status int, header http.Header, answer string) {
	t.Helper()
	request := check.Value(http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(body)))(t)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	check.Must(t, err)
	defer response.Body.Close()
	return response.StatusCode, response.Header, string(check.Value(io.ReadAll(response.Body))(t))
}

func (w *world) status(t *testing.T, id string) payment.Status {
	t.Helper()
	return check.Value(w.LookUp(t.Context(), id))(t).Status
}

func TestThePageDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t, filepath.Join(t.TempDir(), "ledger.db"), 0)
	defer w.stop()
	defer w.run(t)()
	for _, id := range []string{"yes", "no", "other"} {
		w.start(t, id)
	}
	_, header, page := w.call(t, http.MethodGet, "/pay/yes", "")
	for _, want := range []string{"12.34 CNY", "order.yes", "pending", `value="approve"`, `value="decline"`, `value="delay"`} {
		check.That(t, strings.Contains(page, want), "the page lacks %s", want)
	}
	if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "unsafe") {
		t.Errorf("the page's policy is %q", policy)
	}
	check.That(t, !strings.Contains(page, "<script") && !strings.Contains(page, "style="),
		"the page needs what its policy forbids")
	check.Equal(t, "approve", w.press(t, "yes", "approve"), http.StatusSeeOther)
	check.Equal(t, "approved twice", w.press(t, "yes", "decline"), http.StatusSeeOther)
	check.Equal(t, "decline", w.press(t, "no", "decline"), http.StatusSeeOther)
	check.Equal(t, "something else", w.press(t, "other", "steal"), http.StatusUnprocessableEntity)
	check.Equal(t, "no such payment", w.press(t, "absent", "approve"), http.StatusNotFound)
	check.Equal(t, "from a foreign page", w.press(t, "other", "approve", "Sec-Fetch-Site", "cross-site"),
		http.StatusForbidden)
	check.Equal(t, "from an old browser", w.press(t, "other", "approve", "Origin", "https://evil.example"),
		http.StatusForbidden)
	check.Equal(t, "yes", w.status(t, "yes"), payment.Succeeded)
	check.Equal(t, "no", w.status(t, "no"), payment.Failed)
	check.Equal(t, "other", w.status(t, "other"), payment.Pending)
	check.Eventually(t, "both webhooks arrive", func() bool { return len(w.shop.received()) == 2 })
	types := map[string]string{}
	for _, got := range w.shop.received() {
		types[got.Data.PaymentID] = got.Type
		check.Equal(t, "its amount", got.Data.Money, payment.Money{Amount: 1234, Currency: "CNY"})
		check.Equal(t, "its order", got.Data.OrderID, "order."+got.Data.PaymentID)
	}
	check.Equal(t, "yes", types["yes"], payment.EventSucceeded)
	check.Equal(t, "no", types["no"], payment.EventFailed)
}

// The page leads back to the machine that it is on, and to no other; what was decided is seen with the same way back.
func TestTheWayBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, filepath.Join(t.TempDir(), "ledger.db"), 0)
	defer w.stop()
	w.start(t, "p1")
	here := check.Value(url.Parse(w.url))(t)
	for back, leads := range map[string]bool{
		"": false, w.url + "/shop#orders": true, "http://" + here.Hostname() + ":1/shop": true, "https://" + here.Hostname() + "/": true,
		"//" + here.Host + "/shop": false, "/shop": false, "javascript:alert(1)": false, "http://evil.example/": false,
		"http://" + here.Hostname() + ".evil.example/": false,
		"http://" + here.Hostname() + "@evil.example/": false, "http://evil.example@" + here.Host + "/": false,
		"http://evil.example/#" + here.Host: false, "http://[::1": false,
	} {
		path := "/pay/p1?back=" + url.QueryEscape(back)
		_, _, page := w.call(t, http.MethodGet, path, "")
		check.Equal(t, "the page leads to "+back, strings.Contains(page, `class="back`), leads)
		_, header, _ := w.call(t, http.MethodPost, path, "decision=approve", "Content-Type",
			"application/x-www-form-urlencoded")
		check.Equal(t, "a decision with "+back+" leads to", header.Get("Location"),
			map[bool]string{true: path, false: "/pay/p1"}[leads])
	}
}

// What an order or a payment is called is written as text, whatever it is.
func TestThePageEscapes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, filepath.Join(t.TempDir(), "ledger.db"), 0)
	defer w.stop()
	status, _, body := w.call(t, http.MethodGet, "/pay/"+url.PathEscape(`<script>alert(1)</script>`), "")
	check.That(t, status == http.StatusNotFound && !strings.Contains(body, "<script"), "%d %s", status, body)
	status, _, _ = w.call(t, http.MethodPost, "/payments",
		`{"id":"p1","order_id":"<script>","amount":1,"currency":"CNY"}`,
		"Authorization", "Bearer key", "Idempotency-Key", "p1")
	check.Equal(t, "an order that is no id", status, http.StatusUnprocessableEntity)
}

// A webhook is sent until it is answered with 204, always with the same id and a new signature.
func TestWebhooksAreRepeatedUntilTheyArrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, filepath.Join(t.TempDir(), "ledger.db"), 2)
	defer w.stop()
	defer w.run(t)()
	w.start(t, "p1")
	check.Must(t, w.Decide(t.Context(), "p1", simulator.Approve))
	check.Eventually(t, "the webhook arrives", func() bool { return len(w.shop.received()) == 1 })
	check.Eventually(t, "nothing is left", func() bool {
		return check.Value(w.Balance(t.Context()))(t).Unsent == 0
	})
	w.shop.mu.Lock()
	defer w.shop.mu.Unlock()
	check.Equal(t, "attempts", w.shop.tries, 3)
}

// A simulator that was stopped between a decision and its webhook sends it after the next start.
func TestTheLedgerOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.db")
	first := newWorld(t, file, 0)
	first.start(t, "p1")
	check.Must(t, first.Decide(t.Context(), "p1", simulator.Approve))
	first.stop()

	second := newWorld(t, file, 0)
	defer second.stop()
	defer second.run(t)()
	check.Equal(t, "status", second.status(t, "p1"), payment.Succeeded)
	check.Eventually(t, "the webhook arrives", func() bool { return len(second.shop.received()) == 1 })
}

// Two processes on one ledger send a webhook once.
func TestTwoProcessesShareALedger(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ledger.db")
	w, other := newWorld(t, file, 0), newWorld(t, file, 0)
	other.shop.Close()
	other.shop = w.shop
	defer w.stop()
	defer other.stop()
	defer other.run(t)()
	defer w.run(t)()
	const payments = 20
	for i := range payments {
		id := "p" + string(rune('a'+i))
		w.start(t, id)
		check.Must(t, other.Decide(t.Context(), id, simulator.Approve))
	}
	check.Eventually(t, "nothing is left", func() bool {
		return check.Value(w.Balance(t.Context()))(t).Unsent == 0
	})
	check.Equal(t, "webhooks", len(w.shop.received()), payments)
}

// A delayed payment is approved by itself, and not before its time.
func TestADelayedPaymentApprovesItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, filepath.Join(t.TempDir(), "ledger.db"), 0)
	defer w.stop()
	w.start(t, "later")
	earliest := time.Now().Add(w.options.DelayFor)
	check.Equal(t, "delay", w.press(t, "later", "delay"), http.StatusSeeOther)
	// Nobody looks at the time yet, so the machine may take as long as it likes.
	check.Equal(t, "status", w.status(t, "later"), payment.Pending)
	defer w.run(t)()
	check.Eventually(t, "it is approved", func() bool { return w.status(t, "later") == payment.Succeeded })
	now := time.Now()
	check.That(t, !now.Before(earliest), "approved at %s, and its time is %s", now, earliest)
	check.Eventually(t, "its webhook arrives", func() bool { return len(w.shop.received()) == 1 })
}
