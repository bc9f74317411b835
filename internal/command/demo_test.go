//part:stores

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/config"
	"seckill/internal/payment"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// aging is what a demo prints. Where it says that orders are left to expire, their time is made to be over. Until then
// they have more time than a slow machine needs.
type aging struct {
	check.Log

	over func()
}

// Write implements io.Writer.
func (a *aging) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "left to expire") {
		a.over()
	}
	return a.Log.Write(p)
}

// demoInside runs a demo against an instance, and returns what it prints.
func demoInside(t *testing.T, s sale, cfg config.Config) (text string, err error) {
	t.Helper()
	s.window = demoToken / 2
	out := &aging{over: func() {
		ofDatabase(t, cfg, "UPDATE orders SET expires_at = created_at WHERE status = 'unpaid'")
	}}
	err = Process{Stdout: out, Stderr: io.Discard}.runDemo(t.Context(), s)
	return words(out.String()), err
}

// A demo sells, lets orders be paid and lapse, sells again what came back, and its counts agree.
func TestDemo(t *testing.T) {
	t.Parallel()
	const secret = "a secret of webhooks between the two"
	for mode, demos := range map[string][]struct {
		buyers int
		stock  int64
		want   []string // in its output
	}{ // make test runs the first of each mode
		"sync": {
			{120, 7, []string{
				"201 CREATED 7 ", "409 SOLD_OUT 113 ", "120 of 120 answered, 7 sold", "7 of 7 sold", "MEDIAN P99",
				"4 paid", "3 left to expire", "4 sold again", "the audit: 7 orders hold a unit (stock 7, remaining 0, balanced)",
				"expired 3 0.00 0.00 0.00 paid 2 20.00 0.00 20.00 redeemed 1 10.00 0.00 10.00 refunded 1 10.00 10.00 0.00 unpaid 4 0.00 ",
				"by our orders 11 40.00 10.00 30.00 by the provider's payments 5 40.00 10.00 30.00 the audit",
			}},
			{5, 50, []string{
				"201 CREATED 5 ", "5 of 50 sold", "remaining 45, balanced", "3 paid", "2 left to expire", "3 sold again",
				"by our orders 8 30.00 10.00 20.00 by the provider's payments 4 30.00 10.00 20.00",
			}},
			{1, 0, []string{"409 SOLD_OUT 1 ", "0 of 0 sold", "nothing is paid"}},
			{1, 1, []string{
				"1 paid", "0 left to expire", "0 sold again", "by our orders 1 10.00 0.00 10.00 by the provider's payments 2 10.00 0.00 10.00",
			}},
		},
		"async": {
			{120, 7, []string{
				"202 ACCEPTED 7 ", "409 SOLD_OUT 113 ", "7 orders were processing", "7 of 7 sold", "remaining 0, balanced",
				"4 sold again", "4 orders were processing", "by our orders 11 40.00 10.00 30.00 by the provider's payments 5 40.00 10.00 30.00",
			}},
			{5, 50, []string{"3 sold again", "(stock 50, remaining 45, balanced)"}},
		},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			instance, cfg := started(t, "SECKILL_ORDER_MODE="+mode, "SECKILL_WEBHOOK_SECRETS="+secret, "SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0")
			s := counter(t, instance, cfg)
			s.openLedger = func(base string) (ledger, error) { return providerLedger(base, secret) }
			if !check.Faults {
				demos = demos[:1]
			}
			for _, d := range demos {
				s.buyers, s.stock = d.buyers, d.stock
				text := check.Value(demoInside(t, s, cfg))(t)
				for _, want := range d.want {
					if !strings.Contains(text, want) {
						t.Errorf("%d buyers of %d: it lacks %q:\n%s", d.buyers, d.stock, want, text)
					}
				}
			}
			if mode == "sync" {
				noticesALedgerThatDiffers(t, s, cfg, secret)
			}
		})
	}
}

// The command has a server of its own, of whose settings only the order mode is said by the environment. It leaves
// nothing behind.
func TestDemoCleansUp(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	environ := []string{"SECKILL_LOCK_MODE=maybe", "SECKILL_ORDER_MODE=async"}
	got := call(t, environ, "", "demo", "--buyers", "2", "--stock", "1", "--payment-window", "30m", "--stock-strategy", "optimistic")
	if got.code != 0 || !strings.Contains(words(got.stdout), "202 ACCEPTED 1 ") {
		t.Fatalf("%+v", got)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
}

// shop is a server that sells as the test wants.
type shop struct {
	mu      sync.Mutex
	stock   int64
	presses int
	rows    []model.Order

	// press answers one press of the button; nil sells honestly.
	press func(s *shop, user string) (status int, body any)
	// keep tells what has become of a promised order; nil sells in sync.
	keep   func(order model.Order) model.Order
	export func(rows []model.Order) []model.Order
	audit  func(a *model.Audit)
}

func (s *shop) sell(user string) (int, any) {
	if int64(len(s.rows)) >= s.stock {
		return http.StatusConflict, problem{Status: 409, Code: "SOLD_OUT"}
	}
	return s.force(user)
}

func (s *shop) force(user string) (int, any) {
	order := model.Order{ID: fmt.Sprintf("o%d.v", len(s.rows)), VoucherID: "v", UserID: user, Status: model.OrderUnpaid}
	s.rows = append(s.rows, order)
	if s.keep != nil {
		order.Status = model.OrderProcessing
		return http.StatusAccepted, order
	}
	return http.StatusCreated, order
}

// look is the order that a client asks for.
func (s *shop) look(path string) (int, any) {
	for _, order := range s.rows {
		if strings.HasSuffix(path, "/orders/"+order.ID) {
			return http.StatusOK, s.keep(order)
		}
	}
	return http.StatusNotFound, problem{Status: 404, Code: "NOT_FOUND"}
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(status int, body any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	switch path := r.URL.Path; {
	case path == "/livez":
	case strings.HasSuffix(path, "/seckill"):
		s.presses++
		user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		claims, err := authorityOfShop().Verify(r.Context(), user)
		if err != nil {
			answer(http.StatusUnauthorized, problem{Code: "UNAUTHENTICATED"})
			return
		}
		if s.press != nil {
			status, body := s.press(s, claims.Subject)
			answer(status, body)
			return
		}
		status, body := s.sell(claims.Subject)
		answer(status, body)
	case strings.HasSuffix(path, "/orders"):
		rows := s.rows
		if s.export != nil {
			rows = s.export(rows)
		}
		fmt.Fprintln(w, "status,id,user_id")
		for _, o := range rows {
			fmt.Fprintf(w, "%s,%s,%s\n", o.Status, o.ID, o.UserID)
		}
	case strings.Contains(path, "/orders/"):
		status, body := s.look(path)
		answer(status, body)
	case strings.HasSuffix(path, "/audit"):
		n := int64(len(s.rows))
		a := model.Audit{Balanced: true, Database: model.AuditDatabase{Stock: s.stock, Remaining: s.stock - n, LiveOrders: n}}
		if s.audit != nil {
			s.audit(&a)
		}
		answer(http.StatusOK, a)
	default:
		answer(http.StatusCreated, model.Voucher{ID: "v"})
	}
}

func authorityOfShop() *token.Authority {
	authority, err := token.New([]token.Key{{ID: "1", Secret: strings.Repeat("x", 32)}}, "seckill", "seckill")
	if err != nil {
		panic(err)
	}
	return authority
}

// The demo is only worth something if it notices what is wrong.
func TestDemoNotices(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		shop *shop
		want string // in the error; empty: the sale is fine
	}{
		"an honest shop": {&shop{}, ""},
		"sold too many":  {&shop{press: func(s *shop, user string) (int, any) { return s.force(user) }}, "20 buyers won and 5 should have"},
		"units unsold": {&shop{press: func(s *shop, user string) (int, any) {
			if len(s.rows) == 4 {
				return http.StatusConflict, problem{Code: "SOLD_OUT"}
			}
			return s.sell(user)
		}}, "4 buyers won and 5 should have"},
		"two for one": {&shop{export: func(rows []model.Order) []model.Order {
			rows[1].UserID = rows[0].UserID
			return rows
		}}, "has two orders"},
		"a promise without a row": {&shop{export: func(rows []model.Order) []model.Order { return rows[1:] }}, "which does not exist"},
		"a row nobody was told of": {&shop{export: func(rows []model.Order) []model.Order {
			return append(slices.Clip(rows), model.Order{ID: "o9.v", UserID: "99", Status: model.OrderUnpaid})
		}}, "6 orders exist and 5 should"},
		"a row that is not live": {&shop{export: func(rows []model.Order) []model.Order {
			rows[0].Status = model.OrderFailed
			return rows
		}}, "is failed"},
		"one order for all": {&shop{press: func(s *shop, user string) (int, any) {
			status, body := s.sell(user)
			if order, ok := body.(model.Order); ok {
				order.ID = s.rows[0].ID
				return status, order
			}
			return status, body
		}}, "were told of the same order"},
		"another's order": {&shop{press: func(s *shop, user string) (int, any) {
			status, body := s.sell(user)
			if order, ok := body.(model.Order); ok {
				order.UserID = "somebody"
				return status, order
			}
			return status, body
		}}, "not his"},
		"an unexpected code": {&shop{press: func(s *shop, user string) (int, any) {
			if s.presses == 20 {
				return http.StatusInternalServerError, problem{Code: "INTERNAL"}
			}
			return s.sell(user)
		}}, "500 INTERNAL"},
		"ordered already without a first call": {&shop{press: func(s *shop, user string) (int, any) {
			if s.presses == 20 {
				return http.StatusConflict, problem{Code: "ALREADY_ORDERED"}
			}
			return s.sell(user)
		}}, "409 ALREADY_ORDERED"},
		"no JSON": {&shop{press: func(s *shop, user string) (int, any) {
			if s.presses == 20 {
				return http.StatusConflict, "no problem"
			}
			return s.sell(user)
		}}, "got no answer"},
		"an audit that does not balance": {&shop{audit: func(a *model.Audit) { a.Balanced = false }}, "does not balance"},
		"an audit with too few":          {&shop{audit: func(a *model.Audit) { a.Database.LiveOrders-- }}, "the audit counts 4"},
		"a unit too many left":           {&shop{audit: func(a *model.Audit) { a.Database.Remaining++ }}, "1 units remain and 0 should"},
		"another stock":                  {&shop{audit: func(a *model.Audit) { a.Database.Stock++ }}, "the stock is 6"},
		"busy at first": {&shop{press: func(s *shop, user string) (int, any) {
			if s.presses <= 20 {
				return []int{429, 503}[s.presses%2], problem{Code: "LOCK_BUSY"}
			}
			return s.sell(user)
		}}, ""},
		"promises that are kept": {&shop{keep: func(order model.Order) model.Order { return order }}, ""},
		"promises that are broken": {&shop{keep: func(order model.Order) model.Order {
			order.Status = model.OrderFailed
			return order
		}}, "not unpaid"},
		"a promise that nobody knows of": {&shop{
			keep: func(order model.Order) model.Order { return order },
			press: func(s *shop, user string) (int, any) {
				if len(s.rows) == 4 {
					return http.StatusAccepted, model.Order{ID: "lost.v", VoucherID: "v", UserID: user, Status: model.OrderProcessing}
				}
				return s.sell(user)
			},
		}, "look at order lost.v: 404"},
		"an answer was lost": {&shop{press: func(s *shop, user string) (int, any) {
			if s.presses == 1 {
				_, _ = s.sell(user)
				return http.StatusServiceUnavailable, problem{Code: "UNAVAILABLE"}
			}
			if len(s.rows) > 0 && s.rows[0].UserID == user {
				return http.StatusConflict, problem{Code: "ALREADY_ORDERED"}
			}
			return s.sell(user)
		}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.shop.stock = 5
			backend := httptest.NewServer(test.shop)
			t.Cleanup(backend.Close)
			var out bytes.Buffer
			p := Process{Stdout: &out, Stderr: io.Discard}
			s := sale{buyers: 20, stock: 5, base: backend.URL, voucher: "v", tokens: authorityOfShop(), http: client(t)}
			_, err := p.runSale(t.Context(), s, s.as(t, "admin", model.RoleAdmin))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the demo says %v, want %q\n%s", err, test.want, out.String())
			}
		})
	}
}

// meddled is a provider's ledger in which somebody gives a payment back by hand before we look at it.
type meddled struct{ *payment.Client }

func (m meddled) LookUp(ctx context.Context, id string) (payment.Payment, error) {
	p, err := m.Client.LookUp(ctx, id)
	if err != nil || p.Status != payment.Succeeded || p.Refunded > 0 {
		return p, err
	}
	by := payment.Refund{PaymentID: id, Money: payment.Money{Amount: 1, Currency: p.Currency}} // one cent
	if err := m.Refund(ctx, "by hand "+id, by); err != nil {
		return p, err
	}
	return m.Client.LookUp(ctx, id)
}

// A real ledger that differs by a cent is an error, with which the command exits with 1.
func noticesALedgerThatDiffers(t *testing.T, s sale, cfg config.Config, secret string) {
	t.Helper()
	s.buyers, s.stock = 4, 3
	s.openLedger = func(base string) (ledger, error) {
		client, err := payment.NewClient(base, check.Value(payment.Key(secret))(t))
		return meddled{client}, err
	}
	text, err := demoInside(t, s, cfg)
	if err == nil || !strings.Contains(err.Error(), "is redeemed, which is 10.00 received and 0.00 returned; the provider has 10.00 and 0.01") ||
		!strings.Contains(err.Error(), "our orders kept 10.00 and the provider 9.99") {
		t.Errorf("the demo says %v\n%s", err, text)
	}
	if !strings.Contains(text, "by our orders 5 20.00 10.00 10.00 by the provider's payments 3 20.00 10.01 9.99") {
		t.Errorf("its table:\n%s", text)
	}
}

// Whatever differs between our orders and the provider's ledger is named.
func TestLedgerCountNotices(t *testing.T) {
	t.Parallel()
	type books struct {
		rows  []model.Order
		paid  payment.Payment
		audit model.Audit
	}
	for name, test := range map[string]struct {
		change func(b *books)
		want   string // empty: they agree
	}{
		"they agree":           {func(*books) {}, ""},
		"too little":           {func(b *books) { b.paid.Amount-- }, "our orders kept 10.00 and the provider 9.99"},
		"given back":           {func(b *books) { b.paid.Refunded = 1000 }, "the provider has 10.00 and 10.00"},
		"never paid":           {func(b *books) { b.paid.Status = payment.Failed }, "the provider has 0.00 and 0.00"},
		"not decided":          {func(b *books) { b.paid.Status = payment.Pending }, "has it pending"},
		"of another order":     {func(b *books) { b.paid.OrderID = "other" }, "the provider has it for other"},
		"in another currency":  {func(b *books) { b.paid.Currency = "JPY" }, "in JPY"},
		"kept for a lapsed":    {func(b *books) { b.rows[0].Status = model.OrderExpired }, "order a is expired and should be paid"},
		"paid without money":   {func(b *books) { b.rows[1].Status = model.OrderPaid }, "order b is paid, which is 10.00 received"},
		"an unknown order":     {func(b *books) { b.rows[1].ID = "c" }, "should be unknown"},
		"a missing order":      {func(b *books) { b.rows = b.rows[:1] }, "order b does not exist"},
		"two live of one user": {func(b *books) { b.rows[1].UserID = "1" }, "user 1 has two orders"},
		"a unit too many":      {func(b *books) { b.audit.Database.Remaining++ }, "the audit has stock 3, remaining 2"},
		"not balanced":         {func(b *books) { b.audit.Balanced = false }, "does not balance"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &books{
				rows: []model.Order{{ID: "a", UserID: "1", Status: model.OrderPaid, Price: 1000}, {ID: "b", UserID: "2", Status: model.OrderUnpaid, Price: 1000}},
				paid: payment.Payment{
					Request: payment.Request{ID: "p", OrderID: "a", Money: payment.Money{Amount: 1000, Currency: "CNY"}}, Status: payment.Succeeded,
				},
				audit: model.Audit{Balanced: true, Database: model.AuditDatabase{Stock: 3, Remaining: 1, LiveOrders: 2}},
			}
			test.change(b)
			c := &ledgerCount{
				orders: make(map[model.OrderStatus]int64), byStatus: make(map[model.OrderStatus]money), stock: 3, audit: b.audit,
			}
			theirs := map[string]money{"a": c.take(&purchase{order: "a", currency: "CNY"}, b.paid)}
			c.compare(b.rows, theirs, map[string]model.OrderStatus{"a": model.OrderPaid, "b": model.OrderUnpaid})
			wrong := strings.Join(c.wrong(), "; ")
			if (wrong == "") != (test.want == "") || !strings.Contains(wrong, test.want) {
				t.Errorf("it says %q, want %q", wrong, test.want)
			}
		})
	}
}

// Bars of which one never fills must not keep the demo from ending.
func TestProgressEnds(t *testing.T) {
	t.Parallel()
	shown := newProgress(io.Discard, sale{buyers: 3, stock: 10}, true)
	for range 3 {
		shown.answered(answer{status: http.StatusCreated})
	}
	ended := make(chan struct{})
	go func() { shown.done(); close(ended) }()
	check.Receive(t, "the end of the bars", ended)
}

// Elsewhere than on a terminal a line tells each quarter, and the last one all.
func TestProgressLines(t *testing.T) {
	t.Parallel()
	for buyers, want := range map[int]string{
		1:  "1 of 1 answered, 1 sold",
		3:  "1 of 3 answered, 1 sold; 2 of 3 answered, 2 sold; 3 of 3 answered, 2 sold",
		4:  "1 of 4 answered, 1 sold; 2 of 4 answered, 2 sold; 3 of 4 answered, 2 sold; 4 of 4 answered, 2 sold",
		50: "13 of 50 answered, 2 sold; 25 of 50 answered, 2 sold; 38 of 50 answered, 2 sold; 50 of 50 answered, 2 sold",
	} {
		var out bytes.Buffer
		shown := newProgress(&out, sale{buyers: buyers, stock: 2}, false)
		for i := range buyers {
			status := http.StatusConflict
			if i < 2 {
				status = http.StatusCreated
			}
			shown.answered(answer{status: status})
		}
		shown.done()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		if got := strings.Join(lines, "; "); got != want {
			t.Errorf("%d buyers: %s", buyers, got)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		check.Equal(t, fmt.Sprint("quantile ", share), quantile(hundred, share), want)
	}
	check.Equal(t, "a quantile of one", quantile(hundred[:1], 0.99), 1)
}
