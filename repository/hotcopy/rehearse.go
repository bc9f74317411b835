package hotcopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/internal/ratelimit"
	"seckill/internal/redisdb"
	"seckill/model"
)

// rehearsal begins the names of vouchers, users and senders that are none: what is kept under them is removed again.
const rehearsal = "seckill-start-check."

// Rehearse tries everything that the service will ask of Redis, on each primary: every script, as in a small sale with
// keys of its own that are removed again. To ask Redis what its user may do (ACL DRYRUN) would itself need a right that
// no service should have. A right that is missing is redisdb.ErrRights. What cannot be tried now, because a server is
// away, is another error.
func Rehearse(ctx context.Context, client redis.UniversalClient, async bool) error {
	unique, err := ids.New()
	if err != nil {
		return fmt.Errorf("name a rehearsal: %w", err)
	}
	subscription := client.Subscribe(ctx, settledChannel, changeChannel, limitChannel)
	defer subscription.Close()
	_, err = subscription.ReceiveTimeout(ctx, callTimeout)
	failed := []error{err, client.Publish(ctx, changeChannel, rehearsal+unique).Err()}
	name := func(n int) string { return rehearsal + unique + "." + strconv.Itoa(n) }
	spots, err := redisdb.Spots(ctx, client, func(n int) string { return headKey(name(n)) })
	failed = append(failed, err)
	for _, n := range spots {
		_, err := NewLimits(client).Take(ctx, []ratelimit.Ask{{Key: "{" + name(n) + "}", Emission: time.Millisecond, Capacity: time.Second}})
		// The scripts may be known already, and are then called by their names.
		failed = append(failed, err, client.Eval(ctx, "return 1", []string{headKey(name(n))}).Err())
		if async {
			r := rehearsed{Store: New(client, Options{LockKeys: !redisdb.IsCluster(client)}), id: name(n)}
			failed = append(failed, r.sale(ctx))
		}
	}
	return redisdb.Lacking(errors.Join(failed...))
}

// rehearsed is a sale in which nobody buys.
type rehearsed struct {
	*Store

	id string
}

func (r rehearsed) sale(ctx context.Context) error {
	now := time.Now()
	v := model.Voucher{
		ID: r.id, VoucherFields: model.VoucherFields{
			Stock: 3, Price: 1, Currency: "CNY", State: model.VoucherPublished, BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour),
		},
	}
	order := func(user string) model.Order {
		return model.Order{ID: model.OrderID(user, r.id), VoucherID: r.id, UserID: user, Price: 1, Currency: "CNY", CreatedAt: now}
	}
	carried := model.Reservation{Order: order("b"), Epoch: 1}
	first := model.EpochRecord{VoucherID: r.id, Epoch: 1}
	second := model.EpochRecord{VoucherID: r.id, Epoch: 2, OpenEpoch: 1}
	defer func() {
		r.free(context.WithoutCancel(ctx), slices.Concat(epochKeys(r.id, 1), epochKeys(r.id, 2), []string{headKey(r.id)})...)
	}()
	for _, step := range []func() error{
		func() error { _, err := redisdb.Nodes(ctx, r.client); return err },
		func() error { return r.client.Get(ctx, redisdb.CanaryKey).Err() },
		func() error { return r.Close(ctx, first) },
		func() error { return r.Load(ctx, first, nil, nil) },
		func() error { return r.Load(ctx, first, []model.Order{order("a")}, []model.Reservation{carried}) },
		func() error { return r.Open(ctx, first, v, 0) },
		func() error { v.Revision++; _, err := r.Apply(ctx, v); return err },
		func() error { return r.Lower(ctx, r.id, 3, v.Revision+1) },
		func() error { return r.buy(ctx, order("c")) },
		func() error { _, err := r.Read(ctx, []string{r.id}); return err },
		func() error { _, _, err := r.OrderOf(ctx, r.id, "c"); return err },
		func() error { _, err := r.Due(ctx, r.id, 0, 1); return err },
		func() error { return r.Touch(ctx, []model.Reservation{carried}) },
		func() error { return r.EachProcessing(ctx, r.id, func(model.Order) error { return nil }) },
		func() error { return r.client.HLen(ctx, pendingKey(r.id, 1)).Err() },
		func() error { return r.client.ZCard(ctx, dueKey(r.id, 1)).Err() },
		func() error { return r.client.HLen(ctx, buyersKey(r.id, 1)).Err() },
		func() error { return r.Settle(ctx, []model.Order{carried.Order}) },
		func() error {
			_, err := r.Release(ctx, model.Release{OrderID: carried.ID, VoucherID: r.id, UserID: carried.UserID})
			return err
		},
		func() error {
			_, err := r.handOver(ctx, r.id, []model.Release{{ID: 1, OrderID: order("a").ID, VoucherID: r.id, UserID: "a", HeirID: order("e").ID, HeirUserID: "e"}})
			return err
		},
		func() error { return r.buy(ctx, order("d")) }, // what is closed is looked at only once there is something
		func() error { return r.Close(ctx, second) },
	} {
		if err := step(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}

func (r rehearsed) buy(ctx context.Context, order model.Order) error {
	results, err := r.Reserve(ctx, []model.ReserveRequest{{OrderID: order.ID, VoucherID: r.id, UserID: order.UserID}})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return err
	}
	_, err = r.Confirm(ctx, []model.Reservation{results[0].Reservation})
	return err
}
