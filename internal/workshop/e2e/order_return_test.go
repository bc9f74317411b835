//part:races

package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// TestReturnedUnitIsSoldOnce: twenty cancellations of one order at once return one unit, one of six users who wait for it
// has it, and who gave it back may buy again.
func TestReturnedUnitIsSoldOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, checkReturnedUnit)
}

func checkReturnedUnit(t *testing.T, a shop) {
	t.Helper()
	const waiting = 6
	voucher := a.onSale(t, 1)
	first := a.buys(t, voucher.ID, a.user(0))
	// buys again and again until there is a unit, or somebody else has it.
	won, over := make(chan string, waiting), make(chan struct{})
	asked := make(chan struct{}, waiting)
	buyers := make(chan struct{})
	go func() {
		defer close(buyers)
		check.Volley(waiting, func(n int) {
			for looks := 0; ; looks++ {
				got, err := a.Place(t, voucher.ID, a.user(n+1))
				if _, sold := orderOf(t, got, voucher.ID, a.user(n+1)); err == nil && sold {
					won <- a.user(n + 1)
					return
				}
				if looks == 0 {
					asked <- struct{}{}
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}()
	for range waiting {
		check.Receive(t, "an answer to each who waits", asked)
	}
	check.Volley(20, func(int) { a.cancels(t, first) })
	winner := check.Receive(t, "one who has the unit", won)
	for range waiting - 1 { // the others go on trying
		if got := a.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.Token(t, a.user(7), model.RoleUser), nil); got.Code() != model.CodeSoldOut {
			t.Errorf("one more: %d %s", got.Status, got.Body)
		}
	}
	close(over)
	check.Receive(t, "the end of the others", buyers)
	check.Equal(t, "more who bought one unit", len(won), 0)
	page := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/orders?voucher_id="+voucher.ID, a.Token(t, winner, model.RoleUser), nil))
	if len(page.Items) != 1 {
		t.Fatalf("%+v", page.Items)
	}
	a.cancels(t, a.becomes(t, page.Items[0], model.OrderUnpaid))
	check.Patiently(t, "who gave the unit back has it again", func() bool {
		got, err := a.Place(t, voucher.ID, first.UserID)
		_, sold := orderOf(t, got, voucher.ID, first.UserID)
		return err == nil && sold
	})
	check.Patiently(t, "it adds up", func() bool {
		d := a.Audit(t, voucher.ID).Database
		return d.LiveOrders == 1 && d.Remaining == 0
	})
}
