package e2e_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"seckill/internal/payment"
	"seckill/internal/payment/simulator"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// From the purchase to the use of the code, with the provider's own webhooks.
func TestAnOrderIsPaidAndUsed(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, nil, func(t *testing.T, a *app, x *till) {
		x.tells(t, a)
		voucher := a.onSale(t, 3)
		order := a.buys(t, voucher.ID, a.user(1))
		stranger := order
		stranger.UserID = a.user(2)
		check.Equal(t, "a stranger pays", a.asks(t, stranger, http.MethodPost, "/pay").code(), model.CodeNotFound)
		started := a.pays(t, order)
		same(t, "repeated", a.pays(t, order), started)
		if started.PaymentURL != x.url+"/pay/"+started.PaymentID || started.Order.Status != model.OrderUnpaid {
			t.Errorf("%+v", started)
		}
		document := readDocument(t, a)
		document.check(t, http.MethodPost, "/api/v1/orders/{id}/pay", a.asks(t, order, http.MethodPost, "/pay"))
		check.Equal(t, "its code before it is paid", a.now(t, order).Code, "")
		check.Must(t, x.Decide(t.Context(), started.PaymentID, simulator.Approve))
		paid := a.reaches(t, order, model.OrderPaid, refundedWithin)
		if paid.PaidAt == nil || len(paid.Code) != 24 {
			t.Fatalf("%+v", paid)
		}
		check.Equal(t, "its code in the list", decode[model.OrderPage](t, a.call(t, http.MethodGet, "/orders", a.token(t, order.UserID, model.RoleUser), nil)).Items[0].Code, paid.Code)
		check.Equal(t, "a stranger looks", a.asks(t, stranger, http.MethodGet, "").code(), model.CodeNotFound)
		for _, move := range []string{"/pay", "/cancel"} {
			got := a.asks(t, order, http.MethodPost, move)
			if got.code() != model.CodeIllegalState || decode[problem](t, got).OrderStatus != model.OrderPaid {
				t.Errorf("%s of a paid order: %d %s", move, got.status, got.body)
			}
		}
		document.check(t, http.MethodGet, "/api/v1/orders/{id}", a.asks(t, order, http.MethodGet, ""))
		detail := decode[model.OrderDetail](t, a.call(t, http.MethodGet, "/admin/orders/"+order.ID, a.admin(t), nil))
		check.Equal(t, "its code for an administrator", detail.Code, paid.Code)
		if last := detail.History[len(detail.History)-1]; last.To != model.OrderPaid || last.By != model.ByProvider {
			t.Errorf("history: %+v", detail.History)
		}

		redeem := func(code string) answer {
			return a.call(t, http.MethodPost, "/admin/redemptions", a.admin(t), map[string]string{"code": code})
		}
		check.Equal(t, "mistyped", redeem(paid.Code[:23]+otherThan(paid.Code[23])).status, http.StatusUnprocessableEntity)
		check.Equal(t, "guessed", redeem("0000-0000-0000-0000-0000").status, http.StatusNotFound)
		used := redeem(strings.ToLower(strings.ReplaceAll(paid.Code, "-", " ")))
		if got := decode[model.Order](t, used); used.status != http.StatusOK || got.Status != model.OrderRedeemed || got.ID != order.ID {
			t.Errorf("used: %d %s", used.status, used.body)
		}
		if again := redeem(paid.Code); again.code() != model.CodeIllegalState || decode[problem](t, again).OrderStatus != model.OrderRedeemed {
			t.Errorf("used twice: %d %s", again.status, again.body)
		}
		x.balance(t, 1, 0)
	})
}

// otherThan is another character of the alphabet.
func otherThan(c byte) string {
	if c == '7' {
		return "8"
	}
	return "7"
}

// What webhooks may say, through real HTTP, and what they do.
func TestWebhooksOfPayments(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, nil, checkWebhooks)
}

func checkWebhooks(t *testing.T, a *app, x *till) {
	t.Helper()
	voucher := a.onSale(t, 10)
	order := a.buys(t, voucher.ID, a.user(1))
	other := a.pays(t, a.buys(t, voucher.ID, a.user(2)))
	started := a.pays(t, order)
	change := func(change func(*hook)) hook {
		h := of(started)
		change(&h)
		return h
	}
	for name, try := range map[string]struct {
		hook   hook
		status int
		code   model.Code
	}{
		"wrong signature":  {change(func(h *hook) { h.secret = "whsec_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" }), 401, model.CodeUnauthenticated},
		"old":              {change(func(h *hook) { h.at = h.at.Add(-6 * time.Minute) }), 401, model.CodeUnauthenticated},
		"from the future":  {change(func(h *hook) { h.at = h.at.Add(6 * time.Minute) }), 401, model.CodeUnauthenticated},
		"unknown order":    {change(func(h *hook) { h.id = "1"; h.event.Data.OrderID = "none." + voucher.ID }), 422, model.CodeValidation},
		"unknown payment":  {change(func(h *hook) { h.id = "2"; h.event.Data.PaymentID = "none" }), 422, model.CodeValidation},
		"of another order": {change(func(h *hook) { h.id = "3"; h.event.Data.PaymentID = other.PaymentID }), 422, model.CodeValidation},
		"too little":       {change(func(h *hook) { h.id = "4"; h.event.Data.Amount-- }), 422, model.CodeValidation},
		"too much":         {change(func(h *hook) { h.id = "5"; h.event.Data.Amount++ }), 422, model.CodeValidation},
		"another currency": {change(func(h *hook) { h.id = "6"; h.event.Data.Currency = "JPY" }), 422, model.CodeValidation},
		"an unknown type":  {change(func(h *hook) { h.id = "7"; h.event.Type = "payment.perhaps" }), 422, model.CodeValidation},
		"no JSON":          {change(func(h *hook) { h.id = "8"; h.body = "payment" }), 400, model.CodeValidation},
		"a text as amount": {change(func(h *hook) { h.id = "9"; h.body = `{"type":"payment.succeeded","data":{"amount":"1000"}}` }), 422, model.CodeValidation},
		"a fraction":       {change(func(h *hook) { h.id = "10"; h.body = `{"type":"payment.succeeded","data":{"amount":1000.5}}` }), 422, model.CodeValidation},
		"a tiny fraction": {change(func(h *hook) {
			h.id = "14"
			h.body = `{"type":"payment.succeeded","data":{"payment_id":"` + started.PaymentID + `","order_id":"` + order.ID + `","amount":1000.00000000000001,"currency":"CNY"}}`
		}), 422, model.CodeValidation},
		"names in capitals": {change(func(h *hook) {
			h.id = "15"
			h.body = `{"TYPE":"payment.succeeded","DATA":{"Payment_id":"` + started.PaymentID + `","ORDER_ID":"` + order.ID + `","Amount":1000,"Currency":"CNY"}}`
		}), 422, model.CodeValidation},
		"a member twice":     {change(func(h *hook) { h.id = "11"; h.body = `{"type":"payment.succeeded","type":"payment.failed","data":{}}` }), 422, model.CodeValidation},
		"nothing":            {change(func(h *hook) { h.id = "12"; h.body = `null` }), 422, model.CodeValidation},
		"a very long id":     {change(func(h *hook) { h.id = strings.Repeat("x", 300) }), 422, model.CodeValidation},
		"more than 16 KiB":   {change(func(h *hook) { h.body = strings.Repeat(" ", 17<<10) }), 413, model.CodePayloadTooLarge},
		"an id nobody makes": {change(func(h *hook) { h.id = "13"; h.event.Data.PaymentID = "'; DROP TABLE payments" }), 422, model.CodeValidation},
	} {
		got := a.hears(t, try.hook)
		if got.status != try.status || got.code() != try.code {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if got.status == 401 && got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: 401 without a challenge", name)
		}
	}
	unsigned := a.call(t, http.MethodPost, "/webhooks/payments", a.admin(t), of(started).event)
	check.Equal(t, "unsigned, with an administrator's token", unsigned.status, 401)
	check.Equal(t, "after all that", a.now(t, order).Status, model.OrderUnpaid)

	declined := change(func(h *hook) { h.id = "declined"; h.event.Type = payment.EventFailed })
	a.heard(t, declined)
	check.Equal(t, "after a failed payment", a.now(t, order).Status, model.OrderUnpaid)
	second := a.pays(t, order)
	if second.PaymentID == started.PaymentID {
		t.Error("a payment that has failed is repeated")
	}

	// Two deliveries at once, repetitions, and another message under a used id.
	pays := of(second)
	pays.secret = oldHookSecret
	pays.body = `{"type":"payment.succeeded","timestamp":"2026-01-01T00:00:00Z","data":{"payment_id":"` + second.PaymentID +
		`","order_id":"` + order.ID + `","amount":1000,"currency":"CNY","method":"card"}}`
	check.Volley(20, func(int) { a.heard(t, pays) })
	paid := a.reaches(t, order, model.OrderPaid, refundedWithin)
	check.Volley(20, func(n int) {
		h := of(second)
		h.id = fmt.Sprint("again ", n)
		a.heard(t, h)
	})
	if got := a.hears(t, change(func(h *hook) { h.id = pays.id })); got.status != http.StatusUnprocessableEntity {
		t.Errorf("another message under a used id: %d %s", got.status, got.body)
	}
	same(t, "afterwards", a.now(t, order), paid)

	// The first payment had failed, and its money comes all the same: the order is paid already.
	if _, err := x.Payment(t.Context(), started.PaymentID); err != nil {
		t.Fatal(err)
	}
	check.Must(t, x.Decide(t.Context(), started.PaymentID, simulator.Approve))
	a.heard(t, of(started))
	until(t, refundedWithin, "the second payment goes back", func() bool { return len(a.refunds(t, "done")) == 1 })
	check.Equal(t, "its reason", a.refunds(t, "done")[0].Reason, model.RefundDuplicate)
	same(t, "afterwards", a.now(t, order), paid)
	x.balance(t, 1, 1) // the other payment was never made at the provider
	if !a.audit(t, voucher.ID).Balanced {
		t.Error("the stock does not add up")
	}
}

// Money for an order that is closed goes back, and takes no unit.
func TestLateMoneyGoesBack(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, nil, func(t *testing.T, a *app, x *till) {
		voucher := a.create(t, map[string]any{"stock": 4, "payment_window": "5s"}) // the payment is started within it
		patient := a.create(t, map[string]any{"stock": 4})
		late := map[string]hook{}
		begins := func(name, voucherID string, user int) model.Order {
			order := a.buys(t, voucherID, a.user(user))
			late[name] = of(a.pays(t, order))
			return order
		}
		expired := begins("expired", voucher.ID, 1)
		canceled, refunded := begins("canceled", patient.ID, 2), begins("refunded", patient.ID, 3)
		a.reaches(t, expired, model.OrderExpired, 40*time.Second)
		check.Equal(t, "cancel", a.asks(t, canceled, http.MethodPost, "/cancel").status, http.StatusOK)
		for _, h := range late { // the money moves, and nobody but the test tells
			x.faults.LoseWebhooks.Store(true)
			check.Must(t, x.Decide(t.Context(), h.event.Data.PaymentID, simulator.Approve))
		}
		a.heard(t, late["refunded"])
		a.reaches(t, refunded, model.OrderPaid, refundedWithin)
		got := a.call(t, http.MethodPost, "/admin/orders/"+refunded.ID+"/refund", a.admin(t), nil)
		check.Equal(t, "refund", got.status, http.StatusAccepted)
		check.Equal(t, "a code of a refunded order", a.now(t, refunded).Code, "")

		remaining := []int64{a.audit(t, voucher.ID).Database.Remaining, a.audit(t, patient.ID).Database.Remaining}
		check.Volley(10, func(n int) {
			for _, name := range []string{"expired", "canceled"} {
				h := late[name]
				h.id = fmt.Sprint(name, n%2)
				a.heard(t, h)
			}
		})
		for _, order := range []model.Order{expired, canceled, refunded} {
			a.reaches(t, order, model.OrderRefunded, refundedWithin)
		}
		until(t, refundedWithin, "all three are back", func() bool { return len(a.refunds(t, "done")) == 3 })
		x.balance(t, 3, 3)
		check.Equal(t, "open refunds", len(a.refunds(t, "pending"))+len(a.refunds(t, "failed")), 0)
		if after := []int64{a.audit(t, voucher.ID).Database.Remaining, a.audit(t, patient.ID).Database.Remaining}; !slices.Equal(after, remaining) {
			t.Errorf("late money moved units: %v, and %v before", after, remaining)
		}
		if !a.audit(t, voucher.ID).Balanced || !a.audit(t, patient.ID).Balanced {
			t.Error("the stock does not add up")
		}
		// Their users may buy again.
		for _, order := range []model.Order{expired, canceled, refunded} {
			a.buys(t, order.VoucherID, order.UserID)
		}
	})
}

// A provider that is down, slow, broken or talks nonsense delays a payment and a refund, and changes nothing else.
func TestTheProviderIsInTrouble(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, nil, func(t *testing.T, a *app, x *till) {
		x.tells(t, a)
		troubles := map[string]simulator.Fault{
			"down": simulator.Down, "lost": simulator.Lost, "slow": simulator.Slow,
			"failing": simulator.Failing, "nonsense": simulator.Nonsense, "foreign": simulator.Foreign,
			"busy": simulator.Busy,
		}
		voucher := a.onSale(t, len(troubles))
		n := 0
		for name, fault := range troubles {
			n++
			order := a.buys(t, voucher.ID, a.user(n))
			x.faults.Set(fault)
			began := time.Now()
			got := a.asks(t, order, http.MethodPost, "/pay")
			if got.code() != model.CodeUnavailable || got.header.Get("Retry-After") == "" || time.Since(began) > 8*time.Second {
				t.Errorf("pay, %s: %d %s after %s", name, got.status, got.body, time.Since(began))
			}
			x.faults.Set(simulator.None)
			started := a.pays(t, order)
			check.Must(t, x.Decide(t.Context(), started.PaymentID, simulator.Approve))
			a.reaches(t, order, model.OrderPaid, refundedWithin)

			x.faults.Set(fault)
			refund := a.call(t, http.MethodPost, "/admin/orders/"+order.ID+"/refund", a.admin(t), nil)
			check.Equal(t, "refund, "+name, refund.status, http.StatusAccepted)
			check.Equal(t, "its order, "+name, a.now(t, order).Status, model.OrderRefunded)
			until(t, 2*refundedWithin, "an attempt has failed, "+name, func() bool {
				pending := a.refunds(t, "pending")
				return len(pending) == 1 && pending[0].Attempts > 0 && pending[0].Error != ""
			})
			x.faults.Set(simulator.None)
			until(t, 3*refundedWithin, "the money is back, "+name, func() bool { return len(a.refunds(t, "done")) == n })
			x.balance(t, int64(n), int64(n))
		}
	})
}

// A refund that the provider refuses for good is visible, and can be asked for again.
func TestARefundThatFailsForGoodIsVisible(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, nil, func(t *testing.T, a *app, x *till) {
		x.tells(t, a)
		order := a.buys(t, a.onSale(t, 1).ID, a.user(1))
		started := a.pays(t, order)
		check.Must(t, x.Decide(t.Context(), started.PaymentID, simulator.Approve))
		a.reaches(t, order, model.OrderPaid, refundedWithin)
		// Somebody has given the money back by hand, at the provider.
		client := check.Value(payment.NewClient(x.url, check.Value(payment.Key(hookSecret))(t)))(t)
		defer client.Close()
		by := payment.Refund{PaymentID: started.PaymentID, Money: payment.Money{Amount: 1000, Currency: "CNY"}}
		check.Must(t, client.Refund(t.Context(), "by hand", by))
		for attempts := 1; attempts <= 2; attempts++ {
			got := a.call(t, http.MethodPost, "/admin/orders/"+order.ID+"/refund", a.admin(t), nil)
			check.Equal(t, "refund", got.status, http.StatusAccepted)
			until(t, refundedWithin, "it has failed", func() bool {
				failed := a.refunds(t, "failed")
				return len(failed) == 1 && failed[0].OrderID == order.ID && failed[0].Error != "" && failed[0].Attempts == attempts
			})
		}
		x.balance(t, 1, 1)
	})
}

// An order is not expired over the money of a webhook that never came.
func TestALostWebhookIsFoundBeforeTheOrderExpires(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, nil, func(t *testing.T, a *app, x *till) {
		x.faults.LoseWebhooks.Store(true)
		voucher := a.create(t, map[string]any{"stock": 2, "payment_window": "5s"}) // the payments are started within it
		paid := a.buys(t, voucher.ID, a.user(1))
		check.Must(t, x.Decide(t.Context(), a.pays(t, paid).PaymentID, simulator.Approve))
		unpaid := a.buys(t, voucher.ID, a.user(2))
		a.pays(t, unpaid)
		a.reaches(t, unpaid, model.OrderExpired, 40*time.Second)
		a.reaches(t, paid, model.OrderPaid, 20*time.Second)
		x.balance(t, 1, 0)
	})
}

// An order with time left is paid, too: the provider is asked once a minute.
func TestALostWebhookIsFoundByAsking(t *testing.T) {
	t.Parallel()
	x, s := openTill(t), onServers(t)
	a := start(t, s.with(x.settings()))
	x.faults.LoseWebhooks.Store(true)
	voucher := a.onSale(t, 3)
	paid, failed, waiting := a.buys(t, voucher.ID, a.user(1)), a.buys(t, voucher.ID, a.user(2)), a.buys(t, voucher.ID, a.user(3))
	check.Must(t, x.Decide(t.Context(), a.pays(t, paid).PaymentID, simulator.Approve))
	first := a.pays(t, failed)
	check.Must(t, x.Decide(t.Context(), first.PaymentID, simulator.Decline))
	open := a.pays(t, waiting)

	db := check.Value(sql.Open("mysql", s["SECKILL_DATABASE_DSN"]+"?parseTime=true"))(t)
	defer db.Close()
	next := func(id string) (wait float64) { // seconds until it is asked for
		check.Must(t, db.QueryRowContext(t.Context(), "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), next_at) / 1e6 FROM payments WHERE id = ?", id).Scan(&wait))
		return wait
	}
	if wait := next(open.PaymentID); wait < 30 || wait > 60 {
		t.Errorf("a young payment is asked for in %v s", wait)
	}
	check.Value(db.ExecContext(t.Context(), "UPDATE payments SET next_at = UTC_TIMESTAMP(6) WHERE next_at IS NOT NULL"))(t)
	a.reaches(t, paid, model.OrderPaid, refundedWithin)
	until(t, refundedWithin, "the open one is put off again", func() bool { return next(open.PaymentID) > 30 })
	check.Equal(t, "waiting", a.now(t, waiting).Status, model.OrderUnpaid)
	check.Equal(t, "failed", a.now(t, failed).Status, model.OrderUnpaid)
	if second := a.pays(t, failed); second.PaymentID == first.PaymentID {
		t.Error("a payment that has failed is repeated")
	}
}

// An order that has failed was never unpaid, so that no call can start a payment of it; a row of a payment is all that
// is needed for its money to come, and to go back.
func TestMoneyForAFailedOrderGoesBack(t *testing.T) {
	t.Parallel()
	x, s := openTill(t), onServers(t)
	a := start(t, s.with(x.settings()))
	voucher := a.onSale(t, 2)
	order := a.buys(t, voucher.ID, a.user(1))
	started := a.pays(t, order)
	db := check.Value(sql.Open("mysql", s["SECKILL_DATABASE_DSN"]))(t)
	defer db.Close()
	for _, statement := range []string{
		"UPDATE orders SET status = 'failed', reason = 'SOLD_OUT', unpaid_at = NULL, expires_at = NULL, closed_at = UTC_TIMESTAMP(6)",
		"UPDATE vouchers SET remaining = remaining + 1",
	} {
		check.Value(db.ExecContext(t.Context(), statement))(t)
	}
	x.faults.LoseWebhooks.Store(true)
	check.Must(t, x.Decide(t.Context(), started.PaymentID, simulator.Approve))
	a.heard(t, of(started))
	a.reaches(t, order, model.OrderRefunded, refundedWithin)
	until(t, refundedWithin, "it is back", func() bool { return len(a.refunds(t, "done")) == 1 })
	x.balance(t, 1, 1)
	check.Equal(t, "remaining", a.audit(t, voucher.ID).Database.Remaining, 2)
}

// In async the road of money is the same, and a refunded unit is back in the hot copy.
func TestAnAsyncOrderIsPaidAndRefunded(t *testing.T) {
	t.Parallel()
	x := openTill(t)
	a := start(t, asyncOnServers(t).with(x.settings()))
	x.tells(t, a)
	voucher := a.onSale(t, 1)
	order := a.becomes(t, a.accepted(t, voucher.ID, a.user(1)), model.OrderUnpaid)
	check.Must(t, x.Decide(t.Context(), a.pays(t, order).PaymentID, simulator.Approve))
	if paid := a.reaches(t, order, model.OrderPaid, refundedWithin); paid.Code == "" {
		t.Error("it has no code")
	}
	got, err := a.place(t, voucher.ID, a.user(2))
	check.Must(t, err)
	check.Equal(t, "another one", got.code(), model.CodeSoldOut)
	check.Equal(t, "refund", a.call(t, http.MethodPost, "/admin/orders/"+order.ID+"/refund", a.admin(t), nil).status, http.StatusAccepted)
	until(t, settlement, "the unit is sold again", func() bool {
		got, err := a.place(t, voucher.ID, a.user(2))
		return err == nil && got.status == http.StatusAccepted
	})
	until(t, refundedWithin, "the money is back", func() bool { return len(a.refunds(t, "done")) == 1 })
	x.balance(t, 1, 1)
}

// Without a provider nothing can be paid, and no webhook is believed.
func TestWithoutAProvider(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t))
	order := a.buys(t, a.onSale(t, 1).ID, a.user(1))
	got := a.asks(t, order, http.MethodPost, "/pay")
	check.Equal(t, "pay", got.code(), model.CodeUnavailable)
	h := hook{id: "1", secret: hookSecret, at: time.Now(), body: `{"type":"payment.succeeded","data":{}}`}
	check.Equal(t, "webhook", a.hears(t, h).status, http.StatusUnauthorized)
}

// With no setting at all the simulator inside takes the money, and sends its webhooks to the instance that it is in.
//
//nolint:paralleltest,tparallel // the second start finds what the first has left
func TestTheEmbeddedSimulator(t *testing.T) {
	t.Parallel()
	s := embeddedSettings(t)
	var order model.Order
	var code string
	t.Run("pays", func(t *testing.T) {
		a := start(t, s)
		order = a.buys(t, a.onSale(t, 1).ID, a.user(1))
		page := a.pays(t, order).PaymentURL
		got, err := a.client.PostForm(page, map[string][]string{"decision": {"approve"}})
		check.Must(t, err)
		check.Must(t, got.Body.Close())
		check.Equal(t, "approve", got.StatusCode, http.StatusSeeOther)
		code = a.reaches(t, order, model.OrderPaid, refundedWithin).Code
	})
	t.Run("keeps the code", func(t *testing.T) {
		check.Equal(t, "the code after another start", start(t, s).now(t, order).Code, code)
	})
}
