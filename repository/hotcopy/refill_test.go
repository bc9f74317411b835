package hotcopy

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// meeting lets the looks at the parts of copies go on once so many of them are under way.
type meeting struct {
	look string

	mu      sync.Mutex
	missing int
	met     chan struct{}
}

func (*meeting) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*meeting) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (m *meeting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 0 && fmt.Sprint(cmds[0].Args()[1]) == m.look {
			m.mu.Lock()
			if m.missing--; m.missing == 0 {
				close(m.met)
			}
			m.mu.Unlock()
			select {
			case <-m.met:
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
	client.AddHook(&meeting{look: s.scripts.balance.sha, missing: vouchers, met: make(chan struct{})})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, answer := range check.Value(s.Reserve(ctx, asked))(t) {
		if model.CodeOf(answer.Err) != model.CodeSoldOut {
			t.Errorf("voucher %s: %v", answer.VoucherID, answer.Err)
		}
	}
}

// A primary of a Cluster hangs. The client has waited for it until the time was up, but what the others have said counts: they
// are looked at and bought from, and give each other what they have.
func TestWhatOtherPrimariesSayCountsWhileOneHangs(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no")
	client := check.Value(NewClient(cluster.URL(), nil))(t)
	t.Cleanup(func() { _ = client.Close() })
	check.Must(t, Rehearse(t.Context(), client, true)) // as at a start: all of them know the scripts
	s := New(client, Options{})
	const shards, each = 16, 3
	v := divided(t, shards*each)
	s.opens(t, v, model.EpochRecord{Epoch: 1, Shards: shards, Spread: shards})
	check.Value(s.Read(t.Context(), []string{v.ID}))(t)
	hung := cluster.Owner(t, headKey(v.ID, 0))
	var healthy []int
	for part := range shards {
		if cluster.Owner(t, headKey(v.ID, part)) != hung {
			healthy = append(healthy, part)
		}
	}
	if len(healthy) < 2 {
		t.Fatalf("parts %v lie elsewhere", healthy)
	}
	cluster.Primaries[hung].Pause()
	t.Cleanup(cluster.Primaries[hung].Resume)

	ctx, cancel := context.WithTimeout(t.Context(), balancePatience)
	defer cancel()
	hot := check.Value(s.Look(ctx, []string{v.ID}))(t)[v.ID]
	if hot.State != model.CopyOpen || hot.Voucher.Remaining <= 0 {
		t.Errorf("looks %s, with %d left", hot.State, hot.Voucher.Remaining)
	}
	for n := range each + 1 { // one more than the part has
		user := userOf(t, healthy[0], shards, n)
		order := model.ReserveRequest{OrderID: model.OrderID(user, v.ID), VoucherID: v.ID, UserID: user}
		check.Must(t, check.Value(s.Reserve(t.Context(), []model.ReserveRequest{order}))(t)[0].Err)
	}
}
