package e2e_test

import (
	"encoding/json"
	"fmt"
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

// documented makes a call, which names its route, and holds the answer to the OpenAPI document.
func (a shop) documented(t *testing.T, doc *document, call, id, bearer string, body any) api.Answer {
	t.Helper()
	method, route, _ := strings.Cut(call, " ")
	got := a.Insist(t, method, concrete(route, id), bearer, body)
	if got.Status != http.StatusNoContent { // which has no content to check
		doc.check(t, method, "/api/v1"+route, got)
	}
	return got
}

// TestWhoMayBuy: a voucher is for groups, some begin early, and an account that leaves its group is refused at once.
func TestWhoMayBuy(t *testing.T) { t.Parallel(); everywhere(t, checkWhoMayBuy) }

func checkWhoMayBuy(t *testing.T, a shop) {
	admin, doc := a.Admin(t), readDocument(t, a.app)
	in := func(user string, groups ...string) string {
		return check.Value(a.Tokens.Issue(token.Claims{Subject: a.user(0) + user, Role: model.RoleUser, Groups: groups},
			time.Hour))(t)
	}
	buys := func(id, bearer string) api.Answer { return a.does(t, "POST /vouchers/"+id+"/seckill", bearer, nil) }
	shows := func(id, bearer, member string, want any) {
		t.Helper()
		got := a.once(t, "GET /vouchers/"+id, bearer, nil)
		doc.check(t, http.MethodGet, "/api/v1/vouchers/{id}", got)
		check.Equal(t, member, object(t, got, http.StatusOK)[member], want)
	}

	for _, begin := range []time.Time{time.Now().Add(-time.Hour), time.Now().Add(time.Hour)} {
		groups := []string{"/eu/staff", "gold"}
		v := a.Create(t, map[string]any{
			"stock": 3, "groups": groups, "begin_at": begin,
			"end_at": begin.Add(10 * time.Hour),
		})
		for _, bearer := range []string{in("none"), in("other", "silver", "Gold")} {
			refused(t, buys(v.ID, bearer), model.CodeNotEligible)
			shows(v.ID, bearer, "eligible", false)
		}
		gold := in("gold", "silver", "gold")
		shows(v.ID, gold, "eligible", true)
		shows(v.ID, "", "eligible", nil)
		if begin.After(time.Now()) {
			refused(t, buys(v.ID, gold), model.CodeNotStarted)
			continue
		}
		check.That(t, buys(v.ID, gold).Sells(), "one of the group cannot buy")
		refused(t, a.once(t, "PATCH /admin/vouchers/"+v.ID, admin, `{"groups":[]}`), model.CodeConflict)
	}

	// Gold begins early, whoever else must wait; a patch before the first order is obeyed.
	early := func(group string) map[string]any {
		return map[string]any{"groups": []string{group}, "begin_at": time.Now().Add(-time.Minute)}
	}
	v := a.Create(t, map[string]any{
		"stock": 3, "begin_at": time.Now().Add(time.Hour), "end_at": time.Now().Add(2 * time.Hour), "early": early("silver"),
	})
	refused(t, buys(v.ID, in("ann", "gold")), model.CodeNotStarted)
	a.patch(t, v.ID, map[string]any{"early": early("gold")})
	check.Patiently(t, "every instance obeys the patch", func() bool { return buys(v.ID, in("ann", "gold")).Sells() })
	for _, bearer := range []string{in("bob"), in("carl", "silver")} {
		refused(t, buys(v.ID, bearer), model.CodeNotStarted)
		shows(v.ID, bearer, "phase", "upcoming")
	}
	shows(v.ID, in("dora", "gold"), "phase", "live")

	// An account gets its groups from an administrator, and is out at once.
	name := a.name("fair")
	a.register(t, name)
	before, _ := a.session(t, name, rightPassword)
	id, _ := object(t, a.once(t, "GET /auth/me", before, nil), http.StatusOK)["id"].(string)
	grouped := func(id, groups string) api.Answer {
		return a.documented(t, doc, "PUT /admin/users/{id}/groups", id, admin, `{"groups":`+groups+`}`)
	}
	check.Equal(t, "gold", grouped(id, `["gold"]`).Status, http.StatusOK)
	after, _ := a.session(t, name, rightPassword)
	staff := a.Create(t, map[string]any{"stock": 3, "groups": []string{"gold"}})
	shows(staff.ID, after, "eligible", true)
	check.Equal(t, "none", grouped(id, `[]`).Status, http.StatusOK)
	for _, bearer := range []string{before, after} {
		refused(t, buys(staff.ID, bearer), model.CodeNotEligible)
	}
	refused(t, grouped("nobody", `["gold"]`), model.CodeNotFound)
	refused(t, grouped(id, `[""]`), model.CodeValidation)
}

// TestCooldown: after an unpaid order its user waits, each time twice as long, whatever is asked or rebuilt.
func TestCooldown(t *testing.T) { t.Parallel(); everywhere(t, checkCooldown) }

func checkCooldown(t *testing.T, a shop) {
	doc := readDocument(t, a.app)
	// waits demands for how long a user is told to wait after the end of an order.
	waits := func(v model.Voucher, order model.Order, route string, want time.Duration) {
		t.Helper()
		got := a.documented(t, doc, "POST /vouchers/{id}/"+route, v.ID, a.as(t, order.UserID), nil)
		p := refused(t, got, model.CodeCoolingDown)
		check.Equal(t, "to wait", p.RetryAt.Sub(*a.now(t, order).ClosedAt).Truncate(10*time.Millisecond), want)
	}
	v := a.Create(t, map[string]any{"stock": 1})
	check.Equal(t, "without one", v.Cooldown, 0)
	v = a.patch(t, v.ID, `{"cooldown":"10m"}`)
	check.Equal(t, "the cool-down", v.Cooldown.String(), "10m0s")
	order := a.buys(t, v.ID, a.user(1))
	refused(t, a.once(t, "PATCH /admin/vouchers/"+v.ID, a.Admin(t), `{"cooldown":"0s"}`), model.CodeConflict)
	for range 2 { // to cancel it again changes nothing
		a.cancels(t, order)
		waits(v, order, "seckill", 10*time.Minute)
	}
	if a.mode == model.ModeAsync {
		a.rebuild(t, v.ID)
		check.That(t, slices.ContainsFunc(reads[model.AdminLogPage](t, a.app, "/admin/log?limit=100").Items,
			func(e model.AdminChange) bool {
				return e.Actor == "admin" && e.Action == "voucher.rebuild" && e.Subject == v.ID
			}), "the administrators' log has no rebuild")
		waits(v, order, "seckill", 10*time.Minute)
	}
	a.buys(t, v.ID, a.user(2))
	waits(v, order, "seckill", 10*time.Minute) // of what is sold out

	v = a.Create(t, map[string]any{"stock": 1, "cooldown": "10m", "waitlist": true})
	order = a.buys(t, v.ID, a.user(1))
	a.cancels(t, order)
	a.buys(t, v.ID, a.user(2))
	waits(v, order, "waitlist", 10*time.Minute)
	waits(v, order, "seckill", 10*time.Minute)

	// After the cool-down the user buys again, and the next cool-down is twice as long.
	v = a.Create(t, map[string]any{"stock": 1, "cooldown": "1s"})
	for _, want := range []time.Duration{time.Second, 2 * time.Second} {
		check.Patiently(t, "the cool-down is over", func() bool {
			got := a.buy(t, v.ID, a.user(1))
			if got.Code() == model.CodeCoolingDown { // of the round before: this test may be slow
				till := remote.Decode[api.Problem](t, got).RetryAt
				check.Equal(t, "to wait", till.Sub(*order.ClosedAt).Truncate(10*time.Millisecond), want/2)
			}
			return got.Sells()
		})
		order = a.becomes(t, a.mine(t, v.ID, a.user(1))[0], model.OrderUnpaid)
		a.cancels(t, order)
		order = a.now(t, order)
	}
}

func TestPublicReport(t *testing.T) { t.Parallel(); everywhere(t, checkPublicReport) }

// After its end everybody may read what the sale was: the administrators' numbers, and no names.
func checkPublicReport(t *testing.T, a shop) {
	doc, quiet := readDocument(t, a.app), a.onSale(t, 1)
	v := a.Create(t, map[string]any{"stock": 1, "public_report": true})
	ask := func(id string) api.Answer { return a.documented(t, doc, "GET /vouchers/{id}/report", id, "", nil) }
	again := func(id string) api.Answer { return a.documented(t, doc, "GET /vouchers/{id}/replay", id, "", nil) }
	order := a.buys(t, v.ID, a.user(1))
	for n := 2; n <= 4; n++ {
		refused(t, a.buy(t, v.ID, a.user(n)), model.CodeSoldOut)
	}
	refused(t, ask(v.ID), model.CodeNotFound)
	refused(t, again(v.ID), model.CodeNotFound)
	for _, id := range []string{v.ID, quiet.ID} {
		a.patch(t, id, map[string]any{"end_at": time.Now().UTC()})
	}
	refused(t, ask(quiet.ID), model.CodeNotFound)
	refused(t, again(quiet.ID), model.CodeNotFound)
	// A step of the replay is shorter than this, and shows what was left at its end.
	later := order.CreatedAt.Add(100 * time.Millisecond)
	check.Patiently(t, "the cancellation is in a later step", func() bool { return time.Now().After(later) })
	check.Equal(t, "a cancellation", a.once(t, "POST /orders/"+order.ID+"/cancel", a.as(t, a.user(1)), nil).Status, http.StatusOK)
	var got model.PublicReport
	check.Patiently(t, "every attempt is counted", func() bool { // instances store what they counted every 10 s
		answer := ask(v.ID)
		check.That(t, !strings.Contains(string(answer.Body), a.prefix) && !strings.Contains(string(answer.Body), order.ID),
			"it names somebody: %s", answer.Body)
		got = remote.Decode[model.PublicReport](t, answer)
		return got.Attempts >= 4
	})
	report := a.reportOf(t, v.ID)
	report.At = got.At
	text := func(p model.PublicReport) string { return string(check.Value(json.Marshal(p))(t)) }
	check.Equal(t, "the public report", text(got), text(report.Public("")))
	check.That(t, got.Orders == 1 && got.NeverPaid == 1 && got.SoldOutAfterMS != nil && got.ByCode["SOLD_OUT"] == 3, "%+v", got)

	answer := again(v.ID)
	check.Equal(t, "who may keep it", answer.Header.Get("Cache-Control"), "public, max-age=10")
	check.That(t, !strings.Contains(string(answer.Body), a.prefix), "it names somebody: %s", answer.Body)
	replay := remote.Decode[model.Replay](t, answer)
	curve := replay.Curve
	check.Equal(t, "its numbers", replay.Attempts, 4)
	check.Need(t, curve.From != nil && len(curve.Left) == len(curve.StepsMS) && len(curve.Left) > 1, "%+v", curve)
	check.Equal(t, "before, when all were taken, and when one was back", fmt.Sprint(curve.Left[0], slices.Min(curve.Left), curve.Left[len(curve.Left)-1]), "1 0 1")
	for code, want := range map[string]int64{"OK": 1, "SOLD_OUT": 3} {
		sum := int64(0)
		for _, attempts := range curve.Heard[code] {
			sum += attempts
		}
		check.That(t, sum == want && len(curve.Heard[code]) == len(curve.Left) && curve.Took[code] != nil, "%s: %+v", code, curve)
	}
	sold := order.CreatedAt.Sub(*curve.From)
	check.That(t, sold >= 0 && sold < time.Second && len(curve.OrdersMS) == 1 && curve.OrdersMS[0] == sold.Milliseconds() && curve.LastUnit == 1 &&
		len(curve.CameBack) == 1 && curve.CameBack[0].Number == 1 && len(curve.Served) == 0, "ordered after %s: %+v", sold, curve)
}

// TestDrawnAtTheEnd: purchases are entries, orders are drawn when the sale is over, and anybody can check how.
func TestDrawnAtTheEnd(t *testing.T) { t.Parallel(); everywhere(t, checkDrawnAtTheEnd) }

func checkDrawnAtTheEnd(t *testing.T, a shop) {
	const users = 5
	admin, doc, hour := a.Admin(t), readDocument(t, a.app), time.Now().Add(time.Hour)
	soon := a.Create(t, map[string]any{
		"stock": 2, "allocation": "draw", "begin_at": hour,
		"end_at": hour.Add(time.Hour),
	})
	v := a.onSale(t, 2)
	check.Equal(t, "the allocation", v.Allocation, model.FirstCome)
	as := func(n int) string { return a.as(t, a.user(n)) }
	ask := func(call, bearer string, body any) api.Answer { return a.documented(t, doc, call, v.ID, bearer, body) }
	enters := func(n int) api.Answer { return ask("POST /vouchers/{id}/seckill", as(n), nil) }
	mine := func(n int) model.Entry {
		return remote.Decode[model.Entry](t, ask("GET /vouchers/{id}/entry", as(n), nil))
	}
	proof := func() model.Draw { return remote.Decode[model.Draw](t, ask("GET /vouchers/{id}/draw", "", nil)) }
	patch := func(fields any) api.Answer { return ask("PATCH /admin/vouchers/{id}", admin, fields) }

	refused(t, ask("GET /vouchers/{id}/draw", "", nil), model.CodeNotFound)
	object(t, patch(`{"allocation":"draw"}`), http.StatusOK)
	commitment := proof().Commitment
	refused(t, a.buy(t, soon.ID, a.user(1)), model.CodeNotStarted)
	check.Patiently(t, "every instance knows of the draw", func() bool { // in async the hot copy is closed first
		return enters(1).Header.Get("Location") == "/api/v1/vouchers/"+v.ID+"/entry"
	})
	for n := 1; n <= users; n++ {
		first, again := enters(n), enters(n)
		check.Equal(t, "the status", first.Status, http.StatusAccepted)
		check.Equal(t, "the second answer", string(again.Body), string(first.Body))
		check.Equal(t, "my entry", mine(n), remote.Decode[model.Entry](t, first))
	}
	refused(t, ask("GET /vouchers/{id}/entry", as(users+1), nil), model.CodeNotFound)
	refused(t, ask("GET /vouchers/{id}/draw/entries", "", nil), model.CodeConflict)
	refused(t, ask("POST /admin/vouchers/{id}/rebuild", admin, nil), model.CodeConflict)
	refused(t, patch(`{"allocation":"first_come"}`), model.CodeConflict)
	open := proof()
	check.Equal(t, "the proof", open, model.Draw{
		VoucherID: v.ID, Algorithm: open.Algorithm, Commitment: commitment, Entries: users,
	})

	object(t, patch(map[string]any{"end_at": time.Now().Add(-time.Minute)}), http.StatusOK)
	check.Patiently(t, "it is drawn", func() bool { return proof().DrawnAt != nil })
	refused(t, enters(users+1), model.CodeEnded)
	drawn := proof()
	check.That(t, drawn.Commitment == commitment && drawn.Winners == 2, "%+v", drawn)
	leaves := remote.Decode[model.DrawnLeaves](t, ask("GET /vouchers/{id}/draw/entries", "", nil))
	check.Must(t, draw.Verify(drawn, leaves.Items))
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
		place := slices.Index(leaves.Items, entry.Leaf)
		won := place == 0 || place == 1
		check.That(t, won == (entry.Status == model.EntryWon) && entry.Status != model.EntryEntered, "%+v has place %d",
			entry, place)
		if won {
			order := a.now(t, model.Order{ID: entry.OrderID, UserID: a.user(n)})
			check.That(t, order.Status == model.OrderUnpaid && order.VoucherID == v.ID, "%+v %+v", entry, order)
		}
	}
	report := remote.Decode[model.Report](t, ask("GET /admin/vouchers/{id}/report", admin, nil)).Draw
	check.That(t, report != nil && report.OrderKept && report.Entries == users && report.Winners == 2, "%+v", report)
	check.Equal(t, "who waits last leaves", ask("DELETE /vouchers/{id}/waitlist", as(last), nil).Status,
		http.StatusNoContent)
	check.Equal(t, "who left", mine(last).Status, model.EntryLost)
	a.cancels(t, model.Order{ID: mine(winner).OrderID, UserID: a.user(winner)})
	check.Equal(t, "who waits first", mine(first).Status, model.EntryWon)
	audit := a.Audit(t, v.ID)
	check.That(t, audit.Balanced && audit.Redis == nil && audit.Queue == nil && audit.Database.LiveOrders == 2, "%+v",
		audit)
}

// TestDrawnWithABeacon: a draw waits for what is drawn in public, and depends on it.
func TestDrawnWithABeacon(t *testing.T) { t.Parallel(); everywhere(t, checkDrawnWithABeacon) }

func checkDrawnWithABeacon(t *testing.T, a shop) {
	admin, doc := a.Admin(t), readDocument(t, a.app)
	v := a.Create(t, map[string]any{"stock": 1, "allocation": "draw", "beacon": "the lottery of Friday"})
	enters := func(id, value string) api.Answer {
		return a.documented(t, doc, "POST /admin/vouchers/{id}/beacon", id, admin, map[string]string{"value": value})
	}
	proof := func() model.Draw {
		return remote.Decode[model.Draw](t, a.documented(t, doc, "GET /vouchers/{id}/draw", v.ID, "", nil))
	}
	for n := range 3 {
		check.Equal(t, "entered", a.buy(t, v.ID, a.user(n)).Status, http.StatusAccepted)
	}
	refused(t, a.once(t, "PATCH /admin/vouchers/"+v.ID, admin, `{"beacon":"another"}`), model.CodeConflict)
	refused(t, enters(v.ID, "7 11"), model.CodeConflict)
	a.patch(t, v.ID, map[string]any{"end_at": time.Now().Add(-time.Minute)})
	check.Patiently(t, "the list is published", func() bool { return proof().Root != "" })
	waits := proof()
	check.That(t, waits.Beacon == v.Beacon && waits.Value == "" && waits.Secret == "" && waits.DrawnAt == nil, "%+v", waits)
	entry := remote.Decode[model.Entry](t, a.does(t, "GET /vouchers/"+v.ID+"/entry", a.as(t, a.user(0)), nil))
	check.Equal(t, "my entry", entry.Status, model.EntryEntered)
	refused(t, enters(v.ID, " "), model.CodeValidation)
	for range 2 {
		check.Equal(t, "entered", object(t, enters(v.ID, "7 11"), http.StatusOK)["value"], any("7 11"))
	}
	refused(t, enters(v.ID, "7 12"), model.CodeConflict)
	check.Patiently(t, "it is drawn", func() bool { return proof().DrawnAt != nil })
	drawn := proof()
	leaves := remote.Decode[model.DrawnLeaves](t, a.does(t, "GET /vouchers/"+v.ID+"/draw/entries", "", nil)).Items
	check.Must(t, draw.Verify(drawn, leaves))
	check.That(t, drawn.Algorithm == draw.WithBeacon && drawn.Value == "7 11" && drawn.Commitment == waits.Commitment &&
		drawn.Root == waits.Root, "%+v, and before: %+v", drawn, waits)
	check.That(t, slices.ContainsFunc(reads[model.AdminLogPage](t, a.app, "/admin/log?limit=100").Items,
		func(e model.AdminChange) bool { return e.Action == "voucher.beacon" && e.Subject == v.ID }), "it is not logged")
	refused(t, enters(a.Create(t, map[string]any{"allocation": "draw"}).ID, "7"), model.CodeConflict)
	refused(t, enters(a.onSale(t, 1).ID, "7"), model.CodeNotFound)
}

// TestWaitlist: a unit that comes back, or is added, is an order of who waits first.
func TestWaitlist(t *testing.T) { t.Parallel(); everywhere(t, checkWaitlist) }

func checkWaitlist(t *testing.T, a shop) {
	admin, doc := a.Admin(t), readDocument(t, a.app)
	v := a.Create(t, map[string]any{"stock": 1, "waitlist": true, "payment_window": "7m"})
	const (
		owner, first, second, open             = 1, 2, 3, 4
		joins, stands, leaves                  = "POST", "GET", "DELETE"
		made, found, gone, missing, impossible = 201, 200, 204, 404, 409
	)
	asks := func(id, what string, n int) api.Answer {
		t.Helper()
		return a.documented(t, doc, what+" /vouchers/{id}/waitlist", id, a.as(t, a.user(n)), nil)
	}
	type move struct {
		what                   string
		user, status, position int
	}
	moves := func(all ...move) {
		t.Helper()
		for _, m := range all {
			got := asks(v.ID, m.what, m.user)
			check.Equal(t, m.what, got.Status, m.status)
			if m.position > 0 {
				check.Equal(t, "the position", remote.Decode[model.WaitlistPlace](t, got).Position, int64(m.position))
			}
		}
	}
	place := func(n int) model.WaitlistPlace { return remote.Decode[model.WaitlistPlace](t, asks(v.ID, stands, n)) }
	refuses := func(id string, n int, code model.Code) { t.Helper(); refused(t, asks(id, joins, n), code) }

	refuses(v.ID, first, model.CodeConflict)   // a unit is free
	bought := a.bought(t, v.ID, a.user(owner)) // and who hears SOLD_OUT gets a place at once
	moves(move{joins, first, made, 1}, move{joins, first, found, 1}, move{joins, second, made, 2})
	refuses(v.ID, owner, model.CodeAlreadyOrdered)
	moves(move{stands, open, missing, 0}, move{leaves, open, missing, 0}, move{leaves, first, gone, 0},
		move{stands, first, missing, 0}, move{stands, second, found, 1}, move{joins, first, made, 2})
	shown := object(t, a.once(t, "GET /vouchers/"+v.ID, "", nil), http.StatusOK)
	check.That(t, shown["waitlist"] == true && shown["waiting"] == 2.0, "the voucher shows %v", shown)
	refused(t, a.once(t, "PATCH /admin/vouchers/"+v.ID, admin, `{"waitlist":false}`), model.CodeConflict)

	// What the owner gives back is the second one's, and nobody else's.
	a.cancels(t, a.becomes(t, bought, model.OrderUnpaid))
	mine := place(second)
	heir := object(t, a.once(t, "GET /orders/"+mine.OrderID, a.as(t, a.user(second)), nil), http.StatusOK)
	window := instant(t, heir, "expires_at").Sub(instant(t, heir, "created_at"))
	check.That(t, heir["status"] == "unpaid" && window.Minutes() == 7 && mine.Position == 0, "%v, %+v", heir, mine)
	check.Equal(t, "the open sale", a.buy(t, v.ID, a.user(open)).Code(), model.CodeSoldOut)
	check.Patiently(t, "who got an order hears of it", func() bool {
		return a.buy(t, v.ID, a.user(second)).Code() == model.CodeAlreadyOrdered
	})
	refuses(v.ID, second, model.CodeAlreadyOrdered)
	moves(move{leaves, second, impossible, 0}, move{joins, owner, made, 2}) // who canceled is last
	a.cancels(t, model.Order{ID: mine.OrderID, UserID: a.user(second)})
	check.That(t, place(first).OrderID != "", "what an heir gives back goes on")
	check.Equal(t, "the position", place(owner).Position, 1)

	// Of what is added the rest is for the open sale.
	object(t, a.once(t, "POST /admin/vouchers/"+v.ID+"/stock", admin, map[string]any{"delta": 2}), http.StatusOK)
	check.That(t, place(owner).OrderID != "", "a restock does not serve who waits")
	a.buys(t, v.ID, a.user(open))
	audit := a.quiet(t, v.ID)
	check.Equal(t, "live orders", audit.Database.LiveOrders, 3)

	// The window refuses as it refuses a purchase, and other vouchers have no waitlist.
	a.patch(t, v.ID, `{"state":"paused"}`)
	check.Patiently(t, "every instance obeys the pause",
		func() bool { return asks(v.ID, joins, second).Code() == model.CodePaused })
	other := a.Create(t, map[string]any{"stock": 0}).ID
	refuses(other, first, model.CodeConflict)
	refused(t, asks(other, stands, first), model.CodeNotFound)
	refuses("none", first, model.CodeNotFound)
}

// TestExpiry: an order unpaid after its window returns its unit to somebody else. (service/repair tests the second.)
func TestExpiry(t *testing.T) { t.Parallel(); everywhere(t, checkExpiry) }

func checkExpiry(t *testing.T, a shop) {
	const window = time.Second
	voucher := a.Create(t, map[string]any{"stock": 1, "payment_window": window.String()})
	buy := func(user string) (order model.Order) {
		check.Patiently(t, "the voucher is sold", func() (sold bool) {
			order, sold = orderOf(t, a.buy(t, voucher.ID, user), voucher.ID, user)
			return sold
		})
		return order
	}
	order := buy(a.user(1))
	resold := buy(a.user(2)) // as soon as the unit is there
	detail := reads[model.OrderDetail](t, a.app, "/admin/orders/"+order.ID)
	moves := detail.History
	check.Need(t, len(moves) >= 2 && detail.Status == model.OrderExpired && detail.ExpiresAt != nil, "%+v", detail)
	unpaid, last := moves[len(moves)-2], moves[len(moves)-1]
	check.That(t, last.To == model.OrderExpired && last.By == model.BySystem && last.From != nil &&
		*last.From == model.OrderUnpaid,
		"%+v", detail)
	check.That(t, unpaid.To == model.OrderUnpaid && detail.ExpiresAt.Sub(unpaid.At) == window,
		"%+v does not expire %s after it became unpaid", detail, window)
	check.That(t, !last.At.Before(*detail.ExpiresAt) && !resold.CreatedAt.Before(*detail.ExpiresAt),
		"expired or sold again before its time: %+v, %+v", detail, resold)
	refused(t, a.asks(t, order, http.MethodPost, "/cancel"), model.CodeIllegalState)
	buy(a.user(1)) // who has let it lapse may buy again, when the other one lapses
	check.Patiently(t, "all have lapsed", func() bool {
		audit := a.Audit(t, voucher.ID).Database
		check.That(t, audit.Stock == audit.Remaining+audit.LiveOrders, "%+v", audit)
		return audit.Remaining == 1
	})
}
