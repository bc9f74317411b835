package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

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
		if got.Status != status {
			t.Fatalf("%s of user %d is %d and not %d: %s", method, n, got.Status, status, got.Body)
		}
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
