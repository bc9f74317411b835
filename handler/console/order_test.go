package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"seckill/handler/wire"
	"seckill/internal/vouchercode"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func (s *site) orderOf(t testing.TB, user, voucherID string) string {
	t.Helper()
	_, list := s.call(t, http.MethodGet, "/orders?voucher_id="+voucherID, s.token(t, user, model.RoleUser), nil)
	items, _ := list["items"].([]any)
	check.Need(t, len(items) > 0, "%s has no order: %v", user, list)
	order, _ := items[0].(map[string]any)
	return fmt.Sprint(order["id"])
}

func TestAnOrderIsFoundAndCanceled(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "who-cancels")
	id := b.create(t, "stock", "1")
	check.Equal(t, "what alice:1 hears", s.buy(t, "alice:1", id), "OK")
	order := s.orderOf(t, "alice:1", id)
	for _, query := range []string{"user=alice:1", "voucher=" + id, "voucher=" + id + "&user=alice:1", "voucher=" + id + "&status=unpaid", "user=+alice:1+"} {
		want(t, b.page(t, "/console/orders?"+query), `href="/console/orders/`+order+`"`)
	}
	for _, query := range []string{"", "q=alice:1", "q=coffee", "status=unpaid", "q=" + order} { // of all orders
		got := b.get(t, "/console/orders?"+query)
		check.That(t, strings.Contains(got.body+got.header.Get("Location"), order), "%q does not find the order", query)
	}
	for _, query := range []string{"user=bob", "voucher=" + id + "&status=paid", "q=nobody", "q=alice:1&status=paid"} {
		lacks(t, b.page(t, "/console/orders?"+query), order)
	}
	check.Equal(t, "its id leads to", b.get(t, "/console/orders?q=+"+order).leads(t), "/console/orders/"+order)
	for path, status := range map[string]int{
		"/console/orders?voucher=unknown":     http.StatusNotFound,
		"/console/orders?user=a&status=lost":  http.StatusUnprocessableEntity,
		"/console/orders/o1.unknown":          http.StatusNotFound,
		"/console/orders/a%2Fb":               http.StatusNotFound,
		"/console/orders.csv?voucher=unknown": http.StatusNotFound,
		"/console/orders.csv?status=x":        http.StatusUnprocessableEntity,
	} {
		b.get(t, path).is(t, status)
	}
	page := b.page(t, "/console/orders/"+order)
	want(t, page, "alice:1", "CN¥10.00", "Not paid", "To be paid until", "the log say who did it", "<td>unpaid</td>")
	want(t, b.act(t, "/console/orders/"+order+"/cancel", nil), "The order is canceled, and its unit is on sale again.",
		"unpaid → canceled")
	check.Equal(t, "what bob hears", s.buy(t, "bob", id), "OK")
	actor := s.account(t, "who-cancels")
	want(t, b.page(t, "/console/orders/"+order), "unpaid → canceled</td>\n<td data-label=\"By\">who-cancels<")
	want(t, b.page(t, "/console/log?actor="+actor), "canceled an order in its buyer&#39;s place",
		`href="/console/orders/`+order+`"`, `Status</span> unpaid → canceled`)
	check.Equal(t, "entries", strings.Count(b.page(t, "/console/log?actor="+actor), "canceled an order"), 1)
	b.post(t, "/console/orders/"+order+"/refund", nil).is(t, http.StatusConflict, `role="alert"`,
		"Nothing was changed.")

	file := b.get(t, "/console/orders.csv?voucher="+id)
	want(t, file.body, "\ufeffOrder,Voucher,User,Status", "Used at (UTC)",
		order+",Coffee for two,alice:1,canceled,,10.00,CNY,", ",Coffee for two,bob,unpaid,")
	want(t, b.page(t, "/console/orders?status=unpaid&q=coffee"), "/console/orders.csv?q=coffee&amp;status=unpaid",
		"/console/orders.xlsx?q=coffee&amp;status=unpaid")
	sheet := b.get(t, "/console/orders.xlsx?status=unpaid&voucher="+id)
	check.Equal(t, "a spreadsheet", sheet.header.Get("Content-Type"), wire.XLSX)
	check.That(t, strings.HasPrefix(sheet.body, "PK"), "it is no archive")
	for query, wanted := range map[string]string{"voucher=" + id + "&status=unpaid": "bob", "q=alice:1": "alice:1", "user=alice:1": "alice:1", "q=coffee&status=canceled": "alice:1"} {
		only := b.get(t, "/console/orders.csv?"+query).body
		want(t, only, ","+wanted+",")
		check.Equal(t, "the export of "+query, strings.Contains(only, order), wanted == "alice:1")
	}
	today, tomorrow := time.Now().UTC().Format(time.DateOnly), time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	for query, found := range map[string]bool{
		"of=created&from=2020-01-01&to=" + tomorrow: true, "to=" + tomorrow: true, "of=closed&to=" + tomorrow: true,
		"of=closed&from=" + today + "&to=": true, "of=paid&to=" + tomorrow: false, "to=2020-01-01": false, "of=paid": true,
	} {
		page, file := b.page(t, "/console/orders?voucher="+id+"&"+query), b.get(t, "/console/orders.csv?voucher="+id+"&"+query)
		check.Equal(t, "what is found of "+query, strings.Contains(page, order), found)
		check.Equal(t, "what is exported of "+query, strings.Contains(file.body, order), found)
	}
	want(t, b.page(t, "/console/orders?of=closed&to="+tomorrow), `value="closed" selected`, `value="`+tomorrow+`"`,
		"/console/orders.csv?of=closed&amp;to="+tomorrow, `<label for="to">To, this day included`)
	for _, wrong := range []string{"of=paid&from=yesterday", "of=unpaid&from=" + today, "from=0001-01-01&to=10000-01-01"} {
		b.get(t, "/console/orders.csv?"+wrong).is(t, http.StatusUnprocessableEntity)
	}
	want(t, b.get(t, "/console/orders.csv?q=alice:1", "Accept-Language", "zh").body, "\ufeff订单,代金券,", ",已取消,")
}

func TestAPaidOrder(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	id := b.create(t)
	order := s.paid(t, "alice", id)
	_, document := s.call(t, http.MethodGet, "/orders/"+order, s.token(t, "alice", model.RoleUser), nil)
	code := fmt.Sprint(document["code"])
	payments := check.Value(s.database(t).Payments.OfOrder(t.Context(), order))(t)
	reference := payments[0].ID
	want(t, b.page(t, "/console/orders/"+order), "Paid at", code, "Refund the order", `title="`+reference+`"`,
		`<span class="badge succeeded">succeeded</span>`)
	redeem := func(code, how string) answer {
		return b.post(t, "/console/redemptions", url.Values{"code": {code}, "how": {how}})
	}
	for _, wrong := range []string{"nonsense", ""} {
		redeem(wrong, "").is(t, http.StatusUnprocessableEntity, `value="`+wrong+`"`)
	}
	want(t, b.act(t, "/console/redemptions", url.Values{"code": {strings.ToLower(code)}}), "The code is used up.",
		"Coffee for two", "badge redeemed", order, `class="verdict good"`)
	redeem(code, "").is(t, http.StatusConflict, "This code was used already.", "ada</p>", `class="verdict bad"`)
	want(t, b.page(t, redeem(code, "look").leads(t)), "badge redeemed", "ada</dd>", "alice</dd>", `class="verdict bad"`)
	cashier, undo := s.signedIn(t, "cashier"), "/console/orders/"+order+"/unredeem"
	check.That(t, !strings.Contains(cashier.page(t, "/console/redeem?order="+order), undo), "a cashier may undo another's use")
	cashier.post(t, undo, url.Values{"reason": {"x"}}).is(t, http.StatusForbidden, "Only who used the code may undo that", "Nothing was changed.")
	want(t, b.page(t, "/console/redeem?order="+order), undo, `name="reason"`)
	b.post(t, undo, url.Values{"reason": {""}}).is(t, http.StatusUnprocessableEntity)
	want(t, b.act(t, undo, url.Values{"reason": {"the wrong guest"}, "from": {"till"}}), "The use is undone.", "verdict known", `name="code" value="`)
	want(t, cashier.act(t, "/console/redemptions", url.Values{"code": {code}}), "The code is used up.", undo)
	want(t, cashier.page(t, "/console/orders/"+order), "Undo the use", "<h2>Uses</h2>", "the wrong guest", "redeemed → paid")
	want(t, cashier.act(t, undo, url.Values{"reason": {"again"}}), "The use is undone.", "again")
	want(t, b.act(t, "/console/redemptions", url.Values{"code": {code}}), "The code is used up.")
	want(t, b.page(t, "/console/orders/"+order), "Refund it although it is used")
	b.post(t, "/console/orders/"+order+"/refund", nil).is(t, http.StatusConflict)
	want(t, b.act(t, "/console/orders/"+order+"/refund", url.Values{"used": {"on"}}), "The refund is under way", "redeemed → refunded")
	redeem("nonsense", "look").is(t, http.StatusUnprocessableEntity)
	redeem(vouchercode.New().Reveal(), "look").is(t, http.StatusNotFound)
	order = s.paid(t, "bob", id)
	b.post(t, "/console/orders/"+order+"/refund", url.Values{"reason": {strings.Repeat("x", 201)}}).is(t, http.StatusUnprocessableEntity)
	want(t, b.act(t, "/console/orders/"+order+"/refund", url.Values{"reason": {"The cake fell."}}), "The refund is under way", "paid → refunded",
		`data-label="Reason">The cake fell.</td>`, `id="refunds"`)
}

// Who has several groups chooses for which one a code is used; the report counts it there, and what lapsed unused.
func TestAPlaceAtTheTill(t *testing.T) {
	s := shared(t)
	t.Parallel()
	used := s.used(t)
	b := s.signedIn(t, "ada")
	report := b.page(t, used+"/report")
	want(t, report, "Used by place", ">south</th><td class=\"number\">1</td>", "Lapsed unused</dt><dd><b>1</b>")
	check.That(t, !strings.Contains(b.page(t, "/console/redeem"), `name="place"`), "who has no groups has a choice")
	s.administrator(t, "two-places")
	status, _ := s.call(t, http.MethodPut, "/admin/users/"+s.account(t, "two-places")+"/groups",
		s.token(t, "admin", model.RoleAdmin), map[string]any{"groups": []string{"north", "south"}})
	check.Equal(t, "groups", status, http.StatusOK)
	till := s.browser(t)
	till.signIn(t, "two-places", password).leads(t)
	want(t, till.page(t, "/console/redeem"), "<option>north</option><option>south</option>")
	id := strings.TrimPrefix(used, "/console/vouchers/")
	_, order := s.call(t, http.MethodGet, "/orders/"+s.paid(t, "tea", id), s.token(t, "tea", model.RoleUser), nil)
	code := url.Values{"code": {fmt.Sprint(order["code"])}, "place": {"west"}}
	till.post(t, "/console/redemptions", code).is(t, http.StatusUnprocessableEntity, "<option>south</option>")
	code.Set("place", "south")
	want(t, till.act(t, "/console/redemptions", code), "The code is used up.")
	want(t, b.page(t, used+"/report"), ">south</th><td class=\"number\">2</td>")
}

// A refund refused for good is found in the list, says why on its order's page, and can be tried again there.
func TestAFailedRefundIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	order := s.paid(t, "alice", b.create(t))
	done := func() bool {
		return strings.Contains(b.page(t, "/console/refunds?status=done"), `href="/console/orders/`+order+`"`)
	}
	want(t, b.page(t, "/console/refunds"), "There are none.", `aria-current="true">failed</a>`)
	b.act(t, "/console/orders/"+order+"/refund", nil)
	check.Patiently(t, "the money is back", done)
	want(t, b.page(t, "/console/orders/"+order), "<h2>Refunds</h2>", `<span class="badge done">done</span>`,
		"an administrator asked for it", `<td class="number" data-label="Attempts">1</td>`)

	exec := func(statement string) { s.exec(t, statement, order) }
	exec("UPDATE refunds SET status = 'failed', attempts = 3, error = 'the card is <closed>' WHERE order_id = ?")
	exec("UPDATE orders SET reason = 'REFUND_FAILED' WHERE id = ?")
	const kept = "The money is not back: the payment provider has refused to return it for good."
	want(t, b.page(t, "/console/orders/"+order), kept)
	want(t, b.page(t, "/console/orders?user=alice"),
		`<span class="badge">the money is not back: the payment provider has refused to return it</span>`)
	want(t, b.page(t, "/console/refunds"), `href="/console/orders/`+order+`"`, "the card is &lt;closed&gt;",
		`<td class="number" data-label="Attempts">3</td>`)
	want(t, b.page(t, "/console/refunds?status="), order)
	want(t, b.page(t, "/console"), "Refunds that the payment provider has refused: 1")
	exec("UPDATE refunds SET status = 'outside' WHERE order_id = ?")
	want(t, b.page(t, "/console"), "Refunds that a person pays back: 1", `href="/console/refunds?status=outside"`)
	exec("UPDATE refunds SET status = 'failed' WHERE order_id = ?")
	lacks(t, b.page(t, "/console/refunds?status=pending"), order)
	// A payment that was one too many: who tries its refund again must not refund the order.
	for status, offered := range map[string]bool{"paid": false, "refunded": true} {
		exec("UPDATE orders SET status = '" + status + "' WHERE id = ?")
		page := b.page(t, "/console/orders/"+order)
		check.Equal(t, "the refund of an order that is "+status+" can be tried again",
			strings.Contains(page, "Try the refund again"), offered)
	}
	exec("UPDATE orders SET status = 'refunded' WHERE id = ?")
	want(t, b.page(t, "/console/orders/"+order), "the card is &lt;closed&gt;", "Try the refund again")
	want(t, b.act(t, "/console/orders/"+order+"/refund", nil), "The refund is under way")
	check.Patiently(t, "the money is back after another try", done)
	lacks(t, b.page(t, "/console/orders/"+order), "Try the refund again", kept)
	b.get(t, "/console/refunds?status=lost").is(t, http.StatusUnprocessableEntity)
}
