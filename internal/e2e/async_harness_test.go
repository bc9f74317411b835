package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

// settlement is the contract's: what a dead process left behind is settled
// within 30 s. Two more are for a machine that is busy with the rest of the tests.
const settlement = 32 * time.Second

// asyncOnServers is onServers with orders that are queued in the NATS server
// the tests share.
func asyncOnServers(t *testing.T) settings {
	t.Helper()
	return onServers(t).with(settings{
		"SECKILL_ORDER_MODE": "async",
		"SECKILL_NATS_URL":   testserver.SharedNATS(t),
	})
}

// servers are a deployment's own, to be killed.
type servers struct {
	database, redis, nats *testserver.Server
}

// asyncOnOwnServers is a deployment whose servers no other test has.
func asyncOnOwnServers(t *testing.T) (servers, settings) {
	t.Helper()
	own := servers{database: testserver.MariaDB(t), redis: testserver.Redis(t), nats: testserver.NATS(t)}
	return own, settings{
		"SECKILL_DATABASE_DSN": own.database.DSN(testserver.DefaultSchema),
		"SECKILL_REDIS_URL":    own.redis.URL(),
		"SECKILL_NATS_URL":     own.nats.URL(),
		"SECKILL_ORDER_MODE":   "async",
		"SECKILL_JWT_SECRET":   secret,
		"SECKILL_HTTP_ADDR":    "127.0.0.1:0",
		"SECKILL_OPS_ADDR":     "127.0.0.1:0",
		"SECKILL_RATE_USER":    "0",
		"SECKILL_RATE_ADDR":    "0",
	}
}

// count is how much a test does: the same test is short in `make test` and long
// behind a target of its own, which sets the variable.
func count(t testing.TB, variable string, short int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return short
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s is no positive number", variable, text)
	}
	return n
}

// seeded is the chance of a test, and says how to have it again.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(count(t, "SEED", int(rand.Int32())+1))
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// place makes one request to buy.
func (a *app) place(t testing.TB, voucherID, user string) (answer, error) {
	t.Helper()
	return send(a.client, http.MethodPost, a.url+"/api/v1/vouchers/"+voucherID+"/seckill", a.token(t, user, model.RoleUser), nil)
}

// accepted buys one unit, and fails the test when that is not promised.
func (a *app) accepted(t testing.TB, voucherID, user string) model.Order {
	t.Helper()
	got, err := a.place(t, voucherID, user)
	if err != nil || got.status != http.StatusAccepted {
		t.Fatalf("%s buys: %d %s %v, want 202", user, got.status, got.body, err)
	}
	return decode[model.Order](t, got)
}

// becomes waits for what becomes of an order; the answer comes when it does.
func (a *app) becomes(t testing.TB, order model.Order, want model.OrderStatus) model.Order {
	t.Helper()
	token := a.token(t, order.UserID, model.RoleUser)
	got := a.call(t, http.MethodGet, "/orders/"+order.ID+"?wait=25s", token, nil)
	if got.status != http.StatusOK {
		t.Fatalf("order %s: %d %s", order.ID, got.status, got.body)
	}
	became := decode[model.Order](t, got)
	if became.Status != want {
		t.Errorf("order %s is %s (%s), want %s", order.ID, became.Status, became.Reason, want)
	}
	return became
}

// orders lists every order of a voucher that the database knows, by id.
func (a *app) orders(t testing.TB, voucherID string) map[string]model.Order {
	t.Helper()
	orders := map[string]model.Order{}
	for cursor := ""; ; {
		got := a.call(t, http.MethodGet, "/admin/vouchers/"+voucherID+"/orders?limit=100&cursor="+cursor, a.admin(t), nil)
		if got.status != http.StatusOK {
			t.Fatalf("orders: %d %s", got.status, got.body)
		}
		page := decode[model.OrderPage](t, got)
		for _, order := range page.Items {
			orders[order.ID] = order
		}
		if cursor = page.NextCursor; cursor == "" {
			return orders
		}
	}
}

// quiet waits until nothing is under way for a voucher any more and everything
// about it agrees.
func (a *app) quiet(t testing.TB, voucherID string, within time.Duration) model.Audit {
	t.Helper()
	var last answer
	for deadline := time.Now().Add(within); ; {
		var err error
		last, err = send(a.client, http.MethodGet, a.url+"/api/v1/admin/vouchers/"+voucherID+"/audit", a.admin(t), nil)
		if err == nil && last.status == http.StatusOK {
			if audit := decode[model.Audit](t, last); settled(audit) {
				return audit
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the audit is not balanced and quiet within %v: %d %s", within, last.status, last.body)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// settled reports whether everything agrees and nothing is under way: what is
// younger than 5 s, and thus left out of the balance, too.
func settled(audit model.Audit) bool {
	return audit.Balanced && (audit.Queue == nil || audit.Queue.Pending == 0) &&
		(audit.Redis == nil || audit.Redis.State == string(model.CopyOpen) && audit.Redis.Reserved == 0 &&
			audit.Redis.Remaining == audit.Database.Remaining && audit.Redis.Buyers == audit.Database.LiveOrders)
}

// conserved waits until a voucher is quiet, checks invariants 1 to 4 by id, and
// returns every order. The promised orders, and their users, must be among them.
func (a *app) conserved(t testing.TB, voucherID string, promised map[string]string) map[string]model.Order {
	t.Helper()
	audit := a.quiet(t, voucherID, settlement)
	orders := a.orders(t, voucherID)
	live := map[string]string{}
	for id, order := range orders {
		if !order.Live() {
			continue
		}
		if other, twice := live[order.UserID]; twice {
			t.Errorf("%s has two live orders: %s and %s", order.UserID, id, other)
		}
		live[order.UserID] = id
	}
	d := audit.Database
	if d.LiveOrders != int64(len(live)) || d.Stock != d.Remaining+d.LiveOrders {
		t.Errorf("%d live orders, and the audit says %+v", len(live), d)
	}
	for id, user := range promised {
		if order, ok := orders[id]; !ok || order.UserID != user || order.Status == model.OrderProcessing {
			t.Errorf("%s was promised order %s, and it is %+v", user, id, order)
		}
	}
	return orders
}

// unbroken checks that every promise became an order that can be paid.
func unbroken(t testing.TB, orders map[string]model.Order, promised map[string]string) {
	t.Helper()
	for id := range promised {
		if order := orders[id]; order.Status != model.OrderUnpaid {
			t.Errorf("order %s was promised and is %q (%s)", id, order.Status, order.Reason)
		}
	}
}

// sellsOn lets new users buy what is left, to the last unit, and checks that
// everything was sold exactly. It returns what was promised meanwhile.
func (a *app) sellsOn(t testing.TB, voucherID string, from int) map[string]string {
	t.Helper()
	promised := map[string]string{}
	for n, idle := from, time.Now(); ; n++ {
		user := a.user(n)
		got, err := a.place(t, voucherID, user)
		switch {
		case err == nil && got.status == http.StatusAccepted:
			promised[decode[model.Order](t, got).ID], idle = user, time.Now()
			continue
		case err == nil && got.code() == model.CodeSoldOut && a.audit(t, voucherID).Database.Remaining == 0:
		case time.Since(idle) < 5*time.Second: // a local copy may say "sold out" for a second
			<-time.After(50 * time.Millisecond)
			continue
		default:
			t.Fatalf("it does not sell on: %d %s %v, %+v", got.status, got.body, err, a.audit(t, voucherID))
		}
		break
	}
	unbroken(t, a.conserved(t, voucherID, promised), promised)
	if d := a.audit(t, voucherID).Database; d.Remaining != 0 || d.LiveOrders != d.Stock {
		t.Errorf("stock was lost: %+v", d)
	}
	return promised
}

// sorted are the keys in order, so that a seed gives the same test again.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// runs a command of the real program, and returns what it said.
func runs(t testing.TB, s settings, args ...string) (output string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testserver.Program(t), args...)
	cmd.Env = append(os.Environ(), s.environ()...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return string(said), fmt.Errorf("seckill %v: %w\n%s", args, err, said)
	}
	return string(said), nil
}
