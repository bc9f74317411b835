package e2e_test

import (
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/failpoint"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// Whatever the program dies of while a unit comes back that somebody waits for, that user gets it, once, and nobody else.
func TestKilledWhereUsersWait(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	l := &lane{s: s, beside: map[string]map[string]string{}, program: prepare(t, testserver.Program(t, "failpoint"), s)}
	l.redis = redis.NewClient(check.Value(redis.ParseURL(s["SECKILL_REDIS_URL"]))(t))
	t.Cleanup(func() { _ = l.redis.Close() })
	instance := check.Value(begin(t, s))(t)
	well := newApp(t, instance.BaseURL(), instance.OpsURL())
	waiter := map[string]string{} // voucher → who waits
	for _, step := range []failpoint.Step{
		failpoint.BeforeCancel, failpoint.AfterCancel, failpoint.BeforeRelease, failpoint.AfterRelease, failpoint.AfterReleaseNoted,
	} {
		f := &fatality{lane: l, step: step, promised: map[string]string{}, voucher: well.Create(t, map[string]any{"stock": 1, "waitlist": true})}
		f.before = well.becomes(t, well.accepted(t, f.voucher.ID, l.user()), model.OrderUnpaid)
		waiter[f.voucher.ID] = l.user()
		got := well.Insist(t, http.MethodPost, "/vouchers/"+f.voucher.ID+"/waitlist", well.Token(t, waiter[f.voucher.ID], model.RoleUser), nil)
		check.Equal(t, "who hears SOLD_OUT waits", got.Status, http.StatusCreated)
		l.dead = append(l.dead, f)
	}
	well.Client.CloseIdleConnections()
	halt(instance)
	for _, part := range []string{"reconciler", "expiry"} {
		l.leases = append(l.leases, "seckill:"+part+":"+deploymentOf(t, s))
	}
	for _, f := range l.dead {
		f.dies(t, cancelOne)
	}
	l.lapse(t)
	well = start(t, s)
	for _, f := range l.dead {
		well.cancels(t, f.before)
		path, token := "/vouchers/"+f.voucher.ID, well.Token(t, waiter[f.voucher.ID], model.RoleUser)
		place := remote.Decode[model.WaitlistPlace](t, well.Insist(t, http.MethodGet, path+"/waitlist", token, nil))
		orders := well.orders(t, f.voucher.ID)
		if heir := orders[place.OrderID]; heir.UserID != waiter[f.voucher.ID] || heir.Status != model.OrderUnpaid || len(orders) != 2 {
			t.Errorf("%s: the place became %+v, of %d orders", f.step, heir, len(orders))
		}
		audit := well.quiet(t, f.voucher.ID)
		check.Equal(t, string(f.step)+": live orders", audit.Database.LiveOrders, 1)
		got := well.Insist(t, http.MethodPost, path+"/seckill", well.Token(t, l.user(), model.RoleUser), nil)
		check.Equal(t, string(f.step)+": the open sale", got.Code(), model.CodeSoldOut)
	}
}
