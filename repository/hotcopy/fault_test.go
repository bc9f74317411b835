package hotcopy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// ownSale is a sale on a Redis of its own.
func ownSale(t *testing.T, args ...string) (*sale, *testserver.Server) {
	t.Helper()
	server := testserver.Redis(t, args...)
	return newSale(t, server.URL(), hotcopy.Options{}, 10), server
}

// closedNow checks that a copy answers nothing about its sale.
func (s *sale) closedNow(r model.Reservation) {
	s.t.Helper()
	ctx := s.t.Context()
	wantErr(s.t, s.admit(s.admission("eve")).Err, model.ErrCopyClosed)
	wantErr(s.t, s.admit(model.ReserveRequest{OrderID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID}).Err, model.ErrCopyClosed)
	if got := s.read(); got.State != model.CopyClosed {
		s.t.Errorf("reads %+v", got)
	}
	if ok, err := s.copies.Confirm(ctx, []model.Reservation{r}); err != nil || ok[0] {
		s.t.Errorf("confirmed %v, %v", ok, err)
	}
	if applied, err := s.copies.Release(ctx, releaseOf(r)); applied || err != nil {
		s.t.Errorf("released %v, %v", applied, err)
	}
	_, _, err := s.copies.Pending(ctx, r.ID)
	wantErr(s.t, err, model.ErrCopyClosed)
	_, _, err = s.copies.OrderOf(ctx, s.v.ID, r.UserID)
	wantErr(s.t, err, model.ErrCopyClosed)
	_, err = s.copies.Due(ctx, s.v.ID, 0, 1)
	wantErr(s.t, err, model.ErrCopyClosed)
	wantErr(s.t, s.copies.Buyers(ctx, s.v.ID, func(string) error { return nil }), model.ErrCopyClosed)
	wantErr(s.t, s.copies.Lower(ctx, s.v.ID, 5, 9), model.ErrCopyClosed)
	if applied, err := s.copies.Apply(ctx, s.v); applied || err != nil {
		s.t.Errorf("applied %v, %v", applied, err)
	}
}

func TestRedisRestartedIsAnotherServer(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t)
	r := s.buy("bob")
	server.Kill()
	server.Start()
	if s.content() == "" || s.client.HLen(t.Context(), s.key("buyers")).Val() != 2 {
		t.Fatal("the append-only file is not there")
	}
	s.closedNow(r)
	// What it has can still be carried to a new epoch.
	var kept []model.Reservation
	must(t, s.copies.Pendings(t.Context(), s.v.ID, 1, func(r model.Reservation) error { kept = append(kept, r); return nil }))
	s.rebuild(2, 1, nil, kept)
	s.wants(model.CopyOpen, 9, 1, 1)
}

func TestRedisRestartedWithAnOldCopy(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t, "--appendonly", "no")
	s.buy("zoe")
	must(t, s.client.Save(t.Context()).Err())
	r := s.buy("bob")
	server.Kill()
	server.Start()
	if got := s.client.HLen(t.Context(), s.key("buyers")).Val(); got != 2 {
		t.Fatalf("%d buyers: it is not an old copy", got)
	}
	s.closedNow(r)
	s.rebuild(2, 1, nil, []model.Reservation{r})
	s.wants(model.CopyOpen, 9, 1, 1)
}

func TestRedisRestartedDuringALoad(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t)
	live := []model.Order{s.buy("bob").Order}
	must(t, s.load(2, 1, live, nil))
	server.Kill()
	server.Start()
	wantErr(t, s.copies.Load(t.Context(), s.v.ID, 2, nil, nil), model.ErrSuperseded)
	wantErr(t, s.copies.Load(t.Context(), s.v.ID, 2, live, nil), model.ErrSuperseded)
	wantErr(t, s.copies.Open(t.Context(), s.v, 2, 0, 1), model.ErrSuperseded)
	s.rebuild(3, 1, live, nil)
	s.wants(model.CopyOpen, 9, 0, 1)
}

func TestFlushAll(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t)
	r := s.buy("bob")
	must(t, s.client.FlushAll(t.Context()).Err())
	s.closedNow(r)
	must(t, s.copies.Settle(t.Context(), s.v.ID, []string{r.ID}))
	count := 0
	must(t, s.copies.Pendings(t.Context(), s.v.ID, 1, func(model.Reservation) error { count++; return nil }))
	if count != 0 {
		t.Errorf("%d pending orders", count)
	}
	s.rebuild(2, 1, []model.Order{r.Order}, nil)
	s.wants(model.CopyOpen, 9, 0, 1)
}

func TestScriptFlushGoesUnnoticed(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t)
	s.v.Stock = 1000
	s.rebuild(2, 1, nil, nil)
	stop, flushed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(flushed)
		for {
			select {
			case <-stop:
				return
			default:
				s.client.ScriptFlush(context.Background())
			}
		}
	}()
	volley(16, func(i int) {
		for n := range 20 {
			r := s.buy(user(100*i + n))
			must(t, s.copies.Settle(t.Context(), s.v.ID, []string{r.ID}))
			if n%2 == 0 {
				s.release(r)
			}
		}
	})
	close(stop)
	<-flushed
	s.wants(model.CopyOpen, 1000-160, 0, 160)
}

func TestRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t, "--appendonly", "no")
	r, kept := s.buy("bob"), s.buy("zoe")
	was := s.content()
	must(t, s.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := s.copies.Reserve(t.Context(), []model.ReserveRequest{s.admission("eve")})
	wantCode(t, err, model.CodeUnavailable)
	if errors.Is(err, model.ErrUnknownOutcome) {
		t.Errorf("a refusal is no unknown outcome: %v", err)
	}
	if is := s.content(); is != was {
		t.Errorf("the copy was %s, is %s", was, is)
	}
	// What gives back works.
	must(t, s.copies.Settle(t.Context(), s.v.ID, []string{kept.ID}))
	s.release(r)
	s.wants(model.CopyOpen, 9, 0, 1)
	// And so does what makes room.
	s.shut()
	must(t, s.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	s.rebuild(3, 1, nil, nil)
	s.buy("eve")
}

func TestRedisThatIsAReplicaNow(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t)
	must(t, s.client.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	_, err := s.copies.Reserve(t.Context(), []model.ReserveRequest{s.admission("eve")})
	wantCode(t, err, model.CodeUnavailable)
	if errors.Is(err, model.ErrUnknownOutcome) {
		t.Errorf("a refusal is no unknown outcome: %v", err)
	}
}

// A login that Redis refuses, and a permission that the account lacks, are no bugs.
func TestRedisThatLetsNobodyWorkIsNotAvailable(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t)
	must(t, s.client.Do(t.Context(), "acl", "setuser", "shop", "on", ">right", "~*", "&*", "+@all", "-@write").Err())
	for _, password := range []string{"right", "wrong"} {
		client := openRedis(t, "redis://shop:"+password+"@"+server.Addr()+"/0")
		_, err := hotcopy.New(client, hotcopy.Options{}).Reserve(t.Context(), []model.ReserveRequest{s.admission("eve")})
		wantCode(t, err, model.CodeUnavailable)
		if errors.Is(err, model.ErrUnknownOutcome) {
			t.Errorf("a refusal is no unknown outcome: %v", err)
		}
	}
}

func TestRedisGoneFailsFastAndSaysThatNothingWasDone(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t)
	server.Kill()
	fresh := hotcopy.New(openRedis(t, server.URL()), hotcopy.Options{}) // with no connection to break
	within(t, 2*time.Second, func(ctx context.Context) {
		_, err := fresh.Reserve(ctx, []model.ReserveRequest{s.admission("eve")})
		wantCode(t, err, model.CodeUnavailable)
		if errors.Is(err, model.ErrUnknownOutcome) {
			t.Errorf("nothing was sent: %v", err)
		}
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.copies.Reserve(ended, []model.ReserveRequest{s.admission("eve")})
	wantCode(t, err, model.CodeUnavailable)
	_, err = s.copies.Read(t.Context(), []string{s.v.ID})
	wantCode(t, err, model.CodeUnavailable)
	_, err = s.copies.Release(t.Context(), model.Release{OrderID: "x." + s.v.ID, VoucherID: s.v.ID, UserID: "bob"})
	wantCode(t, err, model.CodeUnavailable)
	wantCode(t, s.copies.Settle(t.Context(), s.v.ID, []string{"x." + s.v.ID}), model.CodeUnavailable)
}

// An error that Redis, or a proxy before it, has never given before says nothing
// about the orders: whoever changes something does not know whether it was done.
func TestAnErrorOfRedisThatIsNotKnownMeansLater(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t)
	client := openRedis(t, server.URL())
	client.AddHook(novelErrors{})
	copies := hotcopy.New(client, hotcopy.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := copies.Reserve(ctx, []model.ReserveRequest{s.admission("eve")})
	if wantCode(t, err, model.CodeUnavailable); !errors.Is(err, model.ErrUnknownOutcome) {
		t.Errorf("the unit is taken, and the error is %v", err)
	}
	_, err = copies.Read(t.Context(), []string{s.v.ID})
	wantCode(t, err, model.CodeUnavailable)
}

// novelErrors lets Redis work and replaces its replies.
type novelErrors struct{ redis.Hook }

// DialHook implements redis.Hook.
func (novelErrors) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (novelErrors) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (novelErrors) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			cmd.SetErr(novelError("NOVEL trouble of the year 2030"))
		}
		return err
	}
}

type novelError string

func (e novelError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (novelError) RedisError() {}

// A key of another kind is a bug and not an outage.
func TestABugIsNoOutage(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t)
	must(t, s.client.Del(t.Context(), s.head()).Err())
	must(t, s.client.Set(t.Context(), s.head(), "text", 0).Err())
	_, err := s.copies.Reserve(t.Context(), []model.ReserveRequest{s.admission("eve")})
	wantCode(t, err, model.CodeInternal)
	if !strings.Contains(err.Error(), s.v.ID) || !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("error %v", err)
	}
	// The other vouchers of the same call are answered.
	broken := s.admission("eve")
	s.v = voucherOf(newID(t), 10)
	s.rebuild(1, 0, nil, nil)
	answers, err := s.copies.Reserve(t.Context(), []model.ReserveRequest{broken, s.admission("eve")})
	must(t, err)
	if answers[0].Err == nil || answers[0].ID != broken.OrderID || answers[1].Err != nil {
		t.Errorf("answers %+v", answers)
	}
}
