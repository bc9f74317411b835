//go:build faults

//part:redis

package e2e_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// With 100,000 buyers a sale goes on after each loss, and says 503 until then,
// never SOLD_OUT. (Within 3 s, says the contract: the time is logged.)
func TestHotCopyOfManyBuyersIsRebuilt(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnRedis(t)
	a := start(t, s)
	const sold, left = 100_000, 50
	voucher := a.onSale(t, sold+left)
	seed(t, s, voucher.ID, sold)
	a.rebuild(t, voucher.ID)
	a.quiet(t, voucher.ID)
	promised := map[string]string{}
	for _, how := range []string{"FLUSHALL", "an old copy", "empty"} {
		own.KeepData()
		order := a.accepted(t, voucher.ID, a.user(len(promised))) // the old copy does not know the order
		promised[order.ID] = order.UserID
		a.becomes(t, order, model.OrderUnpaid)
		losses(t, own)[how]()
		lost := time.Now()
		next := a.accepted(t, voucher.ID, a.user(len(promised)))
		t.Logf("%s: it sells again after %v", how, time.Since(lost))
		promised[next.ID] = next.UserID
		for _, twice := range []string{order.UserID, "seeded1", fmt.Sprintf("seeded%d", sold)} {
			got := remote.Insist(t, twice, func(int) (api.Answer, error) { return a.Place(t, voucher.ID, twice) })
			if got.Code() != model.CodeAlreadyOrdered {
				t.Errorf("%s: %s has an order, and hears %d %s", how, twice, got.Status, got.Body)
			}
		}
	}
	a.quiet(t, voucher.ID)
	for n := 0; len(promised) < left; n++ {
		promised[a.accepted(t, voucher.ID, a.user(1000+n)).ID] = a.user(1000 + n)
	}
	audit := a.quiet(t, voucher.ID)
	if audit.Database.LiveOrders != sold+left || audit.Redis.Buyers != sold+left {
		t.Errorf("%+v %+v", audit.Database, *audit.Redis)
	}
}

// seed writes unpaid orders of the users seeded1, seeded2, … as if they had been
// bought.
func seed(t *testing.T, s settings, voucherID string, orders int) {
	t.Helper()
	db := behind(t, s)
	tx := check.Value(db.BeginTx(t.Context(), &sql.TxOptions{}))(t)
	for _, statement := range []string{
		fmt.Sprintf("UPDATE vouchers SET remaining = remaining - %d, version = version + 1 WHERE id = ?", orders),
		`INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, expires_at)
		 SELECT CONCAT(LPAD(seq, 26, '0'), '.', v.id), v.id, CONCAT('seeded', seq), 'unpaid', v.price, v.currency,
		        UTC_TIMESTAMP(6) - INTERVAL (1000000 - seq) * 100 MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 1 HOUR
		 FROM vouchers v JOIN ` + testserver.Numbers(1, orders) + ` WHERE v.id = ?`,
	} {
		check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), statement, voucherID)))
	}
	check.Must(t, tx.Commit())
	// As after a sale that took its time: the server knows its tables.
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), "ANALYZE TABLE orders")))
}

// Redis is full, forgets its scripts, and loses answers. A purchase meanwhile gets
// what it is promised, or 503.
func TestRedisInTrouble(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnRedis(t)
	w := newWire(t, own.Addr())
	a := start(t, s.with(settings{"SECKILL_REDIS_URL": "redis://" + w.addr() + "/0"}))
	voucher := a.onSale(t, 2000)
	c := newCrowd(a, voucher.ID)
	sale := c.buying(t, users(a, 0, 2300), 8)
	direct := redis.NewClient(&redis.Options{Addr: own.Addr()})
	defer direct.Close()
	for _, trouble := range []func(){
		func() { check.Must(t, direct.ScriptFlush(t.Context()).Err()) },
		w.cut,
		func() {
			check.Must(t, direct.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
			c.moreRefusals(t, 8)
			check.Must(t, direct.ConfigSet(t.Context(), "maxmemory", "512mb").Err())
		},
		func() {
			release := w.hold(down)
			check.Stays(t, "answers are held", func() bool { return true })
			release()
		},
	} {
		c.moreSales(t, 100)
		trouble()
	}
	sale()
	a.kept(t, voucher.ID, c.promised)
	a.sellsOn(t, voucher.ID, 3000)
	t.Logf("%d × 202, %d × 503", c.yes, c.refused)
}

// Redis is killed under load in sync mode, where only the users' locks are on it.
func TestRedisKilledUnderLoad(t *testing.T) {
	t.Parallel()
	own := testserver.Redis(t)
	killedUnderLoad(t, own, start(t, onServers(t).with(settings{"SECKILL_REDIS_URL": own.URL()})))
}
