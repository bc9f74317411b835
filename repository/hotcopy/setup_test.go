package hotcopy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/internal/redisdb"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

func TestMain(m *testing.M) { testserver.Main(m) }

type sale struct {
	t      testing.TB
	client redis.UniversalClient // past the copies
	copies *hotcopy.Store
	v      model.Voucher
	epoch  int64
	group  int // orders that a crowd's calls share

	identity string        // of a Redis that has none
	slack    time.Duration // of its stores
}

func overRedis(t *testing.T, test func(*testing.T, *sale)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, newSale(t, testserver.SharedRedis(t), hotcopy.Options{LockKeys: true}, 10))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		mini := miniredis.RunT(t)
		s := newSale(t, "redis://"+mini.Addr()+"/0", hotcopy.Options{LockKeys: true, Identity: "this start"}, 10)
		s.identity = "this start"
		s.group = 20 // it runs scripts a hundred times slower
		test(t, s)
	})
}

func openRedis(t testing.TB, urls string) redis.UniversalClient {
	t.Helper()
	if !strings.Contains(urls, "cluster") && !strings.Contains(urls, ",") {
		return hotcopy.PatientClient(t, urls)
	}
	client := check.Value(redisdb.NewClient(urls, nil))(t)
	t.Cleanup(func() { check.Must(t, client.Close()) })
	return client
}

func another(client redis.UniversalClient) *hotcopy.Store {
	return hotcopy.New(client, hotcopy.Options{Slack: check.Deadline})
}

func newSale(t testing.TB, url string, options hotcopy.Options, stock int64) *sale {
	t.Helper()
	client := openRedis(t, url)
	options.Slack = check.Deadline
	s := &sale{
		t: t, client: client, copies: hotcopy.New(client, options), v: voucherOf(newID(t), stock), epoch: 1,
		group: 1, slack: options.Slack,
	}
	s.rebuild(s.epoch, 0, nil, nil)
	return s
}

func voucherOf(id string, stock int64) model.Voucher {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return model.Voucher{
		ID: id, Revision: 1, VoucherFields: model.VoucherFields{
			Price: 1000, Currency: "CNY", Stock: stock, State: model.VoucherPublished, BeginAt: now.Add(-time.Hour),
			EndAt: now.Add(time.Hour),
		},
	}
}

// record is what the database says of an epoch, when opened was the latest before it.
func (s *sale) record(epoch, opened int64) model.EpochRecord {
	return model.EpochRecord{VoucherID: s.v.ID, Epoch: epoch, OpenEpoch: opened}
}

func (s *sale) rebuild(epoch, previous int64, live []model.Order, carried []model.Reservation) {
	s.t.Helper()
	check.Must(s.t, s.load(epoch, previous, live, carried))
	check.Must(s.t, s.copies.Open(s.t.Context(), s.record(epoch, previous), s.v, 0))
	s.epoch = epoch
}

func (s *sale) load(epoch, previous int64, live []model.Order, carried []model.Reservation) error {
	s.t.Helper()
	ctx := s.t.Context()
	check.Must(s.t, s.copies.Close(ctx, s.record(epoch, previous)))
	check.Must(s.t, s.copies.Load(ctx, s.record(epoch, 0), nil, nil))
	if len(live)+len(carried) == 0 {
		return nil
	}
	return s.copies.Load(ctx, s.record(epoch, 0), live, carried)
}

func (s *sale) shut() {
	s.t.Helper()
	check.Must(s.t, s.copies.Close(s.t.Context(), s.record(s.epoch+1, s.epoch)))
}

func (s *sale) admission(userID string) model.ReserveRequest {
	return model.ReserveRequest{OrderID: model.OrderID(newID(s.t), s.v.ID), VoucherID: s.v.ID, UserID: userID}
}

func (s *sale) admit(a model.ReserveRequest) model.ReserveResult {
	s.t.Helper()
	answers := check.Value(s.copies.Reserve(s.t.Context(), []model.ReserveRequest{a}))(s.t)
	return answers[0]
}

func (s *sale) crowd(all []model.ReserveRequest, yield func(model.ReserveResult)) {
	s.t.Helper()
	var mu sync.Mutex
	groups := slices.Collect(slices.Chunk(all, s.group))
	check.Volley(len(groups), func(i int) {
		answers, err := s.copies.Reserve(s.t.Context(), groups[i])
		if err != nil {
			s.t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, a := range answers {
			yield(a)
		}
	})
}

func (s *sale) buy(userID string) model.Reservation {
	s.t.Helper()
	a := s.admit(s.admission(userID))
	check.Must(s.t, a.Err)
	return a.Reservation
}

func (s *sale) release(r model.Reservation) {
	s.t.Helper()
	applied := check.Value(s.copies.Release(s.t.Context(), releaseOf(r)))(s.t)
	if !applied {
		s.t.Errorf("the release of %s was put off", r.ID)
	}
}

func releaseOf(r model.Reservation) model.Release {
	return model.Release{OrderID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID}
}

func (s *sale) read() model.HotCopy {
	s.t.Helper()
	copies := check.Value(s.copies.Read(s.t.Context(), []string{s.v.ID}))(s.t)
	return copies[s.v.ID]
}

func (s *sale) wants(state model.CopyState, remaining, reserved, buyers int64) {
	s.t.Helper()
	got := s.read()
	if got.State != state || got.Voucher.Remaining != remaining || got.Reserved != reserved || got.Buyers != buyers {
		s.t.Errorf("the copy is %s with %d left, %d reserved and %d buyers; want %s, %d, %d and %d",
			got.State, got.Voucher.Remaining, got.Reserved, got.Buyers, state, remaining, reserved, buyers)
	}
}

func (s *sale) key(noun string) string {
	return fmt.Sprintf("seckill:v1:{%s}:%d:%s", s.v.ID, s.epoch, noun)
}

func (s *sale) head() string { return fmt.Sprintf("seckill:v1:{%s}:head", s.v.ID) }

func (s *sale) lock(userID string) {
	s.t.Helper()
	key := "lock:order:" + userID
	check.Must(s.t, s.client.HSet(s.t.Context(), key, "somebody:1", 1).Err())
	s.t.Cleanup(func() { s.client.Del(context.Background(), key) })
}

// age makes an order one that was published an hour ago.
func (s *sale) age(orderID string) {
	s.t.Helper()
	at := time.Now().Add(-time.Hour)
	check.Must(s.t, s.client.ZAddXX(s.t.Context(), s.key("due"),
		redis.Z{Score: float64(at.UnixMilli()), Member: orderID}).Err())
}

// content is everything the copy's epoch holds, but for tombstones.
func (s *sale) content() string {
	s.t.Helper()
	ctx := context.Background()
	buyers := check.Value(s.client.HGetAll(ctx, s.key("buyers")).Result())(s.t)
	pending := check.Value(s.client.HGetAll(ctx, s.key("pending")).Result())(s.t)
	due := check.Value(s.client.ZRange(ctx, s.key("due"), 0, -1).Result())(s.t)
	return fmt.Sprint(buyers, pending, due)
}

func wantUndone(t testing.TB, err error) {
	t.Helper()
	wantCode(t, err, model.CodeUnavailable)
	check.That(t, !errors.Is(err, model.ErrUnknownOutcome), "a refusal is no unknown outcome: %v", err)
}

// aboutNow tells of an instant on Redis' clock that it was set, and in the right unit.
func aboutNow(at time.Time) bool {
	now := time.Now()
	return at.After(now.Add(-15*time.Minute)) && at.Before(now.Add(15*time.Minute))
}

func newID(t testing.TB) string {
	t.Helper()
	return check.Value(ids.New())(t)
}

func user(i int) string { return fmt.Sprintf("user:%04d", i) }

func wantCode(t testing.TB, err error, code model.Code) {
	t.Helper()
	check.That(t, err != nil && model.CodeOf(err) == code, "error %v, want %s", err, code)
}
