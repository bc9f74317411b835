//part:redis

package repair_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/internal/redisdb"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/repository/sqldb"
	"seckill/service/backlog"
	"seckill/service/guard"
	"seckill/service/repair"
)

// backstage is the background half of an instance on real servers.
type backstage struct {
	dsn      string
	db       *sqldb.Database
	redis    redis.UniversalClient
	hot      *hotcopy.Store
	queue    *queue.Queue
	orders   *repository.Orders
	vouchers *repository.Vouchers
	epochs   *repository.Epochs
	*repair.Worker
}

type unlocked struct {
	repair.Seats
	lifetime context.Context
}

func (u unlocked) Lock(context.Context, string, time.Duration) (model.Lease, error) { return u, nil }

func (u unlocked) Context() context.Context { return u.lifetime }

func (u unlocked) Unlock() error { return nil }

func newBackstage(t *testing.T, redisURL string) *backstage {
	t.Helper()
	b := openBackstage(t, redisURL)
	b.background(t, b.Reconciler.Run, b.Rebuilder.Run, b.consume)
	return b
}

func (b *backstage) consume(ctx context.Context) {
	_ = b.queue.Consume(ctx, b.Persister.Persist, queue.ConsumeOptions{})
}

func (b *backstage) background(t *testing.T, jobs ...func(context.Context)) {
	t.Helper()
	running, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, job := range jobs {
		all.Go(func() { job(running) })
	}
	t.Cleanup(func() { stop(); all.Wait() })
}

func openBackstage(t testing.TB, redisURL string) *backstage {
	t.Helper()
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	dsn := testserver.Schema(t)
	db := check.Value(sqldb.Open(ctx, sqldb.Options{DSN: dsn, Slack: check.Deadline}))(t)
	t.Cleanup(func() { check.Must(t, db.Close()) })
	check.Must(t, db.Migrate(ctx))
	modes := &repository.Modes{DB: db}
	record := check.Value(modes.Adopt(ctx, model.ModeAsync))(t)
	b := &backstage{dsn: dsn, db: db, vouchers: repository.NewVouchers(db, "CNY"), epochs: &repository.Epochs{DB: db}}
	b.orders = check.Value(repository.NewOrders(db,
		repository.OrderOptions{PaymentWindow: time.Hour, Mode: model.ModeAsync}))(t)
	b.redis = check.Value(redisdb.NewClient(redisURL, nil))(t)
	t.Cleanup(func() { check.Must(t, b.redis.Close()) })
	b.hot = hotcopy.New(b.redis, hotcopy.Options{Slack: check.Deadline})
	b.queue = check.Value(queue.Open(ctx, queue.Options{
		URL: testserver.SharedNATS(t), Deployment: record.Deployment,
		Log: log, Slack: check.Deadline,
	}))(t)
	t.Cleanup(func() { b.queue.Close(context.Background()) })

	mode := guard.NewMode(modes.Read, model.ModeAsync, log)
	check.Must(t, mode.Refresh(ctx))
	b.Worker = repair.New(repair.Deps{
		Database: struct {
			*repository.Orders
			*repository.Vouchers
			*repository.Releases
		}{b.orders, b.vouchers, &repository.Releases{DB: db}},
		Epochs: b.epochs, Hot: b.hot, Queue: b.queue, Backlog: backlog.New(b.queue, 0, nil, log), Mode: modes.Read,
		Metrics: telemetry.NewWorker(prometheus.NewRegistry()), Log: log,
	}, electing(unlocked{lifetime: context.Background()}), mode.Selling)
	return b
}

func (b *backstage) voucher(t testing.TB, stock int64) model.Voucher {
	t.Helper()
	id := check.Value(ids.New())(t)
	v := check.Value(b.vouchers.Create(t.Context(), id, model.VoucherFields{
		Title: "x", Price: 1, Stock: stock, State: model.VoucherPublished, BeginAt: time.Now().Add(-time.Hour),
		EndAt: time.Now().Add(time.Hour),
	}, "", model.Idempotency{}))(t)
	check.Must(t, b.Rebuilder.Do(t.Context(), id, model.AnyEpoch))
	return v
}

func admissions(voucherID string, first, last int) []model.ReserveRequest {
	var asked []model.ReserveRequest
	for i := first; i < last; i++ {
		asked = append(asked, model.ReserveRequest{
			OrderID: model.OrderID(fmt.Sprintf("o%07d", i), voucherID), VoucherID: voucherID,
			UserID: fmt.Sprint("user", i),
		})
	}
	return asked
}

func (b *backstage) buy(t *testing.T, voucherID string, first, last int) {
	t.Helper()
	for at := first; at < last; at += 500 {
		admitted := check.Value(b.hot.Reserve(t.Context(), admissions(voucherID, at, min(at+500, last))))(t)
		reserved := make([]model.Reservation, len(admitted))
		for i, a := range admitted {
			check.Must(t, a.Err)
			reserved[i] = a.Reservation
		}
		check.Must(t, b.queue.Publish(t.Context(), reserved))
	}
}

func (b *backstage) quiet(t *testing.T, voucherID string) func() bool {
	return func() bool {
		copies, err := b.hot.Read(t.Context(), []string{voucherID})
		backlog, failed := b.queue.Backlog(t.Context())
		hot := copies[voucherID]
		return err == nil && failed == nil && hot.State == model.CopyOpen && hot.Reserved == 0 && backlog.Messages == 0
	}
}

func (b *backstage) balanced(t *testing.T, voucherID string, orders int64) {
	t.Helper()
	audit := check.Value(b.Auditor.Audit(t.Context(), voucherID))(t)
	if !audit.Balanced || len(audit.Drift) != 0 || audit.Database.LiveOrders != orders || audit.Redis.Buyers != orders {
		t.Errorf("want %d orders: %+v, %+v, %+v", orders, audit, audit.Redis, audit.Queue)
	}
}

// A Redis that has lost everything is loaded again by itself: it knows who has an order, and sells the rest.
func TestRedisThatLostEverythingSellsOn(t *testing.T) {
	t.Parallel()
	buyers := check.Count(t, "BUYERS", 600, 20_000)
	b := newBackstage(t, testserver.Redis(t).URL())
	v := b.voucher(t, int64(buyers)+10)
	b.buy(t, v.ID, 0, buyers)
	check.Patiently(t, "everything is persisted", b.quiet(t, v.ID))
	b.balanced(t, v.ID, int64(buyers))

	check.Must(t, b.redis.FlushAll(t.Context()).Err())
	check.Patiently(t, "the sale is open again", func() bool {
		copies, err := b.hot.Read(t.Context(), []string{v.ID})
		return err == nil && copies[v.ID].State == model.CopyOpen
	})
	again := admissions(v.ID, 7, 8)
	again[0].OrderID = model.OrderID("second", v.ID)
	answers := check.Value(b.hot.Reserve(t.Context(), again))(t)
	check.Equal(t, "the answer to a buyer", model.CodeOf(answers[0].Err), model.CodeAlreadyOrdered)
	b.buy(t, v.ID, buyers, buyers+10)
	check.Patiently(t, "the rest is sold", b.quiet(t, v.ID))
	b.balanced(t, v.ID, int64(buyers)+10)
}

// An heir has an order and is promised no other, also when its copy lags and a cancellation returns a unit.
func TestAnHeirIsPromisedNoSecondOrder(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(t *testing.T, b *backstage, first model.Order){
		"of an order that expired": func(t *testing.T, b *backstage, first model.Order) {
			check.Equal(t, "orders that expired", len(check.Value(b.orders.Expire(t.Context(), []string{first.ID}))(t)),
				1)
		},
		"of a stock that grew": func(t *testing.T, b *backstage, first model.Order) {
			check.Value(b.vouchers.ChangeStock(t.Context(), first.VoucherID, model.StockChange{Delta: new(int64(1))},
				model.Idempotency{}))(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBackstage(t, testserver.SharedRedis(t))
			id := check.Value(ids.New())(t)
			check.Value(b.vouchers.Create(t.Context(), id, model.VoucherFields{
				Title: "x", Price: 1, Stock: 2, State: model.VoucherPublished, BeginAt: time.Now().Add(-time.Hour),
				EndAt:    time.Now().Add(time.Hour),
				Waitlist: true, PaymentWindow: model.Window(time.Nanosecond),
			}, "", model.Idempotency{}))(t)
			check.Must(t, b.Rebuilder.Do(t.Context(), id, model.AnyEpoch))
			first, second := b.sold(t, id, "first"), b.sold(t, id, "second")
			check.Must(t, check.Value(b.orders.Join(t.Context(), id, []model.Joining{{UserID: "heir"}}))(t)[0].Err)
			serve(t, b, first)

			canceled := check.Value(b.orders.Cancel(t.Context(),
				[]model.Cancellation{{OrderID: second.ID, UserID: "second"}}))(t)[0]
			check.Must(t, canceled.Err)
			check.That(t, check.Value(b.hot.ReleaseAll(t.Context(), id, canceled.Releases))(t),
				"the unit does not come back without the database")
			got := b.admit(t, id, "heir")
			latest := check.Value(b.epochs.Latest(t.Context(), []string{id}))(t)[id]
			check.That(t, got.Err != nil || got.Epoch != latest, "the heir was promised order %s by epoch %d of %d",
				got.ID, got.Epoch, latest)

			check.Must(t, b.Rebuilder.Do(t.Context(), id, 0))
			check.Must(t, b.Relay(t.Context(), id))
			check.Equal(t, "what the heir hears then", model.CodeOf(b.admit(t, id, "heir").Err),
				model.CodeAlreadyOrdered)
			b.sold(t, id, "other")
			v := check.Value(b.vouchers.Get(t.Context(), id))(t)
			check.Equal(t, "what remains", v.Remaining, 0)
			b.balanced(t, id, v.Stock)
		})
	}
}

func (b *backstage) admit(t *testing.T, voucherID, userID string) model.ReserveResult {
	t.Helper()
	order := model.OrderID(check.Value(ids.New())(t), voucherID)
	return check.Value(b.hot.Reserve(t.Context(),
		[]model.ReserveRequest{{OrderID: order, VoucherID: voucherID, UserID: userID}}))(t)[0]
}

// sold is an order that the hot copy has admitted and knows of.
func (b *backstage) sold(t *testing.T, voucherID, userID string) model.Order {
	t.Helper()
	admitted := b.admit(t, voucherID, userID)
	check.Must(t, admitted.Err)
	persisted := check.Value(b.orders.Persist(t.Context(), []model.Reservation{admitted.Reservation}))(t)[0]
	check.Must(t, persisted.Err)
	check.Must(t, b.hot.Settle(t.Context(), []model.Order{persisted.Order}))
	return persisted.Order
}
