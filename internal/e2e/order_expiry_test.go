package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"seckill/internal/failpoint"
	"seckill/internal/testserver"
	"seckill/model"
)

// lapse makes the time of an order pass while no process is there.
func (f *fatality) lapse(t *testing.T) {
	t.Helper()
	f.canceled = f.before[0].ID
	execute(t, f.s, "UPDATE orders SET expires_at = created_at WHERE id = '"+f.canceled+"'")
}

// awaitExpiry waits until the order whose time has passed is expired.
func (f *fatality) awaitExpiry(t *testing.T) {
	t.Helper()
	if f.step != failpoint.BeforeExpire && f.step != failpoint.AfterExpire {
		return
	}
	until(t, settlement, "order "+f.canceled+" is expired", func() bool {
		got := f.program.call(t, http.MethodGet, "/admin/orders/"+f.canceled, f.program.admin(t), nil)
		return got.status == http.StatusOK && decode[model.OrderDetail](t, got).Status == model.OrderExpired
	})
}

// TestExpiry: an order that is not paid in its voucher's window gives its unit back
// within a second, and somebody else has it, in both order modes.
func TestExpiry(t *testing.T) {
	t.Parallel()
	for name, deployment := range map[string]func(*testing.T) settings{
		"servers": onServers, "embedded": embeddedSettings, "async": asyncOnServers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkExpiry(t, start(t, deployment(t)))
		})
	}
}

func checkExpiry(t *testing.T, a *app) {
	t.Helper()
	const window = 2 * time.Second
	alice, bob := a.token(t, a.user(1), model.RoleUser), a.token(t, a.user(2), model.RoleUser)
	var voucher model.Voucher
	buy := func(token string) (order model.Order) {
		until(t, settlement, "the voucher is sold", func() bool {
			got := a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil)
			sold := got.status == http.StatusCreated || got.status == http.StatusAccepted
			if sold {
				order = decode[model.Order](t, got)
			}
			return sold
		})
		return decode[model.Order](t, a.call(t, http.MethodGet, "/orders/"+order.ID+"?wait=25s", token, nil))
	}
	testserver.Undisturbed(t, 250*time.Millisecond, func() error {
		voucher = a.create(t, map[string]any{"stock": 1, "payment_window": window.String()})
		order := buy(alice)
		resold := buy(bob) // as soon as the unit is there
		detail := decode[model.OrderDetail](t, a.call(t, http.MethodGet, "/admin/orders/"+order.ID, a.admin(t), nil))
		moves := detail.History
		last := moves[len(moves)-1]
		if detail.Status != model.OrderExpired || last.To != model.OrderExpired || last.By != model.BySystem || last.From == nil || *last.From != model.OrderUnpaid {
			t.Fatalf("%+v", detail)
		}
		if unpaid := moves[len(moves)-2]; detail.ExpiresAt == nil || unpaid.To != model.OrderUnpaid || detail.ExpiresAt.Sub(unpaid.At) != window {
			t.Fatalf("%+v does not expire %s after it became unpaid", detail, window)
		}
		refused(t, a.call(t, http.MethodPost, "/orders/"+order.ID+"/cancel", alice, nil), http.StatusConflict, model.CodeIllegalState)
		late := last.At.Sub(*detail.ExpiresAt)
		if late < 0 {
			t.Fatalf("expired %s before its time", -late)
		}
		if late > time.Second {
			return fmt.Errorf("expired %s after its time", late)
		}
		if late := resold.CreatedAt.Sub(*detail.ExpiresAt); late > 4*time.Second {
			return fmt.Errorf("its unit was sold %s after its time", late)
		}
		return nil
	})
	// Who has let it lapse may buy again, when the other one lapses. This order lapses too: when it is unpaid
	// after the audit, the audit has seen it.
	until(t, settlement, "the audit of a unit that is sold again", func() bool {
		again := buy(alice)
		audit := a.audit(t, voucher.ID).Database
		has := a.now(t, again).Status == model.OrderUnpaid
		if has && audit.LiveOrders != 1 || audit.Stock != audit.Remaining+audit.LiveOrders {
			t.Errorf("%+v", audit)
		}
		return has
	})
}
