package e2e_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/draw"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// TestWhoMayBuy: a voucher is for groups, some begin early, and an account that leaves its group is refused at once.
func TestWhoMayBuy(t *testing.T) {
	t.Parallel()
	everywhere(t, checkWhoMayBuy)
}

func checkWhoMayBuy(t *testing.T, a shop) {
	t.Helper()
	admin, doc := a.Admin(t), readDocument(t, a.app)
	in := func(user string, groups ...string) string {
		return check.Value(a.Tokens.Issue(token.Claims{Subject: a.user(0) + user, Role: model.RoleUser, Groups: groups}, time.Hour))(t)
	}
	buys := func(id, bearer string) api.Answer {
		return a.Insist(t, http.MethodPost, "/vouchers/"+id+"/seckill", bearer, nil)
	}
	shown := func(path, bearer string) map[string]any {
		return object(t, a.Call(t, http.MethodGet, path, bearer, nil), http.StatusOK)
	}

	// Before the window, and in it, those of no group of the voucher are not eligible.
	for _, begin := range []time.Time{time.Now().Add(-time.Hour), time.Now().Add(time.Hour)} {
		v := a.Create(t, map[string]any{"stock": 3, "groups": []string{"/eu/staff", "gold"}, "begin_at": begin, "end_at": begin.Add(10 * time.Hour)})
		for _, bearer := range []string{in("none"), in("other", "silver", "Gold")} {
			refused(t, buys(v.ID, bearer), http.StatusForbidden, model.CodeNotEligible)
			check.Equal(t, "eligible", shown("/vouchers/"+v.ID, bearer)["eligible"], any(false))
		}
		gold := in("gold", "silver", "gold")
		check.Equal(t, "eligible", shown("/vouchers/"+v.ID, gold)["eligible"], any(true))
		if begin.After(time.Now()) {
			refused(t, buys(v.ID, gold), http.StatusConflict, model.CodeNotStarted)
		} else {
			check.That(t, buys(v.ID, gold).Sells(), "one of the group cannot buy")
			p := refused(t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+v.ID, admin, `{"groups":[]}`), http.StatusConflict, model.CodeConflict)
			check.That(t, p.Detail != "", "the conflict is not explained")
		}
		if _, told := shown("/vouchers/"+v.ID, "")["eligible"]; told {
			t.Error("an answer without a token has eligible")
		}
	}

	// Gold begins early, whoever else must wait; a patch before the first order is obeyed.
	v := a.Create(t, map[string]any{
		"stock": 3, "begin_at": time.Now().Add(time.Hour), "end_at": time.Now().Add(2 * time.Hour),
		"early": map[string]any{"groups": []string{"silver"}, "begin_at": time.Now().Add(-time.Minute)},
	})
	refused(t, buys(v.ID, in("ann", "gold")), http.StatusConflict, model.CodeNotStarted)
	patch := map[string]any{"early": map[string]any{"groups": []string{"gold"}, "begin_at": time.Now().Add(-time.Minute)}}
	object(t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+v.ID, admin, patch), http.StatusOK)
	check.Patiently(t, "every instance obeys the patch", func() bool { return buys(v.ID, in("ann", "gold")).Sells() })
	for _, bearer := range []string{in("bob"), in("carl", "silver")} {
		refused(t, buys(v.ID, bearer), http.StatusConflict, model.CodeNotStarted)
		check.Equal(t, "the phase", shown("/vouchers/"+v.ID, bearer)["phase"], any("upcoming"))
	}
	check.Equal(t, "the phase for gold", shown("/vouchers/"+v.ID, in("dora", "gold"))["phase"], any("live"))

	// An account gets its groups from an administrator, and is out at once.
	name := a.name("fair")
	a.register(t, name)
	before, _ := a.session(t, name, rightPassword)
	id, _ := shown("/auth/me", before)["id"].(string)
	grouped := func(groups string) {
		got := a.Call(t, http.MethodPut, "/admin/users/"+id+"/groups", admin, `{"groups":`+groups+`}`)
		doc.check(t, http.MethodPut, "/api/v1/admin/users/{id}/groups", got)
		check.Equal(t, groups, got.Status, http.StatusOK)
	}
	doc.check(t, http.MethodGet, "/api/v1/vouchers/{id}", a.Call(t, http.MethodGet, "/vouchers/"+v.ID, in("dora", "gold"), nil))
	grouped(`["gold"]`)
	after, _ := a.session(t, name, rightPassword)
	staff := a.Create(t, map[string]any{"stock": 3, "groups": []string{"gold"}})
	check.Equal(t, "eligible", shown("/vouchers/"+staff.ID, after)["eligible"], any(true))
	grouped(`[]`)
	for _, bearer := range []string{before, after} {
		refused(t, buys(staff.ID, bearer), http.StatusForbidden, model.CodeNotEligible)
	}
	refused(t, a.Call(t, http.MethodPut, "/admin/users/nobody/groups", admin, `{"groups":["gold"]}`), http.StatusNotFound, model.CodeNotFound)
	refused(t, a.Call(t, http.MethodPut, "/admin/users/"+id+"/groups", admin, `{"groups":[""]}`), http.StatusUnprocessableEntity, model.CodeValidation)
}

// TestCooldown: whose order ended unpaid waits, each time twice as long, whatever is asked again and whoever rebuilds
// the sale.
func TestCooldown(t *testing.T) {
	t.Parallel()
	everywhere(t, checkCooldown)
}

func checkCooldown(t *testing.T, a shop) {
	t.Helper()
	doc := readDocument(t, a.app)
	buys := func(v model.Voucher, user string) api.Answer {
		return a.Insist(t, http.MethodPost, "/vouchers/"+v.ID+"/seckill", a.Token(t, user, model.RoleUser), nil)
	}
	// waits tells for how long a user is told to wait after the end of an order.
	waits := func(v model.Voucher, order model.Order) time.Duration {
		t.Helper()
		got := buys(v, order.UserID)
		doc.check(t, http.MethodPost, "/api/v1/vouchers/{id}/seckill", got)
		p := refused(t, got, http.StatusConflict, model.CodeCoolingDown)
		return p.RetryAt.Sub(*a.now(t, order).ClosedAt).Truncate(10 * time.Millisecond)
	}
	v := a.Create(t, map[string]any{"stock": 1})
	check.Equal(t, "without one", v.Cooldown, 0)
	v = remote.Decode[model.Voucher](t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+v.ID, a.Admin(t), `{"cooldown":"10m"}`))
	check.Equal(t, "the cool-down", v.Cooldown.String(), "10m0s")
	order := a.buys(t, v.ID, a.user(1))
	refused(t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+v.ID, a.Admin(t), `{"cooldown":"0s"}`), http.StatusConflict, model.CodeConflict)
	for range 2 { // to cancel it again changes nothing
		a.cancels(t, order)
		check.Equal(t, "to wait", waits(v, order), 10*time.Minute)
	}
	if a.mode == model.ModeAsync {
		a.rebuild(t, v.ID)
		check.Equal(t, "to wait after a rebuild", waits(v, order), 10*time.Minute)
	}
	a.buys(t, v.ID, a.user(2))
	check.Equal(t, "to wait for what is sold out", waits(v, order), 10*time.Minute)

	// Nor does the user get a place on the waitlist meanwhile.
	v = a.Create(t, map[string]any{"stock": 1, "cooldown": "10m", "waitlist": true})
	order = a.buys(t, v.ID, a.user(1))
	a.cancels(t, order)
	a.buys(t, v.ID, a.user(2))
	got := a.Insist(t, http.MethodPost, "/vouchers/"+v.ID+"/waitlist", a.Token(t, a.user(1), model.RoleUser), nil)
	doc.check(t, http.MethodPost, "/api/v1/vouchers/{id}/waitlist", got)
	refused(t, got, http.StatusConflict, model.CodeCoolingDown)
	check.Equal(t, "to wait", waits(v, order), 10*time.Minute)

	// After the cool-down the user buys again, and the next cool-down is twice as long.
	v = a.Create(t, map[string]any{"stock": 1, "cooldown": "1s"})
	for _, want := range []time.Duration{time.Second, 2 * time.Second} {
		check.Patiently(t, "the cool-down is over", func() bool {
			got := buys(v, a.user(1))
			if got.Code() == model.CodeCoolingDown { // of the round before: this test may be slow
				check.Equal(t, "to wait", remote.Decode[api.Problem](t, got).RetryAt.Sub(*order.ClosedAt).Truncate(10*time.Millisecond), want/2)
			}
			return got.Sells()
		})
		mine := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/orders?voucher_id="+v.ID, a.Token(t, a.user(1), model.RoleUser), nil))
		order = a.becomes(t, mine.Items[0], model.OrderUnpaid)
		a.cancels(t, order)
		order = a.now(t, order)
	}
}

// TestDrawnAtTheEnd: purchases are entries, orders are drawn when the sale is over, and anybody can check how.
func TestDrawnAtTheEnd(t *testing.T) {
	t.Parallel()
	everywhere(t, checkDrawnAtTheEnd)
}

func checkDrawnAtTheEnd(t *testing.T, a shop) {
	t.Helper()
	const users = 5
	admin, doc := a.Admin(t), readDocument(t, a.app)
	ask := func(method, path, route, bearer string, body any) api.Answer {
		got := a.Insist(t, method, path, bearer, body)
		doc.check(t, method, "/api/v1"+route, got)
		return got
	}
	soon := a.Create(t, map[string]any{"stock": 2, "allocation": "draw", "begin_at": time.Now().Add(time.Hour), "end_at": time.Now().Add(2 * time.Hour)})
	v := a.Create(t, map[string]any{"stock": 2, "begin_at": time.Now().Add(-time.Hour), "end_at": time.Now().Add(time.Hour)})
	check.Equal(t, "the allocation", v.Allocation, model.FirstCome)
	at := "/vouchers/" + v.ID
	refused(t, ask(http.MethodGet, at+"/draw", "/vouchers/{id}/draw", "", nil), http.StatusNotFound, model.CodeNotFound)
	object(t, ask(http.MethodPatch, "/admin"+at, "/admin/vouchers/{id}", admin, `{"allocation":"draw"}`), http.StatusOK)
	proof := func() model.Draw {
		return remote.Decode[model.Draw](t, ask(http.MethodGet, at+"/draw", "/vouchers/{id}/draw", "", nil))
	}
	commitment := proof().Commitment
	bearer := func(n int) string { return a.Token(t, a.user(n), model.RoleUser) }
	enters := func(id string, n int) api.Answer {
		return ask(http.MethodPost, "/vouchers/"+id+"/seckill", "/vouchers/{id}/seckill", bearer(n), nil)
	}
	mine := func(n int) model.Entry {
		return remote.Decode[model.Entry](t, ask(http.MethodGet, at+"/entry", "/vouchers/{id}/entry", bearer(n), nil))
	}

	refused(t, enters(soon.ID, 1), http.StatusConflict, model.CodeNotStarted)
	check.Patiently(t, "every instance knows of the draw", func() bool { // in async the hot copy is closed first
		return enters(v.ID, 1).Header.Get("Location") == "/api/v1"+at+"/entry"
	})
	for n := 1; n <= users; n++ {
		first, again := enters(v.ID, n), enters(v.ID, n)
		check.Equal(t, "the status", first.Status, http.StatusAccepted)
		check.Equal(t, "the second answer", string(again.Body), string(first.Body))
		check.Equal(t, "my entry", mine(n), remote.Decode[model.Entry](t, first))
	}
	refused(t, ask(http.MethodGet, at+"/entry", "/vouchers/{id}/entry", bearer(users+1), nil), http.StatusNotFound, model.CodeNotFound)
	refused(t, ask(http.MethodGet, at+"/draw/entries", "/vouchers/{id}/draw/entries", "", nil), http.StatusConflict, model.CodeConflict)
	refused(t, ask(http.MethodPost, "/admin"+at+"/rebuild", "/admin/vouchers/{id}/rebuild", admin, nil), http.StatusConflict, model.CodeConflict)
	refused(t, ask(http.MethodPatch, "/admin"+at, "/admin/vouchers/{id}", admin, `{"allocation":"first_come"}`), http.StatusConflict, model.CodeConflict)
	open := proof()
	check.That(t, open.Entries == users && open.Commitment == commitment && open.Root == "" && open.Secret == "", "%+v", open)

	end := map[string]any{"end_at": time.Now().Add(-time.Minute)}
	object(t, ask(http.MethodPatch, "/admin"+at, "/admin/vouchers/{id}", admin, end), http.StatusOK)
	check.Patiently(t, "it is drawn", func() bool { return proof().DrawnAt != nil })
	refused(t, enters(v.ID, users+1), http.StatusConflict, model.CodeEnded)
	drawn := proof()
	check.Equal(t, "the commitment", drawn.Commitment, commitment)
	leaves := remote.Decode[model.DrawnLeaves](t, ask(http.MethodGet, at+"/draw/entries", "/vouchers/{id}/draw/entries", "", nil))
	check.Must(t, draw.Verify(drawn, leaves.Items))
	check.Equal(t, "winners", drawn.Winners, 2)
	var winner, first, last int // of those who wait
	for n := 1; n <= users; n++ {
		entry := mine(n)
		switch {
		case entry.Status == model.EntryWon:
			winner = n
		case entry.Position == 1:
			first = n
		default:
			last = n
		}
		if place := slices.Index(leaves.Items, entry.Leaf); place >= 0 && place < 2 {
			order := a.now(t, model.Order{ID: entry.OrderID, UserID: a.user(n)})
			check.That(t, entry.Status == model.EntryWon && order.Status == model.OrderUnpaid && order.VoucherID == v.ID, "%+v %+v", entry, order)
		} else {
			check.That(t, entry.Status != model.EntryWon && entry.Status != model.EntryEntered, "%+v has place %d", entry, place)
		}
	}
	report := remote.Decode[model.Report](t, ask(http.MethodGet, "/admin"+at+"/report", "/admin/vouchers/{id}/report", admin, nil))
	check.That(t, report.Draw != nil && report.Draw.OrderKept && report.Draw.Entries == users && report.Draw.Winners == 2, "%+v", report.Draw)
	check.Equal(t, "who waits last leaves", a.Insist(t, http.MethodDelete, at+"/waitlist", bearer(last), nil).Status, http.StatusNoContent)
	check.Equal(t, "who left", mine(last).Status, model.EntryLost)
	check.Equal(t, "a winner cancels", a.Insist(t, http.MethodPost, "/orders/"+mine(winner).OrderID+"/cancel", bearer(winner), nil).Status, http.StatusOK)
	check.Equal(t, "who waits first", mine(first).Status, model.EntryWon)
	audit := a.Audit(t, v.ID)
	check.That(t, audit.Balanced && audit.Redis == nil && audit.Queue == nil && audit.Database.LiveOrders == 2, "%+v", audit)
}

// TestWaitlist: a unit that comes back, or is added, is an order of who waits first.
func TestWaitlist(t *testing.T) {
	t.Parallel()
	everywhere(t, checkWaitlist)
}

func checkWaitlist(t *testing.T, a shop) {
	t.Helper()
	admin, doc := a.Admin(t), readDocument(t, a.app)
	v := a.Create(t, map[string]any{"stock": 1, "waitlist": true, "payment_window": "7m"})
	path := "/vouchers/" + v.ID + "/waitlist"
	user := func(n int) string { return a.Token(t, a.user(n), model.RoleUser) }
	const owner, first, second, open = 1, 2, 3, 4
	asks := func(method string, n, status int) model.WaitlistPlace {
		t.Helper()
		got := a.Insist(t, method, path, user(n), nil)
		if status != http.StatusNoContent { // which has no content to check
			doc.check(t, method, "/api/v1/vouchers/{id}/waitlist", got)
		}
		check.Need(t, got.Status == status, "%s of user %d is %d and not %d: %s", method, n, got.Status, status, got.Body)
		if status >= 300 || status == http.StatusNoContent {
			return model.WaitlistPlace{}
		}
		return remote.Decode[model.WaitlistPlace](t, got)
	}
	refuses := func(n, status int, code model.Code) {
		t.Helper()
		refused(t, a.Insist(t, http.MethodPost, path, user(n), nil), status, code)
	}
	buys := func(n int) model.Code {
		return a.Insist(t, http.MethodPost, "/vouchers/"+v.ID+"/seckill", user(n), nil).Code()
	}

	refuses(first, http.StatusConflict, model.CodeConflict) // a unit is free
	bought := a.bought(t, v.ID, a.user(owner))              // and who hears SOLD_OUT gets a place at once
	check.Equal(t, "the position", asks(http.MethodPost, first, http.StatusCreated).Position, 1)
	check.Equal(t, "the position again", asks(http.MethodPost, first, http.StatusOK).Position, 1)
	check.Equal(t, "the position", asks(http.MethodPost, second, http.StatusCreated).Position, 2)
	refuses(owner, http.StatusConflict, model.CodeAlreadyOrdered)
	asks(http.MethodGet, open, http.StatusNotFound)
	asks(http.MethodDelete, open, http.StatusNotFound)
	asks(http.MethodDelete, first, http.StatusNoContent)
	asks(http.MethodGet, first, http.StatusNotFound)
	check.Equal(t, "the position", asks(http.MethodGet, second, http.StatusOK).Position, 1)
	check.Equal(t, "behind", asks(http.MethodPost, first, http.StatusCreated).Position, 2)
	shown := object(t, a.Call(t, http.MethodGet, "/vouchers/"+v.ID, "", nil), http.StatusOK)
	check.That(t, shown["waitlist"] == true && shown["waiting"] == 2.0, "the voucher shows %v and %v", shown["waitlist"], shown["waiting"])
	refused(t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+v.ID, admin, `{"waitlist":false}`), http.StatusConflict, model.CodeConflict)

	// What the owner gives back is the second one's, and nobody else's.
	cancel := func(n int, id string) {
		t.Helper()
		check.Equal(t, "the cancellation", a.Insist(t, http.MethodPost, "/orders/"+id+"/cancel", user(n), nil).Status, http.StatusOK)
	}
	a.becomes(t, bought, model.OrderUnpaid)
	cancel(owner, bought.ID)
	place := asks(http.MethodGet, second, http.StatusOK)
	heir := object(t, a.Call(t, http.MethodGet, "/orders/"+place.OrderID, user(second), nil), http.StatusOK)
	window := instant(t, heir, "expires_at").Sub(instant(t, heir, "created_at"))
	check.That(t, heir["status"] == "unpaid" && window.Minutes() == 7 && place.Position == 0, "the heir is %v with the place %+v", heir, place)
	check.Equal(t, "the open sale", buys(open), model.CodeSoldOut)
	check.Patiently(t, "who got an order hears of it", func() bool { return buys(second) == model.CodeAlreadyOrdered })
	refuses(second, http.StatusConflict, model.CodeAlreadyOrdered)
	asks(http.MethodDelete, second, http.StatusConflict)
	check.Equal(t, "who canceled is last", asks(http.MethodPost, owner, http.StatusCreated).Position, 2)
	cancel(second, place.OrderID)
	check.That(t, asks(http.MethodGet, first, http.StatusOK).OrderID != "", "what an heir gives back goes on")
	check.Equal(t, "the position", asks(http.MethodGet, owner, http.StatusOK).Position, 1)

	// Of what is added the rest is for the open sale.
	restocked := a.Call(t, http.MethodPost, "/admin/vouchers/"+v.ID+"/stock", admin, map[string]any{"delta": 2})
	check.Equal(t, "the restock", restocked.Status, http.StatusOK)
	check.That(t, asks(http.MethodGet, owner, http.StatusOK).OrderID != "", "a restock does not serve who waits")
	a.buys(t, v.ID, a.user(open))
	a.quiet(t, v.ID)
	if audit := a.Audit(t, v.ID); !audit.Balanced || audit.Database.LiveOrders != 3 {
		t.Errorf("%+v", audit)
	}

	// The window refuses as it refuses a purchase, and other vouchers have no waitlist.
	check.Equal(t, "the pause", a.Call(t, http.MethodPatch, "/admin/vouchers/"+v.ID, admin, `{"state":"paused"}`).Status, http.StatusOK)
	check.Patiently(t, "every instance obeys the pause", func() bool {
		return a.Insist(t, http.MethodPost, path, user(second), nil).Code() == model.CodePaused
	})
	path = "/vouchers/" + a.Create(t, map[string]any{"stock": 0}).ID + "/waitlist"
	refuses(first, http.StatusConflict, model.CodeConflict)
	asks(http.MethodGet, first, http.StatusNotFound)
	path = "/vouchers/none/waitlist"
	refuses(first, http.StatusNotFound, model.CodeNotFound)
}

// TestExpiry: an order that is not paid in its voucher's window gives its unit back, and somebody else has it. (That it
// happens within a second, service/repair tells.)
func TestExpiry(t *testing.T) {
	t.Parallel()
	everywhere(t, checkExpiry)
}

func checkExpiry(t *testing.T, a shop) {
	t.Helper()
	const window = time.Second
	voucher := a.Create(t, map[string]any{"stock": 1, "payment_window": window.String()})
	buy := func(user string) (order model.Order) {
		check.Patiently(t, "the voucher is sold", func() bool {
			got := a.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.Token(t, user, model.RoleUser), nil)
			var sold bool
			order, sold = orderOf(t, got, voucher.ID, user)
			return sold
		})
		return order
	}
	order := buy(a.user(1))
	resold := buy(a.user(2)) // as soon as the unit is there
	detail := remote.Decode[model.OrderDetail](t, a.Call(t, http.MethodGet, "/admin/orders/"+order.ID, a.Admin(t), nil))
	moves := detail.History
	last := moves[len(moves)-1]
	if detail.Status != model.OrderExpired || last.To != model.OrderExpired || last.By != model.BySystem || last.From == nil || *last.From != model.OrderUnpaid {
		t.Fatalf("%+v", detail)
	}
	if unpaid := moves[len(moves)-2]; detail.ExpiresAt == nil || unpaid.To != model.OrderUnpaid || detail.ExpiresAt.Sub(unpaid.At) != window {
		t.Fatalf("%+v does not expire %s after it became unpaid", detail, window)
	}
	check.That(t, !last.At.Before(*detail.ExpiresAt) && !resold.CreatedAt.Before(*detail.ExpiresAt),
		"expired or sold again before its time: %+v, %+v", detail, resold)
	refused(t, a.asks(t, order, http.MethodPost, "/cancel"), http.StatusConflict, model.CodeIllegalState)
	// Who has let it lapse may buy again, when the other one lapses.
	buy(a.user(1))
	check.Patiently(t, "all have lapsed", func() bool {
		audit := a.Audit(t, voucher.ID).Database
		check.That(t, audit.Stock == audit.Remaining+audit.LiveOrders, "%+v", audit)
		return audit.Remaining == 1
	})
}

// TestTwoAdministrators never overwrite each other unseen, in both order modes.
func TestTwoAdministrators(t *testing.T) {
	t.Parallel()
	everywhere(t, checkTwoAdministrators)
}

func checkTwoAdministrators(t *testing.T, a shop) {
	t.Helper()
	v := a.onSale(t, 10)
	path := "/admin/vouchers/" + v.ID
	change := func(method, path, seen, body string) api.Answer {
		return a.Call(t, method, path, a.Admin(t), body, "If-Match: "+seen)
	}
	read := func() string {
		t.Helper()
		tag := a.Call(t, http.MethodGet, path, a.Admin(t), nil).Header.Get("ETag")
		check.Need(t, tag != "", "a voucher without an ETag")
		return tag
	}
	mine, theirs := read(), read()
	// A sale is no administrator's change.
	a.buys(t, v.ID, a.user(1))
	done := change(http.MethodPatch, path, mine, `{"price":1500}`)
	if v := object(t, done, http.StatusOK); v["price"] != 1500.0 || done.Header.Get("ETag") != read() || read() == mine {
		t.Errorf("%v, ETag %s, read %s", v, done.Header.Get("ETag"), read())
	}
	refused(t, change(http.MethodPatch, path, theirs, `{"price":900}`), http.StatusPreconditionFailed, model.CodePreconditionFailed)
	refused(t, change(http.MethodPost, path+"/stock", theirs, `{"stock":5}`), http.StatusPreconditionFailed, model.CodePreconditionFailed)
	if now := object(t, a.Call(t, http.MethodGet, path, a.Admin(t), nil), http.StatusOK); now["price"] != 1500.0 || now["stock"] != 10.0 {
		t.Errorf("a refused change left %v", now)
	}
	// Read again, it is made; each change hands its sender the next tag.
	seen := read()
	for _, body := range []string{`{"stock":12}`, `{"stock":5}`, `{"delta":1}`} {
		done := change(http.MethodPost, path+"/stock", seen, body)
		object(t, done, http.StatusOK)
		refused(t, change(http.MethodPost, path+"/stock", seen, `{"delta":1}`), http.StatusPreconditionFailed, model.CodePreconditionFailed)
		seen = done.Header.Get("ETag")
	}
	if now := object(t, change(http.MethodPatch, path, seen, `{"title":"Tea"}`), http.StatusOK); now["stock"] != 6.0 || now["title"] != "Tea" {
		t.Errorf("%v", now)
	}
	// Without If-Match as ever.
	object(t, a.Call(t, http.MethodPatch, path, a.Admin(t), `{"price":1}`), http.StatusOK)
	if got := change(http.MethodPatch, "/admin/vouchers/none", `"x"`, "{}"); got.Status != http.StatusNotFound {
		t.Errorf("%d", got.Status)
	}
}

// TestRebuildsAndLimitsAreLogged: who had a hot copy rebuilt, and who changed the limits from what to what; what is as
// it was is no change.
func TestRebuildsAndLimitsAreLogged(t *testing.T) {
	t.Parallel()
	a := start(t, asyncOnServers(t).with(settings{"SECKILL_RATE_USER": "20/s"}))
	boss, clerk := a.Token(t, "boss", model.RoleAdmin), a.Token(t, "clerk", model.RoleAdmin)
	voucher := a.onSale(t, 1)
	object(t, a.Insist(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/rebuild", clerk, nil), http.StatusAccepted)
	for _, body := range []string{`{"user":"7/m"}`, `{"user":"7/m"}`, `{}`, `{"addr":"0"}`, `{"user":"8/m","addr":"0"}`} {
		object(t, a.Call(t, http.MethodPatch, limitsPath, boss, body), http.StatusOK)
	}
	a.quiet(t, voucher.ID)
	var told []string
	for _, entry := range remote.Decode[model.AdminLogPage](t, a.Call(t, http.MethodGet, "/admin/log", boss, nil)).Items {
		told = append(told, strings.Join([]string{entry.Actor, entry.Action, entry.Subject, string(entry.Before), string(entry.After)}, " "))
	}
	want := []string{
		`boss limits.change limits {"user":"7/m","addr":"0"} {"user":"8/m","addr":"0"}`,
		`boss limits.change limits {"user":"7/m"} {"user":"7/m","addr":"0"}`,
		`boss limits.change limits {} {"user":"7/m"}`,
		"clerk voucher.rebuild " + voucher.ID + "  ",
	}
	if len(told) != len(want)+1 || !slices.Equal(told[:len(want)], want) { // and the voucher's creation
		t.Errorf("%q, want %q", told, want)
	}
}

// TestAdminLog: what administrators change is in their log, with who, before and after.
func TestAdminLog(t *testing.T) {
	t.Parallel()
	anywhere(t, checkAdminLog)
}

func checkAdminLog(t *testing.T, a shop) {
	t.Helper()
	boss, clerk := a.Token(t, a.user(1), model.RoleAdmin), a.Token(t, a.user(2), model.RoleAdmin)
	body := `{"title":"Tea","price":1,"face_value":2,"stock":5,"begin_at":"2020-01-01T00:00:00Z","end_at":"2099-01-01T00:00:00Z","payment_window":"90s"}`
	id, _ := object(t, a.Call(t, http.MethodPost, "/admin/vouchers", boss, body), http.StatusCreated)["id"].(string)
	object(t, a.Insist(t, http.MethodPatch, "/admin/vouchers/"+id, clerk, `{"price":7}`), http.StatusOK)
	object(t, a.Insist(t, http.MethodPost, "/admin/vouchers/"+id+"/stock", boss, `{"delta":3}`), http.StatusOK)
	refused(t, a.Call(t, http.MethodPost, "/admin/vouchers/"+id+"/stock", boss, `{"stock":-1}`), http.StatusUnprocessableEntity, model.CodeValidation)

	page := func(query string) model.AdminLogPage {
		return remote.Decode[model.AdminLogPage](t, a.Call(t, http.MethodGet, "/admin/log?limit=1&actor="+query, boss, nil))
	}
	first, changed := page(a.user(1)), page(a.user(2))
	rest := page(a.user(1) + "&cursor=" + first.NextCursor)
	want := []struct{ actor, action, member, before, after string }{
		{a.user(1), model.ActionStockChange, "stock", "5", "8"},
		{a.user(2), model.ActionVoucherChange, "price", "1", "7"},
		{a.user(1), model.ActionVoucherCreate, "payment_window", "", `"1m30s"`},
	}
	all := slices.Concat(first.Items, changed.Items, rest.Items)
	if len(all) != len(want) || rest.NextCursor != "" || changed.NextCursor != "" || all[0].At.Before(all[1].At) || all[1].At.Before(all[2].At) {
		t.Fatalf("%+v", all)
	}
	for i, entry := range all {
		check.That(t, entry.Actor == want[i].actor && entry.Action == want[i].action && entry.Subject == id,
			"%d: %+v", i, entry)
		for side, document := range map[string]json.RawMessage{want[i].before: entry.Before, want[i].after: entry.After} {
			var members map[string]json.RawMessage
			if len(document) > 0 {
				check.Must(t, json.Unmarshal(document, &members))
			}
			if string(members[want[i].member]) != side {
				t.Errorf("%d: %s is %s in %s, want %s", i, want[i].member, members[want[i].member], document, side)
			}
		}
	}
	refused(t, a.Call(t, http.MethodGet, "/admin/log", a.Token(t, a.user(3), model.RoleUser), nil), http.StatusForbidden, model.CodeForbidden)
	for _, window := range []string{`"500ms"`, `"9000h"`, `"soon"`, `"0s"`} {
		p := refused(t, a.Call(t, http.MethodPost, "/admin/vouchers", boss, body[:len(body)-len(`"90s"}`)]+window+"}"), http.StatusUnprocessableEntity, model.CodeValidation)
		check.That(t, len(p.Errors) == 1 && p.Errors[0].Location == "body.payment_window", "%s: %+v", window, p.Errors)
	}
}
