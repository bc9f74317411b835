package e2e_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/draw"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

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
