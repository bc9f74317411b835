package hotcopy

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// partedStore is a store over the Redis that tests share, with its client.
func partedStore(t *testing.T) (*Store, redis.UniversalClient) {
	t.Helper()
	client := PatientClient(t, testserver.SharedRedis(t))
	return New(client, Options{Slack: check.Deadline}), client
}

// divided is a voucher whose copy is divided again and again.
func divided(t *testing.T, stock int64) model.Voucher {
	t.Helper()
	now := time.Now()
	return model.Voucher{
		ID: check.Value(ids.New())(t), Price: 1, Currency: "CNY", Stock: stock, State: model.VoucherPublished, Revision: 1,
		BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour),
	}
}

// open opens the next copy of a voucher.
func (s *Store) opens(t *testing.T, v model.Voucher, record model.EpochRecord) {
	t.Helper()
	record.VoucherID, record.OpenEpoch = v.ID, record.Epoch-1
	check.Must(t, s.Close(t.Context(), record))
	check.Must(t, s.Load(t.Context(), record, nil, nil))
	check.Must(t, s.Open(t.Context(), record, v, 0))
}

// userOf is the n-th user of a part.
func userOf(t *testing.T, part, shards, n int) string {
	t.Helper()
	for i := range 10_000 {
		if user := fmt.Sprint("user", i); model.PartOf(user, shards) == part {
			if n == 0 {
				return user
			}
			n--
		}
	}
	t.Fatalf("no user is in part %d of %d", part, shards)
	return ""
}

// A part was empty, and before it is looked whether others have something the copy has fewer parts: there is no such part
// any more.
func TestAPartThatIsGoneIsNotRefilled(t *testing.T) {
	t.Parallel()
	s, _ := partedStore(t)
	v := divided(t, 10)
	s.opens(t, v, model.EpochRecord{Epoch: 1, Shards: 4, Spread: 4})
	s.opens(t, v, model.EpochRecord{Epoch: 2, Shards: 2, Spread: 4})
	check.Value(s.Read(t.Context(), []string{v.ID}))(t)
	r := &reserveCall{call: call{voucher: v.ID, part: 3, of: 4}, place: []int{0}}
	answers := []model.ReserveResult{{Err: model.SoldOut()}}
	soldOut := make(map[int]bool)
	open, _ := s.again(t.Context(), []*reserveCall{r}, answers, soldOut, false)
	if soldOut[0] || len(open) == 0 && !errors.Is(answers[0].Err, model.ErrCopyClosed) {
		t.Errorf("sold out %v, answered %v", soldOut[0], answers[0].Err)
	}
}

// The parts behind the last one were closed when the copy got fewer, and stay behind all later epochs. An instance that knows
// the many parts still asks them, and is not led astray.
func TestPartsThatAreGoneTeachNothing(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]model.EpochRecord{
		"closed": {Epoch: 3, Shards: 1, Spread: 2},
		// The database does not know of the many parts, as after it was restored.
		"open": {Epoch: 3, Shards: 1, Spread: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, client := partedStore(t)
			other := New(client, Options{Slack: check.Deadline})
			v := divided(t, 10)
			s.opens(t, v, model.EpochRecord{Epoch: 1, Shards: 4, Spread: 4})
			check.Value(s.Read(t.Context(), []string{v.ID}))(t)
			if name == "closed" {
				other.opens(t, v, model.EpochRecord{Epoch: 2, Shards: 2, Spread: 4})
			}
			other.opens(t, v, last)
			for range 2 {
				hot := check.Value(s.Read(t.Context(), []string{v.ID}))(t)[v.ID]
				if hot.State != model.CopyOpen || hot.Epoch != 3 || hot.Shards != 1 {
					t.Errorf("read %s, epoch %d in %d parts", hot.State, hot.Epoch, hot.Shards)
				}
			}
			user := userOf(t, 3, 4, 0)
			order := model.ReserveRequest{OrderID: model.OrderID(user, v.ID), VoucherID: v.ID, UserID: user}
			if got := check.Value(s.Reserve(t.Context(), []model.ReserveRequest{order}))(t)[0]; got.Err != nil || got.Epoch != 3 {
				t.Errorf("reserved in epoch %d: %v", got.Epoch, got.Err)
			}
		})
	}
}

// One call tells of all orders of a part whether it is open, and all parts are asked in one pipeline: it is asked with each
// group of orders that are promised.
func TestPartsAreConfirmedOnceEach(t *testing.T) {
	t.Parallel()
	s, client := partedStore(t)
	const vouchers, orders = 30, 300
	var reserved []model.Reservation
	for range vouchers {
		v := divided(t, 10)
		s.opens(t, v, model.EpochRecord{Epoch: 1, Shards: 1, Spread: 1})
		for n := range orders {
			reserved = append(reserved, model.Reservation{Order: model.Order{VoucherID: v.ID, UserID: fmt.Sprint("user", n)}, Epoch: 1})
		}
	}
	check.Value(s.Confirm(t.Context(), reserved))(t) // now it is known which epochs are open
	var calls, pipelines atomic.Int64
	client.AddHook(OnPipeline(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		pipelines.Add(1)
		calls.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}))
	for i, open := range check.Value(s.Confirm(t.Context(), reserved))(t) {
		if !open {
			t.Fatalf("order %d is not confirmed", i)
		}
	}
	check.Equal(t, "calls", calls.Load(), vouchers)
	check.Equal(t, "pipelines", pipelines.Load(), 1)
}

// meeting lets the looks at the parts of copies go on once so many of them are under way.
func meeting(look string, missing int32) OnPipeline {
	met := make(chan struct{})
	var left atomic.Int32
	left.Store(missing)
	return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if len(cmds) > 0 && fmt.Sprint(cmds[0].Args()[1]) == look {
			if left.Add(-1) == 0 {
				close(met)
			}
			select {
			case <-met:
			case <-ctx.Done():
			}
		}
		return next(ctx, cmds)
	}
}

// Where a look at all parts has to wait for one that does not answer, those at the copies of other vouchers wait beside it
// and not behind it: orders of several vouchers share a call.
func TestCopiesAreRefilledBesideEachOther(t *testing.T) {
	t.Parallel()
	s, client := partedStore(t)
	const vouchers = 8
	var asked []model.ReserveRequest
	for range vouchers {
		v := divided(t, 0)
		s.opens(t, v, model.EpochRecord{Epoch: 1, Shards: 2, Spread: 2})
		asked = append(asked, model.ReserveRequest{OrderID: model.OrderID("a", v.ID), VoucherID: v.ID, UserID: "bob"})
	}
	check.Value(s.Reserve(t.Context(), asked))(t) // now it is known how they are divided
	client.AddHook(meeting(s.scripts.balance.sha, vouchers))
	for _, answer := range check.Value(s.Reserve(check.Context(t), asked))(t) {
		if model.CodeOf(answer.Err) != model.CodeSoldOut {
			t.Errorf("voucher %s: %v", answer.VoucherID, answer.Err)
		}
	}
}
