//part:sales
package e2e_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/api"
	"seckill/internal/payment"
	"seckill/internal/payment/simulator"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// From the purchase to the use of the code, with the provider's own webhooks.
func TestAnOrderIsPaidAndUsed(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, func(t *testing.T, a *app, x *till, _ settings) {
		x.tells(t, a)
		voucher := a.onSale(t, 3)
		order := a.buys(t, voucher.ID, a.user(1))
		stranger := order
		stranger.UserID = a.user(2)
		check.Equal(t, "a stranger pays", a.asks(t, stranger, http.MethodPost, "/pay").Code(), model.CodeNotFound)
		started := a.pays(t, order)
		same(t, "repeated", a.pays(t, order), started)
		check.That(t, started.PaymentURL == x.url+"/pay/"+started.PaymentID &&
			started.Order.Status == model.OrderUnpaid,
			"%+v", started)
		document := readDocument(t, a)
		document.check(t, http.MethodPost, "/api/v1/orders/{id}/pay", a.asks(t, order, http.MethodPost, "/pay"))
		check.Equal(t, "its code before it is paid", a.now(t, order).Code, "")
		x.approve(t, started)
		paid := a.reaches(t, order, model.OrderPaid)
		check.Need(t, paid.PaidAt != nil && len(paid.Code) == 24, "%+v", paid)
		check.Equal(t, "its code in the list",
			remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/orders", a.as(t, order.UserID),
				nil)).Items[0].Code, paid.Code)
		check.Equal(t, "a stranger looks", a.asks(t, stranger, http.MethodGet, "").Code(), model.CodeNotFound)
		for _, move := range []string{"/pay", "/cancel"} {
			illegal(t, a.asks(t, order, http.MethodPost, move), model.OrderPaid)
		}
		document.check(t, http.MethodGet, "/api/v1/orders/{id}", a.asks(t, order, http.MethodGet, ""))
		detail := remote.Decode[model.OrderDetail](t,
			a.Call(t, http.MethodGet, "/admin/orders/"+order.ID, a.Admin(t), nil))
		check.Equal(t, "its code for an administrator", detail.Code, paid.Code)
		last := detail.History[len(detail.History)-1]
		check.That(t, last.To == model.OrderPaid && last.By == model.ByProvider, "history: %+v", detail.History)

		redeem := func(code string) api.Answer {
			return a.Call(t, http.MethodPost, "/admin/redemptions", a.Admin(t), map[string]string{"code": code})
		}
		check.Equal(t, "mistyped", redeem(paid.Code[:23]+otherThan(paid.Code[23])).Status,
			http.StatusUnprocessableEntity)
		check.Equal(t, "guessed", redeem("0000-0000-0000-0000-0000").Status, http.StatusNotFound)
		used := redeem(strings.ToLower(strings.ReplaceAll(paid.Code, "-", " ")))
		now := remote.Decode[model.Order](t, used)
		check.That(t, now.Status == model.OrderRedeemed && now.ID == order.ID, "used: %d %s", used.Status, used.Body)
		illegal(t, redeem(paid.Code), model.OrderRedeemed)
		x.balance(t, 1, 0)
	})
}

// TestGivenBack: a buyer gives a paid order back within its voucher's time for that, and not used, and not later. Its
// money goes back, and its unit goes to who waits.
func TestGivenBack(t *testing.T) { t.Parallel(); paidEverywhere(t, checkGivenBack) }

func checkGivenBack(t *testing.T, a *app, x *till, _ settings) {
	x.tells(t, a)
	doc := readDocument(t, a)
	gives := func(order model.Order) api.Answer {
		got := a.asks(t, order, http.MethodPost, "/withdraw")
		doc.check(t, http.MethodPost, "/api/v1/orders/{id}/withdraw", got)
		return got
	}
	redeem := func(order model.Order) api.Answer {
		return a.does(t, "POST /admin/redemptions", a.Admin(t), map[string]string{"code": order.Code})
	}
	v := a.Create(t, map[string]any{"stock": 1, "waitlist": true, "withdrawal": "336h", "cooldown": "10m"})
	check.Equal(t, "the time for it", v.Withdrawal.String(), "336h0m0s")
	order := a.buys(t, v.ID, a.user(1))
	illegal(t, gives(order), model.OrderUnpaid)
	x.approve(t, a.pays(t, order))
	order = a.reaches(t, order, model.OrderPaid)
	heir := a.as(t, a.user(2))
	object(t, a.does(t, "POST /vouchers/"+v.ID+"/waitlist", heir, nil), http.StatusCreated)
	stranger := order
	stranger.UserID = a.user(3)
	refused(t, gives(stranger), model.CodeNotFound)
	first, again := gives(order), gives(order)
	check.That(t, first.Status == http.StatusAccepted && again.Status == http.StatusOK &&
		bytes.Equal(first.Body, again.Body), "%d %s, and again: %d %s", first.Status, first.Body, again.Status, again.Body)
	receipt := remote.Decode[model.OrderDetail](t, first)
	last := receipt.History[len(receipt.History)-1]
	check.That(t, receipt.Status == model.OrderRefunded && receipt.Code == "" && receipt.ClosedAt != nil &&
		last.At.Equal(*receipt.ClosedAt) && last.To == model.OrderRefunded && last.By == order.UserID, "%+v", receipt)
	illegal(t, redeem(order), model.OrderRefunded)
	place := remote.Decode[model.WaitlistPlace](t, a.does(t, "GET /vouchers/"+v.ID+"/waitlist", heir, nil))
	check.That(t, place.OrderID != "", "who waited has no order: %+v", place)
	a.back(t, 1)
	check.Equal(t, "why", a.refunds(t, "done")[0].Reason, model.RefundWithdrawn)
	check.Patiently(t, "no cool-down", func() bool { return a.buy(t, v.ID, order.UserID).Code() == model.CodeSoldOut })

	short := a.Create(t, map[string]any{"stock": 2, "withdrawal": "1s"})
	over := func(order model.Order, until time.Time) {
		t.Helper()
		check.Equal(t, "until", refused(t, gives(order), model.CodeWithdrawalOver).Until, until)
	}
	late := a.paid(t, x, short.ID, a.user(4))
	until := late.PaidAt.Add(time.Second)
	check.Patiently(t, "the time has passed", func() bool {
		return reads[model.Voucher](t, a, "/vouchers/"+short.ID).ServerTime.After(until)
	})
	over(late, until)
	over(a.paid(t, x, a.onSale(t, 1).ID, a.user(5)), time.Time{})
	used := a.paid(t, x, short.ID, a.user(6))
	check.Equal(t, "used", redeem(used).Status, http.StatusOK)
	illegal(t, gives(used), model.OrderRedeemed)
	x.balance(t, 4, 1)
	for _, id := range []string{v.ID, short.ID} {
		check.Patiently(t, "the audit", func() bool { return a.Audit(t, id).Balanced })
	}
}

// A code is good in its time, at the tills of its redeemers; whoever it is not for hears nothing of its order.
func TestTimesAndPlacesOfCodes(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, func(t *testing.T, a *app, x *till, _ settings) {
		x.tells(t, a)
		soon, doc := time.Now().UTC().Truncate(time.Second).Add(time.Hour), readDocument(t, a)
		voucher := a.Create(t, map[string]any{"stock": 2, "valid_from": soon, "valid_for": "3h", "redeemers": []string{"north", "south"}})
		order := a.paid(t, x, voucher.ID, a.user(1))
		check.That(t, order.ValidFrom.Equal(soon) && order.ValidUntil.Equal(order.PaidAt.Add(3*time.Hour)), "%+v", order.Validity)
		as := func(groups ...string) string {
			return check.Value(a.Tokens.Issue(token.Claims{Subject: "till", Role: model.RoleAdmin, Level: model.LevelCashier, Groups: groups}, time.Hour))(t)
		}
		redeem := func(who, place string) api.Answer {
			got := a.Call(t, http.MethodPost, "/admin/redemptions", who, map[string]string{"code": order.Code, "place": place})
			if got.Status != http.StatusForbidden { // of which FORBIDDEN has a header more
				doc.check(t, http.MethodPost, "/api/v1/admin/redemptions", got)
			}
			return got
		}
		nobody := redeem(as("west"), "")
		refused(t, nobody, model.CodeNotEligible)
		check.That(t, !strings.Contains(string(nobody.Body), order.ID), "it tells the order: %s", nobody.Body)
		refused(t, a.Call(t, http.MethodGet, "/admin/orders?q="+order.Code, as("west"), nil), model.CodeNotEligible)
		found := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/admin/orders?q="+order.Code, as("south"), nil))
		check.That(t, len(found.Items) == 1 && found.Items[0].ID == order.ID, "found %+v", found)
		early := redeem(as("south"), "")
		refused(t, early, model.CodeNotYetValid)
		said := remote.Decode[model.Validity](t, early)
		check.That(t, said.ValidFrom.Equal(soon) && said.ValidUntil.Equal(*order.ValidUntil), "%s", early.Body)
		change := func(fields map[string]any) api.Answer {
			return a.Call(t, http.MethodPatch, "/admin/vouchers/"+voucher.ID, a.Admin(t), fields)
		}
		refused(t, change(map[string]any{"valid_for": "2h"}), model.CodeConflict)
		check.Equal(t, "made longer", change(map[string]any{"valid_from": "", "valid_for": "4h"}).Status, http.StatusOK)
		check.Patiently(t, "the buyer is told", func() bool {
			now := a.now(t, order)
			return now.ValidFrom == nil && now.ValidUntil.Equal(order.PaidAt.Add(4*time.Hour))
		})
		refused(t, redeem(as("south"), "north"), model.CodeValidation)
		check.Equal(t, "used", redeem(as("north", "south"), "south").Status, http.StatusOK)
		report := remote.Decode[model.Report](t, a.Call(t, http.MethodGet, "/admin/vouchers/"+voucher.ID+"/report", a.Admin(t), nil))
		check.That(t, report.UsesByPlace["south"] == 1 && report.Lapsed == 0, "%+v", report)
		short := a.Create(t, map[string]any{"stock": 1, "valid_for": "1h", "valid_until": soon.Add(-2 * time.Hour)})
		order = a.paid(t, x, short.ID, a.user(2))
		refused(t, redeem(a.Admin(t), ""), model.CodeExpired)
		report = remote.Decode[model.Report](t, a.Call(t, http.MethodGet, "/admin/vouchers/"+short.ID+"/report", a.Admin(t), nil))
		check.That(t, report.Lapsed == 1 && report.LapsedMoney == order.Price, "%+v", report)
	})
}

// A use is undone by the cashier who made it or by an operator. A used order is refunded only if that is said; its unit
// leaves the stock, and nobody buys it again.
func TestAUseIsUndone(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, func(t *testing.T, a *app, x *till, _ settings) {
		x.tells(t, a)
		voucher := a.onSale(t, 2)
		order := a.paid(t, x, voucher.ID, a.user(1))
		as := func(name string, level model.Level) string {
			return check.Value(a.Tokens.Issue(token.Claims{Subject: name, Role: model.RoleAdmin, Level: level}, time.Hour))(t)
		}
		till, other, operator := as("till", model.LevelCashier), as("other", model.LevelCashier), as("boss", model.LevelOperator)
		path := "/admin/orders/" + order.ID
		redeem := func() api.Answer {
			return a.Call(t, http.MethodPost, "/admin/redemptions", till, map[string]string{"code": order.Code})
		}
		undo := func(who, reason string) api.Answer {
			return a.Call(t, http.MethodPost, path+"/unredeem", who, map[string]string{"reason": reason})
		}
		illegal(t, undo(operator, "x"), model.OrderPaid)
		check.Equal(t, "used", redeem().Status, http.StatusOK)
		refused(t, undo(till, ""), model.CodeValidation)
		refused(t, undo(other, "x"), model.CodeForbidden)
		refused(t, undo(as("v", model.LevelViewer), "x"), model.CodeForbidden)
		again := remote.Decode[model.Order](t, undo(till, "the wrong guest"))
		check.That(t, again.Status == model.OrderPaid && again.PaidAt.Equal(*order.PaidAt) && again.Code == order.Code, "undone: %+v", again)
		check.Equal(t, "used again", redeem().Status, http.StatusOK)
		readDocument(t, a).check(t, http.MethodPost, "/api/v1/admin/orders/{id}/unredeem", undo(operator, "closed today"))
		check.Equal(t, "used once more", redeem().Status, http.StatusOK)
		detail := remote.Decode[model.OrderDetail](t, a.Call(t, http.MethodGet, path, operator, nil))
		var told []string
		for _, u := range detail.Uses {
			told = append(told, fmt.Sprintf("%s %t %s %s", u.By, u.UndoneAt != nil, u.UndoneBy, u.Reason))
		}
		check.Equal(t, "its uses", strings.Join(told, ", "), "till true till the wrong guest, till true boss closed today, till false  ")
		check.Equal(t, "why it was undone", detail.History[len(detail.History)-4].Reason, "the wrong guest")

		illegal(t, a.Call(t, http.MethodPost, path+"/refund", operator, nil), model.OrderRedeemed)
		refused(t, a.Call(t, http.MethodPost, path+"/refund", till, map[string]bool{"used": true}), model.CodeForbidden)
		got := a.Call(t, http.MethodPost, path+"/refund", operator, map[string]bool{"used": true})
		check.Equal(t, "refunded", got.Status, http.StatusAccepted)
		illegal(t, undo(operator, "x"), model.OrderRefunded)
		a.back(t, 1)
		check.Patiently(t, "the unit is off the stock", func() bool {
			now := remote.Decode[model.Voucher](t, a.Call(t, http.MethodGet, "/vouchers/"+voucher.ID, "", nil))
			return now.Stock == 1 && now.Remaining == 1 && a.Audit(t, voucher.ID).Balanced
		})
		last := a.paid(t, x, voucher.ID, order.UserID)
		refused(t, a.buy(t, voucher.ID, a.user(2)), model.CodeSoldOut)
		report := remote.Decode[model.Report](t, a.Call(t, http.MethodGet, "/admin/vouchers/"+voucher.ID+"/report", operator, nil))
		check.That(t, report.WrittenOff == 1 && report.Returned == 0 && report.Resold == 0 && report.Stock == 1, "report %+v", report)
		check.That(t, last.ID != order.ID && a.Audit(t, voucher.ID).Balanced, "%+v", last)
		x.balance(t, 2, 1)
	})
}

func illegal(t *testing.T, got api.Answer, status model.OrderStatus) {
	t.Helper()
	check.Equal(t, "the order's status", refused(t, got, model.CodeIllegalState).OrderStatus, status)
}

func otherThan(c byte) string {
	if c == '7' {
		return "8"
	}
	return "7"
}

// What webhooks may say, through real HTTP, and what they do.
func TestWebhooksOfPayments(t *testing.T) { t.Parallel(); paidEverywhere(t, checkWebhooks) }

func checkWebhooks(t *testing.T, a *app, x *till, _ settings) {
	voucher := a.onSale(t, 10)
	order := a.buys(t, voucher.ID, a.user(1))
	first := a.pays(t, order)
	forged, declined := of(first), of(first)
	forged.secret = "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
	check.Equal(t, "a forged one", a.hears(t, forged).Code(), model.CodeUnauthenticated)
	declined.id, declined.event.Type = "declined", payment.EventFailed
	a.heard(t, declined)
	check.Equal(t, "after a failed payment", a.now(t, order).Status, model.OrderUnpaid)
	second := a.pays(t, order)
	check.That(t, second.PaymentID != first.PaymentID, "a payment that has failed is repeated")

	// One that was wrong and comes again corrected, deliveries at once, repetitions, and another message of a used id.
	pays := of(second)
	for _, wrong := range []payment.Money{{Amount: 999, Currency: "CNY"}, {Amount: 1001, Currency: "CNY"}, {Amount: 1000, Currency: "JPY"}} {
		pays.event.Data.Money = wrong
		refused(t, a.hears(t, pays), model.CodeValidation)
	}
	pays.secret = oldHookSecret
	pays.body = `{"type":"payment.succeeded","timestamp":"2026-01-01T00:00:00Z","data":{"payment_id":"` +
		second.PaymentID +
		`","order_id":"` + order.ID + `","amount":1000,"currency":"` + order.Currency + `","method":"card"}}`
	check.Volley(20, func(int) { a.heard(t, pays) })
	paid := a.reaches(t, order, model.OrderPaid)
	declined.id = pays.id
	refused(t, a.hears(t, declined), model.CodeValidation)

	// The first payment had failed, and its money comes all the same: the order is paid already.
	x.approve(t, first)
	a.heard(t, of(first))
	a.back(t, 1)
	check.Equal(t, "its reason", a.refunds(t, "done")[0].Reason, model.RefundDuplicate)
	same(t, "afterwards", a.now(t, order), paid)
	x.balance(t, 1, 1) // the other payment was never made at the provider
	check.That(t, a.Audit(t, voucher.ID).Balanced, "the stock does not add up")
}

// The books of a span are of all vouchers, each order once; their sums are those of the reports to the cent.
func TestBooksOfASpan(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, func(t *testing.T, a *app, x *till, _ settings) {
		x.tells(t, a)
		vouchers := []string{a.onSale(t, 5).ID, a.onSale(t, 5).ID}
		for i, id := range vouchers {
			paid := a.buys(t, id, a.user(10*i+1))
			x.approve(t, a.pays(t, paid))
			a.reaches(t, paid, model.OrderPaid)
			back := a.buys(t, id, a.user(10*i+2))
			x.approve(t, a.pays(t, back))
			a.reaches(t, back, model.OrderPaid)
			a.refund(t, back)
			late := a.buys(t, id, a.user(10*i+3))
			started := a.pays(t, late)
			a.cancels(t, late)
			x.approve(t, started)
			a.buys(t, id, a.user(10*i+4))
		}
		a.back(t, 4)
		read := func(path string) (rows map[string]map[string]string) {
			answer := a.Call(t, http.MethodGet, path, a.Admin(t), nil)
			check.Need(t, answer.Status == http.StatusOK, "%s: %d %s", path, answer.Status, answer.Body)
			records := check.Value(csv.NewReader(bytes.NewReader(answer.Body)).ReadAll())(t)
			rows = map[string]map[string]string{}
			for _, record := range records[1:] {
				row := map[string]string{}
				for i, name := range records[0] {
					row[name] = record[i]
				}
				check.That(t, rows[row["id"]] == nil, "%s: order %s comes twice", path, row["id"])
				rows[row["id"]] = row
			}
			return rows
		}
		from, to := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		span := "from=" + from + "&to=" + to
		for query, want := range map[string]int{
			"format=csv": 4, "format=csv&" + span: 4, "format=csv&of=created&from=" + from: 4, "format=csv&of=paid&" + span: 2,
			"format=csv&of=closed&" + span: 2, "format=csv&of=redeemed": 0, "format=csv&of=paid&status=paid&" + span: 1,
			"format=csv&of=paid&to=" + from: 0, "format=csv&of=created&from=" + to: 0,
		} {
			all := read("/admin/orders?" + query)
			for _, id := range vouchers {
				rows := read("/admin/vouchers/" + id + "/orders?" + query)
				check.Equal(t, "orders of a voucher by "+query, len(rows), want)
				for order, row := range rows {
					check.That(t, reflect.DeepEqual(all[order], row), "%s: %v of all vouchers, %v of its own", query, all[order], row)
				}
				if !strings.HasSuffix(query, span) || strings.Contains(query, "of=") {
					continue
				}
				var received, returned int64
				for _, row := range rows {
					received += check.Value(strconv.ParseInt(row["received"], 10, 64))(t)
					returned += check.Value(strconv.ParseInt(row["returned"], 10, 64))(t)
				}
				check.Equal(t, "the books", model.ReportMoney{Received: received, Returned: returned}, a.reportOf(t, id).Money)
				check.That(t, returned > 0 && returned < received, "%d received, %d returned", received, returned)
			}
			listed := map[string]bool{}
			for cursor, more := "", true; more; more = cursor != "" {
				page := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/admin/orders?limit=3&cursor="+cursor+"&"+strings.TrimPrefix(query, "format=csv"), a.Admin(t), nil))
				for _, order := range page.Items {
					check.That(t, !listed[order.ID] && all[order.ID] != nil, "%s lists %s", query, order.ID)
					listed[order.ID] = true
				}
				cursor = page.NextCursor
			}
			check.Equal(t, "orders that are listed by "+query, len(listed), len(all))
		}
		for _, wrong := range []string{"of=unpaid", "from=yesterday", "to=2026-01-01"} {
			refused(t, a.Call(t, http.MethodGet, "/admin/orders?"+wrong, a.Admin(t), nil), model.CodeValidation)
		}
		answer := a.Call(t, http.MethodGet, "/admin/orders?format=xlsx&of=paid", a.Admin(t), nil)
		check.That(t, answer.Status == http.StatusOK && bytes.HasPrefix(answer.Body, []byte("PK")), "xlsx: %d %.99s", answer.Status, answer.Body)
		refused(t, a.Call(t, http.MethodGet, "/admin/orders?format=csv", a.as(t, a.user(1)), nil), model.CodeForbidden)
	})
}

// A person who leaves is told everything, and then nothing has the id: not the lists, not after a rebuild; the sale adds up.
func TestAPersonLeaves(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, func(t *testing.T, a *app, x *till, _ settings) {
		x.tells(t, a)
		name := a.name("leaver")
		a.register(t, name)
		token, _ := a.session(t, name, rightPassword)
		user := remote.Decode[handler.Me](t, a.Call(t, http.MethodGet, "/auth/me", token, nil)).ID
		voucher := a.onSale(t, 5)
		order, path := a.buys(t, voucher.ID, user), "/admin/users/"+user
		erase := func() api.Answer { return a.does(t, "DELETE "+path, a.Admin(t), nil) }
		refusal := erase()
		refused(t, refusal, model.CodeConflict)
		check.That(t, strings.Contains(string(refusal.Body), `"order_ids":["`+order.ID+`"]`), "the orders in the way: %s", refusal.Body)
		a.cancels(t, order)
		used := a.buys(t, voucher.ID, user)
		x.approve(t, a.pays(t, used))
		paid := a.reaches(t, used, model.OrderPaid)
		refused(t, erase(), model.CodeConflict)
		redeemed := a.does(t, "POST /admin/redemptions", a.Admin(t), map[string]string{"code": paid.Code})
		check.Equal(t, "the code is used", redeemed.Status, http.StatusOK)
		held := reads[model.PersonData](t, a, path+"/data")
		check.That(t, len(held.Orders) == 2 && held.Account != nil && held.Account.Username == name && held.Orders[0].Code == "" &&
			len(held.Orders[0].Payments) == 1 && len(held.Orders[0].History) > 2 && len(held.Log) > 0, "%+v", held)
		for _, call := range []string{"DELETE " + path, "GET " + path + "/data"} {
			refused(t, a.once(t, call, a.as(t, user), nil), model.CodeForbidden)
		}
		for range 2 {
			check.Equal(t, "erased", erase().Status, http.StatusNoContent)
		}
		refused(t, a.once(t, "GET /orders", token, nil), model.CodeUnauthenticated)
		refused(t, a.login(t, name, rightPassword), model.CodeUnauthenticated)
		held = reads[model.PersonData](t, a, path+"/data")
		check.That(t, len(held.Orders)+len(held.Log)+len(held.Waitlist)+len(held.Entries)+len(held.Events) == 0, "%+v", held)
		export := a.does(t, "GET /admin/vouchers/"+voucher.ID+"/orders?format=csv", a.Admin(t), nil)
		check.That(t, bytes.Count(export.Body, []byte("erased-")) == 2 && !bytes.Contains(export.Body, []byte(user)), "%s", export.Body)
		a.quiet(t, voucher.ID)
		if audit := a.Audit(t, voucher.ID); audit.Redis != nil {
			a.rebuild(t, voucher.ID)
			a.quiet(t, voucher.ID)
		}
		check.Equal(t, "its orders", len(reads[model.PersonData](t, a, path+"/data").Orders), 0)
	})
}

// TestMoneyThatMovesAtTheProvider: a refund or dispute at the provider, by nobody's call, moves the order that it paid.
func TestMoneyThatMovesAtTheProvider(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, checkMovedMoney)
}

func checkMovedMoney(t *testing.T, a *app, x *till, s settings) {
	silence := x.tells(t, a)
	voucher := a.onSale(t, 3)
	paid := func(n int) (order model.Order, decide func(simulator.Decision)) {
		order = a.buys(t, voucher.ID, a.user(n))
		started := a.pays(t, order)
		x.approve(t, started)
		return a.reaches(t, order, model.OrderPaid), func(d simulator.Decision) { check.Must(t, x.Decide(t.Context(), started.PaymentID, d)) }
	}
	says := func(order model.Order, status model.OrderStatus, reason string) {
		t.Helper()
		check.Patiently(t, order.ID+" says "+reason,
			func() bool { order = a.now(t, order); return order.Reason == reason && order.Status == status })
	}
	redeem := func(order model.Order) api.Answer {
		return a.does(t, "POST /admin/redemptions", a.Admin(t), map[string]string{"code": order.Code})
	}
	whole, wholly := paid(1)
	disputed, dispute := paid(2)
	unheard, unheardly := paid(3)

	wholly(simulator.Refund)
	says(whole, model.OrderRefunded, "")
	check.Equal(t, "a dead code", redeem(whole).Code(), model.CodeIllegalState)
	check.Equal(t, "a dead code is shown", a.now(t, whole).Code, "")
	check.Patiently(t, "the unit is sold again",
		func() bool { return a.buy(t, voucher.ID, a.user(4)).Code() != model.CodeSoldOut })

	dispute(simulator.Dispute)
	says(disputed, model.OrderPaid, model.ReasonDisputed)
	illegal(t, redeem(disputed), model.OrderPaid)
	dispute(simulator.Win)
	says(disputed, model.OrderPaid, "")
	check.Equal(t, "a code whose dispute is won", redeem(disputed).Status, http.StatusOK)
	before := a.metric(t, `seckill_payment_notices_total{outcome="USED_UNPAID",source="webhook"}`)
	dispute(simulator.Refund)
	says(disputed, model.OrderRedeemed, model.RefundOfUsed)
	check.Equal(t, "told of a used one", a.metric(t,
		`seckill_payment_notices_total{outcome="USED_UNPAID",source="webhook"}`), before+1)

	// A lost webhook is no harm: the provider is asked, also later than the payment was decided.
	if s["SECKILL_DATABASE_DSN"] != "" {
		silence()
		for _, then := range []struct {
			simulator.Decision
			model.OrderStatus
			reason string
		}{{simulator.Dispute, model.OrderPaid, model.ReasonDisputed}, {simulator.Lose, model.OrderRefunded, ""}} {
			unheardly(then.Decision)
			execute(t, s, "UPDATE payments SET next_at = UTC_TIMESTAMP(6) WHERE order_id = '"+unheard.ID+
				"' AND next_at > UTC_TIMESTAMP(6)")
			says(unheard, then.OrderStatus, then.reason)
		}
	}
	check.Patiently(t, "the audit", func() bool { return a.Audit(t, voucher.ID).Balanced })
}

// TestFreeVouchers: an order that costs nothing is paid where it is made, whoever it is for; no provider hears of it.
func TestFreeVouchers(t *testing.T) { t.Parallel(); paidEverywhere(t, checkFree) }

func checkFree(t *testing.T, a *app, x *till, _ settings) {
	doc := readDocument(t, a)
	free := map[string]any{"price": 0, "stock": 1, "waitlist": true}
	v := a.Create(t, free)
	bought := a.bought(t, v.ID, a.user(1))
	order := a.becomes(t, bought, model.OrderPaid)
	check.That(t, len(order.Code) == 24 && order.ExpiresAt == nil && order.PaidAt != nil && order.Price == 0, "%+v", order)
	if bought.Status != model.OrderProcessing {
		same(t, "the purchase's answer", bought, order)
	}
	paysNothing := func(order model.Order) {
		t.Helper()
		got := a.asks(t, order, http.MethodPost, "/pay")
		doc.check(t, http.MethodPost, "/api/v1/orders/{id}/pay", got)
		check.Equal(t, "to pay nothing", got.Status, http.StatusOK)
		same(t, "paid for nothing", remote.Decode[handler.PaymentStart](t, got), handler.PaymentStart{Order: order})
	}
	paysNothing(order)
	illegal(t, a.asks(t, order, http.MethodPost, "/cancel"), model.OrderPaid)
	history := reads[model.OrderDetail](t, a, "/admin/orders/"+order.ID).History
	check.Equal(t, "how it began", history[len(history)-1].To, model.OrderPaid)

	// What is refunded moves no money, and is an order of who waits.
	waits := func(user string) model.WaitlistPlace {
		got := a.does(t, "POST /vouchers/"+v.ID+"/waitlist", a.as(t, user), nil)
		if got.Code() == model.CodeAlreadyOrdered {
			got = a.does(t, "GET /vouchers/"+v.ID+"/waitlist", a.as(t, user), nil)
		}
		return remote.Decode[model.WaitlistPlace](t, got)
	}
	check.Equal(t, "the place", waits(a.user(2)).Position, int64(1))
	a.refund(t, order)
	illegal(t, a.asks(t, order, http.MethodPost, "/pay"), model.OrderRefunded)
	done := a.refunds(t, "done")
	check.That(t, len(done) == 1 && done[0].OrderID == order.ID && done[0].Amount == 0, "%+v", done)
	heir := a.now(t, model.Order{ID: waits(a.user(2)).OrderID, UserID: a.user(2)})
	check.That(t, heir.Status == model.OrderPaid && len(heir.Code) == 24 && heir.ExpiresAt == nil, "%+v", heir)
	used := a.does(t, "POST /admin/redemptions", a.Admin(t), map[string]string{"code": heir.Code})
	paysNothing(remote.Decode[model.Order](t, used))

	drawn := a.Create(t, map[string]any{"price": 0, "stock": 1, "allocation": "draw"})
	check.Equal(t, "an entry", a.buy(t, drawn.ID, a.user(3)).Status, http.StatusAccepted)
	a.closeSale(t, drawn.ID)
	a.awaitDrawn(t, drawn.ID)
	winner := a.mine(t, drawn.ID, a.user(3))
	check.That(t, len(winner) == 1 && winner[0].Status == model.OrderPaid && len(winner[0].Code) == 24, "%+v", winner)

	report := a.reportOf(t, v.ID)
	check.That(t, report.Money == model.ReportMoney{} && report.Orders == 2 && report.NeverPaid == 0, "%+v", report)
	check.Patiently(t, "the audit", func() bool { return a.Audit(t, v.ID).Balanced && a.Audit(t, drawn.ID).Balanced })
	x.balance(t, 0, 0)
}

// TestPaidElsewhere: a cashier says that an order was paid elsewhere; no provider hears of it, and a person pays it back.
func TestPaidElsewhere(t *testing.T) { t.Parallel(); paidEverywhere(t, checkElsewhere) }

func checkElsewhere(t *testing.T, a *app, x *till, _ settings) {
	x.tells(t, a)
	doc := readDocument(t, a)
	const paid = "POST /admin/orders/{id}/paid"
	asks := func(call string, order model.Order, level model.Level, body any) api.Answer {
		t.Helper()
		token := check.Value(a.Tokens.Issue(token.Claims{Subject: a.name("clerk"), Role: model.RoleAdmin, Level: level}, time.Hour))(t)
		got := a.does(t, strings.Replace(call, "{id}", order.ID, 1), token, body)
		doc.check(t, http.MethodPost, "/api/v1"+strings.TrimPrefix(call, "POST "), got)
		return got
	}
	says := func(order model.Order, reference string) api.Answer {
		return asks(paid, order, model.LevelCashier, map[string]any{"reference": reference, "method": "cash"})
	}
	v := a.onSale(t, 2)
	order := a.buys(t, v.ID, a.user(1))
	started := a.pays(t, order)
	refused(t, asks(paid, order, model.LevelViewer, map[string]any{"reference": "x"}), model.CodeForbidden)
	for _, wrong := range []map[string]any{
		{},
		{"reference": ""},
		{"reference": "  "},
		{"reference": strings.Repeat("é", 129)},
		{"reference": "a\tb"},
		{"reference": "x", "method": strings.Repeat("m", 33)},
	} {
		refused(t, asks(paid, order, model.LevelCashier, wrong), model.CodeValidation)
	}
	check.Equal(t, "after what is wrong", a.now(t, order).Status, model.OrderUnpaid)

	reference := a.name("回执") // that no other test has
	first, again := says(order, reference), says(order, reference)
	check.That(t, first.Status == http.StatusOK && again.Status == http.StatusOK && bytes.Equal(first.Body, again.Body),
		"%d %s, and again: %d %s", first.Status, first.Body, again.Status, again.Body)
	done := remote.Decode[model.Order](t, first)
	check.That(t, done.Status == model.OrderPaid && len(done.Code) == 24 && done.PaidReference == reference, "%+v", done)
	check.Equal(t, "the first reference", refused(t, says(order, "another"), model.CodeAlreadyPaid).Reference, reference)
	mine := a.now(t, order)
	check.That(t, mine.Code == done.Code && mine.PaidReference == "" && a.mine(t, v.ID, order.UserID)[0].PaidReference == "",
		"the buyer sees %+v", mine)
	found := reads[model.OrderPage](t, a, "/admin/orders?q="+url.QueryEscape(reference)).Items
	check.That(t, len(found) == 1 && found[0].ID == order.ID, "found by the reference: %+v", found)
	history := reads[model.OrderDetail](t, a, "/admin/orders/"+order.ID).History
	last := history[len(history)-1]
	check.That(t, last.By == a.name("clerk") && last.Reason == reference, "%+v", history)

	// The provider's money comes all the same, and goes back; nothing else of it changes.
	x.approve(t, started)
	a.back(t, 1)
	same(t, "after the provider's money", a.now(t, order), mine)
	x.balance(t, 1, 1)
	bought := a.paid(t, x, v.ID, a.user(2))
	illegal(t, says(bought, reference), model.OrderPaid)

	const refund, back = "POST /admin/orders/{id}/refund", "POST /admin/orders/{id}/refund/done"
	illegal(t, asks(back, order, model.LevelOperator, nil), model.OrderPaid)
	got := asks(refund, order, model.LevelOperator, nil)
	owed := remote.Decode[model.Refund](t, got)
	check.That(t, got.Status == http.StatusAccepted && owed.Outside && owed.Amount == order.Price, "%d %s", got.Status, got.Body)
	list := a.refunds(t, "outside")
	check.That(t, len(list) == 1 && list[0].OrderID == order.ID && list[0].Outside, "%+v", list)
	check.Equal(t, "Money elsewhere", a.reportOf(t, v.ID).Money.Elsewhere, order.Price)
	refused(t, asks(back, order, model.LevelCashier, nil), model.CodeForbidden)
	first, again = asks(back, order, model.LevelOperator, nil), asks(back, order, model.LevelOperator, nil)
	check.That(t, first.Status == http.StatusOK && bytes.Equal(first.Body, again.Body), "%d %s, again: %s", first.Status, first.Body, again.Body)
	check.Equal(t, "to be paid back", len(a.refunds(t, "outside")), 0)
	illegal(t, asks(back, bought, model.LevelOperator, nil), model.OrderPaid)
	check.Patiently(t, "the unit is sold again", func() bool { return a.buy(t, v.ID, a.user(3)).Sells() })
	x.balance(t, 2, 1)
}

func TestWithoutAProvider(t *testing.T) {
	t.Parallel()
	within(t, "sync on servers", func(t *testing.T, a shop) {
		voucher := a.onSale(t, 1)
		order := a.buys(t, voucher.ID, a.user(1))
		check.Equal(t, "pay", a.asks(t, order, http.MethodPost, "/pay").Code(), model.CodeUnavailable)
		free := refused(t, a.once(t, "PATCH /admin/vouchers/"+voucher.ID, a.Admin(t), `{"price":0}`), model.CodeValidation)
		check.That(t, free.Errors[0].Location == "body.price" &&
			strings.Contains(free.Errors[0].Message, "SECKILL_CODE_KEY"), "%+v", free)
		h := hook{id: "1", secret: hookSecret, at: time.Now(), body: `{"type":"payment.succeeded","data":{}}`}
		check.Equal(t, "webhook", a.hears(t, h).Status, http.StatusUnauthorized)
	})
}

// Without a setting the simulator inside takes the money, and sends webhooks to its own instance.
//
//nolint:tparallel // the second start finds what the first has left
func TestTheEmbeddedSimulator(t *testing.T) {
	t.Parallel()
	s := embeddedSettings(t)
	var order model.Order
	var code string
	t.Run("pays", func(t *testing.T) {
		a := start(t, s)
		order = a.buys(t, a.onSale(t, 1).ID, a.user(1))
		page := a.pays(t, order).PaymentURL
		got, err := a.Client.PostForm(page, map[string][]string{"decision": {"approve"}})
		check.Must(t, err)
		check.Must(t, got.Body.Close())
		check.Equal(t, "approve", got.StatusCode, http.StatusSeeOther)
		code = a.reaches(t, order, model.OrderPaid).Code
	})
	t.Run("keeps the code", func(t *testing.T) {
		check.Equal(t, "the code after another start", start(t, s).now(t, order).Code, code)
	})
}

// The secrets of webhooks: the provider signs with the first, and one that is about to be replaced verifies too.
const (
	hookSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	oldHookSecret = "a secret of webhooks that is replaced"
)

// till is a simulated provider of its own, outside of the instances, so that it can go wrong and they can die.
type till struct {
	*simulator.Server

	url        string
	front      *check.Front
	signatures *payment.Signatures
}

func openTill(t *testing.T) *till {
	t.Helper()
	x := &till{signatures: check.Value(payment.NewSignatures([]string{hookSecret}))(t)}
	x.Server = check.Value(simulator.New(t.Context(), simulator.Options{
		File: filepath.Join(t.TempDir(), "ledger.db"), Keys: check.Value(payment.Keys([]string{hookSecret}))(t),
		Signatures: x.signatures, Log: slog.New(slog.DiscardHandler),
	}))(t)
	x.front = &check.Front{Server: x.Server}
	server := httptest.NewServer(x.front)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	x.url = server.URL
	t.Cleanup(func() {
		server.Close()
		check.Must(t, x.Close())
	})
	return x
}

func (x *till) settings() settings {
	return settings{
		"SECKILL_PAYMENT_URL": x.url, "SECKILL_WEBHOOK_SECRETS": hookSecret + "," + oldHookSecret,
		"SECKILL_CODE_KEY": "a key of codes in tests, 32 bytes or more",
	}
}

// tells sends the provider's webhooks to an instance until the test ends, or the function it returns is called.
func (x *till) tells(t *testing.T, a *app) (stop func()) {
	t.Helper()
	return x.runs(t, a.URL+"/api/v1/webhooks/payments")
}

func (x *till) runs(t *testing.T, address string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Run(ctx, address)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// tellsTwice is tells through somebody who sends every webhook twice, and says what the second answer says.
func (x *till) tellsTwice(t *testing.T, a *app) {
	twice := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, status := check.Value(io.ReadAll(r.Body))(t), http.StatusBadGateway
		for range 2 {
			again := r.Clone(r.Context())
			again.Body, again.RequestURI = io.NopCloser(bytes.NewReader(body)), ""
			again.URL = check.Value(url.Parse(a.URL + "/api/v1/webhooks/payments"))(t)
			if got, err := a.Client.Do(again); err == nil {
				_ = got.Body.Close()
				status = got.StatusCode
			}
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(twice.Close)
	x.runs(t, twice.URL)
}

// balance demands what the ledger adds up to: payments that succeeded and refunds, of 1000 each.
func (x *till) balance(t testing.TB, payments, refunds int64) {
	t.Helper()
	got := check.Value(x.Balance(t.Context()))(t)
	check.That(t, got.Payments == payments && got.Received == 1000*payments && got.Refunds == refunds &&
		got.Refunded == 1000*refunds,
		"the provider's ledger is %+v, want %d payments and %d refunds of 1000", got, payments, refunds)
}

// paidEverywhere runs a test with a provider in both order modes, on the real servers and on the embedded ones.
func paidEverywhere(t *testing.T, test func(t *testing.T, a *app, x *till, s settings)) {
	t.Helper()
	for name, d := range deployments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := openTill(t)
			s := d.settings(t).with(x.settings()).with(settings{"SECKILL_ORDER_MODE": string(d.mode)})
			test(t, start(t, s), x, s)
		})
	}
}

func (a *app) asks(t testing.TB, order model.Order, method, what string) api.Answer {
	t.Helper()
	return a.Call(t, method, "/orders/"+order.ID+what, a.as(t, order.UserID), nil)
}

func (a *app) pays(t testing.TB, order model.Order) handler.PaymentStart {
	t.Helper()
	got := a.Insist(t, http.MethodPost, "/orders/"+order.ID+"/pay", a.as(t, order.UserID), nil)
	check.Need(t, got.Status == http.StatusAccepted, "pay order %s: %d %s", order.ID, got.Status, got.Body)
	return remote.Decode[handler.PaymentStart](t, got)
}

func (a *app) now(t testing.TB, order model.Order) model.Order {
	t.Helper()
	return remote.Decode[model.Order](t, a.Insist(t, http.MethodGet, "/orders/"+order.ID, a.as(t, order.UserID), nil))
}

func (a *app) reaches(t *testing.T, order model.Order, want model.OrderStatus) model.Order {
	t.Helper()
	check.Patiently(t, "order "+order.ID+" is "+string(want), func() bool {
		order = a.now(t, order)
		return order.Status == want
	})
	return order
}

func (a *app) refund(t testing.TB, order model.Order) {
	t.Helper()
	got := a.Insist(t, http.MethodPost, "/admin/orders/"+order.ID+"/refund", a.Admin(t), nil)
	check.Equal(t, "refund", got.Status, http.StatusAccepted)
}

func (a *app) back(t testing.TB, count int) {
	t.Helper()
	check.Patiently(t, "the money is back", func() bool { return len(a.refunds(t, "done")) == count })
}

func (x *till) approve(t testing.TB, started handler.PaymentStart) {
	t.Helper()
	check.Must(t, x.Decide(t.Context(), started.PaymentID, simulator.Approve))
}

func (a *app) paid(t *testing.T, x *till, voucherID, user string) model.Order {
	t.Helper()
	order := a.buys(t, voucherID, user)
	x.approve(t, a.pays(t, order))
	return a.reaches(t, order, model.OrderPaid)
}

func (a *app) refunds(t testing.TB, status string) []model.Refund {
	t.Helper()
	return reads[model.RefundPage](t, a, "/admin/refunds?status="+status).Items
}

type hook struct {
	id     string
	secret string
	at     time.Time
	event  payment.Event
	body   string // in the place of the event
}

func of(start handler.PaymentStart) hook {
	return hook{id: "msg_" + start.PaymentID, secret: hookSecret, at: time.Now(), event: payment.Event{
		Type: payment.EventSucceeded,
		Data: payment.EventData{
			PaymentID: start.PaymentID, OrderID: start.Order.ID,
			Money: payment.Money{Amount: start.Order.Price, Currency: start.Order.Currency},
		},
	}}
}

func (a *app) hears(t testing.TB, h hook) api.Answer {
	t.Helper()
	if h.body == "" {
		h.body = string(check.Value(json.Marshal(h.event))(t))
	}
	by := check.Value(payment.NewSignatures([]string{h.secret}))(t)
	var headers []string
	for name, values := range check.Value(by.Sign(h.id, h.at, []byte(h.body)))(t) {
		headers = append(headers, name+": "+strings.Join(values, ","))
	}
	return a.Call(t, http.MethodPost, "/webhooks/payments", "", h.body, headers...)
}

func (a *app) heard(t testing.TB, h hook) {
	t.Helper()
	got := remote.Insist(t, "webhook "+h.id, func(int) (api.Answer, error) { return a.hears(t, h), nil })
	check.That(t, got.Status == http.StatusNoContent && len(got.Body) == 0, "%s: %d %s", h.id, got.Status, got.Body)
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	check.That(t, reflect.DeepEqual(got, want), "%s: %+v, want %+v", what, got, want)
}

// No code is in any log, when made, shown, used or mistyped. Nobody else may read the embedded servers' files.
func TestNoLogHasACode(t *testing.T) {
	t.Parallel()
	x := openTill(t)
	p := launch(t, embeddedSettings(t).with(x.settings()).with(settings{
		"SECKILL_LOG_LEVEL":  "debug",
		"SECKILL_ORDER_MODE": "async",
	}))
	x.tells(t, p.app)
	order := p.paid(t, x, p.onSale(t, 1).ID, p.user(1))
	code := order.Code
	const guess = "0000-0000-0000-0000-0000"
	wrong := code[:23] + otherThan(code[23])
	for _, typed := range []string{wrong, guess, code, code} {
		p.Call(t, http.MethodPost, "/admin/redemptions", p.Admin(t), map[string]string{"code": typed})
	}
	check.Equal(t, "order", p.now(t, order).Status, model.OrderRedeemed)
	p.Call(t, http.MethodGet, "/admin/log", p.Admin(t), nil)
	others, err := exec.CommandContext(t.Context(), "find", p.settings["SECKILL_DATA_DIR"], "-mindepth", "1", "-perm",
		"/077").Output()
	check.That(t, err == nil && len(others) == 0, "these are open to others: %s %v", others, err)
	log := strings.ToUpper(p.output.String())
	for what, secret := range map[string]string{"used": code, "mistyped": wrong, "guessed": guess} {
		check.That(t, !strings.Contains(log, secret) && !strings.Contains(log, strings.ReplaceAll(secret, "-", "")),
			"a code that was %s is in the log", what)
	}
	check.That(t, strings.Contains(log, "REDEMPTIONS") || strings.Contains(log, "REQUEST REFUSED"), "the control: %s",
		log)
	recorded := string(p.Call(t, http.MethodGet, "/admin/log", p.Admin(t), nil).Body)
	check.That(t, !strings.Contains(recorded, code), "the administrators' log has the code")
}
