package e2e_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/model"
)

// reloaded is the contract's: with 100,000 buyers and nothing queued a sale whose
// hot copy was lost goes on within 3 s.
const reloaded = 3 * time.Second

// flush empties a Redis behind everybody's back.
func flush(t *testing.T, server *testserver.Server) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

// losses are the ways in which Redis forgets what it had acknowledged.
func losses(t *testing.T, redis *testserver.Server) map[string]func() {
	t.Helper()
	return map[string]func(){
		"FLUSHALL":    func() { flush(t, redis) },
		"an old copy": func() { redis.Kill(); redis.RestoreData(); redis.Start() },
		"empty":       func() { redis.Kill(); redis.ClearData(); redis.Start() },
	}
}

// In the middle of a sale Redis forgets everything, or everything since a while
// ago. Nobody hears SOLD_OUT while there is something left, nobody buys twice,
// and exactly the stock is sold. A promise may be broken by what Redis forgot
// only if it was not queued: none is, because a promise is given after that.
func TestRedisForgetsInTheMiddleOfASale(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"FLUSHALL", "an old copy", "empty"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			own, s := asyncOnOwnServers(t)
			instances := []*process{launch(t, s), launch(t, s)}
			a := instances[0].app
			const stock, buyers = 600, 900
			voucher := a.onSale(t, stock)
			c := newCrowd(a, voucher.ID, instances[1].app)
			var load sync.WaitGroup
			load.Go(func() { c.buy(t, users(a, 0, buyers), 12) })
			c.moreSales(t, 60)
			own.redis.KeepData()
			c.moreSales(t, 60)
			losses(t, own.redis)[how]()
			load.Wait()

			orders := a.conserved(t, voucher.ID, c.promised)
			unbroken(t, orders, c.promised)
			a.sellsOn(t, voucher.ID, buyers)
			t.Logf("%d × 202, %d × 503", c.yes, c.refused)
		})
	}
}

// With 100,000 buyers and an empty backlog a sale goes on within 3 s, and says
// 503 until then, never SOLD_OUT. It is before the parallel tests, because 100,000 rows
// are copied in that time, and a machine that stood still meanwhile shows nothing.
//
//nolint:paralleltest // see above
func TestHotCopyOfManyBuyersIsRebuiltInTime(t *testing.T) {
	own, s := asyncOnOwnServers(t)
	a := launch(t, s).app
	const sold, left = 100_000, 50
	voucher := a.undivided(t, sold+left)
	seed(t, s, voucher.ID, sold)
	if got := a.call(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/rebuild", a.admin(t), nil); got.status != http.StatusAccepted {
		t.Fatalf("rebuild: %d %s", got.status, got.body)
	}
	a.quiet(t, voucher.ID, settlement)
	promised := map[string]string{}
	for _, how := range []string{"FLUSHALL", "an old copy", "empty"} {
		testserver.Undisturbed(t, 500*time.Millisecond, func() error {
			own.redis.KeepData()
			order := a.accepted(t, voucher.ID, a.user(len(promised))) // the old copy does not know the order
			promised[order.ID] = order.UserID
			a.becomes(t, order, model.OrderUnpaid)
			losses(t, own.redis)[how]()
			next, took := a.sellsAgain(t, voucher.ID, a.user(len(promised)))
			promised[next.ID] = next.UserID
			for _, twice := range []string{order.UserID, "seeded1", fmt.Sprintf("seeded%d", sold)} {
				if got, err := a.place(t, voucher.ID, twice); err != nil || got.code() != model.CodeAlreadyOrdered {
					t.Errorf("%s: %s has an order, and hears %d %s %v", how, twice, got.status, got.body, err)
				}
			}
			if took > reloaded {
				return fmt.Errorf("%s: it took %v to sell again, want %v", how, took, reloaded)
			}
			return nil
		})
	}
	a.quiet(t, voucher.ID, settlement)
	for n := 1000; ; n++ {
		got, err := a.place(t, voucher.ID, a.user(n))
		if err != nil || got.status != http.StatusAccepted {
			break
		}
		promised[decode[model.Order](t, got).ID] = a.user(n)
	}
	audit := a.quiet(t, voucher.ID, settlement)
	if len(promised) != left || audit.Database.LiveOrders != sold+left || audit.Redis.Buyers != sold+left {
		t.Errorf("%d were promised, want %d; %+v %+v", len(promised), left, audit.Database, *audit.Redis)
	}
}

// sellsAgain has a user ask until an order is promised, and tells how long that took. Until then the answer is UNAVAILABLE.
func (a *app) sellsAgain(t *testing.T, voucherID, user string) (order model.Order, took time.Duration) {
	t.Helper()
	for began := time.Now(); ; {
		got, err := a.place(t, voucherID, user)
		took = time.Since(began)
		if err == nil && got.status == http.StatusAccepted {
			t.Logf("it sells again after %v", took)
			return decode[model.Order](t, got), took
		}
		if err == nil && got.code() != model.CodeUnavailable {
			t.Fatalf("%s: %d %s", user, got.status, got.body)
		}
		if took > settlement {
			t.Fatalf("%s: it does not sell again", user)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// seed writes unpaid orders of the users seeded1, seeded2, … as if they had been
// bought.
func seed(t *testing.T, s settings, voucherID string, orders int) {
	t.Helper()
	db, err := sql.Open("mysql", s["SECKILL_DATABASE_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		fmt.Sprintf("UPDATE vouchers SET remaining = remaining - %d, version = version + 1 WHERE id = ?", orders),
		`INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, expires_at)
		 SELECT CONCAT(LPAD(seq, 26, '0'), '.', v.id), v.id, CONCAT('seeded', seq), 'unpaid', v.price, v.currency,
		        UTC_TIMESTAMP(6) - INTERVAL (1000000 - seq) * 100 MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 1 HOUR
		 FROM vouchers v JOIN ` + testserver.Numbers(1, orders) + ` WHERE v.id = ?`,
	} {
		if _, err := tx.ExecContext(t.Context(), statement, voucherID); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	// As after a sale that took its time: the server knows its tables.
	if _, err := db.ExecContext(t.Context(), "ANALYZE TABLE orders"); err != nil {
		t.Fatal(err)
	}
}
