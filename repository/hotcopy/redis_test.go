package hotcopy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
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
	_, _, err := s.copies.Pending(ctx, r.ID, r.UserID)
	wantErr(s.t, err, model.ErrCopyClosed)
	_, _, err = s.copies.OrderOf(ctx, s.v.ID, r.UserID)
	wantErr(s.t, err, model.ErrCopyClosed)
	wantErr(s.t, check.ErrorOf(s.copies.Due(ctx, s.v.ID, 0, 1)), model.ErrCopyClosed)
	wantErr(s.t, s.copies.Buyers(ctx, s.v.ID, func(string) error { return nil }), model.ErrCopyClosed)
	wantErr(s.t, s.copies.Lower(ctx, s.v.ID, 5, 9), model.ErrCopyClosed)
	if applied, err := s.copies.Apply(ctx, s.v); applied || err != nil {
		s.t.Errorf("applied %v, %v", applied, err)
	}
}

func TestRedisRestartedIsAnotherServer(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t, "--appendfsync", "always") // else a write waits for a flush that is under way, for up to 2 s
	r := s.buy("bob")
	server.Kill()
	server.Start()
	if s.content() == "" || s.client.HLen(t.Context(), s.key("buyers")).Val() != 2 {
		t.Fatal("the append-only file is not there")
	}
	s.closedNow(r)
	// What it has can still be carried to a new epoch.
	var kept []model.Reservation
	check.Must(t, s.copies.Pendings(t.Context(), s.v.ID, 1, s.shards, func(r model.Reservation) error { kept = append(kept, r); return nil }))
	s.rebuild(2, 1, nil, kept)
	s.wants(model.CopyOpen, 9, 1, 1)
}

func TestRedisRestartedWithAnOldCopy(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t, "--appendonly", "no")
	s.buy("zoe")
	check.Must(t, s.client.Save(t.Context()).Err())
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
	check.Must(t, s.load(2, 1, live, nil))
	server.Kill()
	server.Start()
	wantErr(t, s.copies.Load(t.Context(), s.record(2, 0), nil, nil), model.ErrSuperseded)
	wantErr(t, s.copies.Load(t.Context(), s.record(2, 0), live, nil), model.ErrSuperseded)
	wantErr(t, s.copies.Open(t.Context(), s.record(2, 1), s.v, 0), model.ErrSuperseded)
	s.rebuild(3, 1, live, nil)
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
	check.Volley(16, func(i int) {
		for n := range 20 {
			r := s.buy(user(100*i + n))
			check.Must(t, s.copies.Settle(t.Context(), s.v.ID, []model.Order{r.Order}))
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
	check.Must(t, s.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	wantUndone(t, check.ErrorOf(s.copies.Reserve(t.Context(), []model.ReserveRequest{s.admission("eve")})))
	check.Equal(t, "the copy", s.content(), was)
	// What gives back works.
	check.Must(t, s.copies.Settle(t.Context(), s.v.ID, []model.Order{kept.Order}))
	s.release(r)
	s.wants(model.CopyOpen, 9, 0, 1)
	// And so does what makes room.
	s.shut()
	check.Must(t, s.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	s.rebuild(3, 1, nil, nil)
	s.buy("eve")
}

func TestRedisThatIsAReplicaNow(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t)
	check.Must(t, s.client.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	wantUndone(t, check.ErrorOf(s.copies.Reserve(t.Context(), []model.ReserveRequest{s.admission("eve")})))
}

// A login that Redis refuses, and a permission that the account lacks, are no bugs.
func TestRedisThatLetsNobodyWorkIsNotAvailable(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t)
	check.Must(t, s.client.Do(t.Context(), "acl", "setuser", "shop", "on", ">right", "~*", "&*", "+@all", "-@write").Err())
	for _, password := range []string{"right", "wrong"} {
		client := openRedis(t, "redis://shop:"+password+"@"+server.Addr()+"/0")
		wantUndone(t, check.ErrorOf(hotcopy.New(client, hotcopy.Options{}).Reserve(t.Context(), []model.ReserveRequest{s.admission("eve")})))
	}
}

func TestRedisGoneFailsFastAndSaysThatNothingWasDone(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t)
	server.Kill()
	fresh := hotcopy.New(openRedis(t, server.URL()), hotcopy.Options{}) // with no connection to break
	testserver.Within(t, 2*time.Second, func(ctx context.Context) {
		wantUndone(t, check.ErrorOf(fresh.Reserve(ctx, []model.ReserveRequest{s.admission("eve")})))
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, check.ErrorOf(s.copies.Reserve(ended, []model.ReserveRequest{s.admission("eve")})), model.CodeUnavailable)
	wantCode(t, check.ErrorOf(s.copies.Read(t.Context(), []string{s.v.ID})), model.CodeUnavailable)
	bobs := model.Release{OrderID: "x." + s.v.ID, VoucherID: s.v.ID, UserID: "bob"}
	wantCode(t, check.ErrorOf(s.copies.Release(t.Context(), bobs)), model.CodeUnavailable)
	wantCode(t, s.copies.Settle(t.Context(), s.v.ID, []model.Order{{ID: "x." + s.v.ID}}), model.CodeUnavailable)
}

// An error that Redis, or a proxy before it, has never given before says nothing
// about the orders: a call that changes something does not know whether it was done.
func TestAnErrorOfRedisThatIsNotKnownMeansLater(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t)
	client := openRedis(t, server.URL())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	client.AddHook(novelErrors{answered: func() {
		if calls++; calls == 2 { // it was asked again
			cancel()
		}
	}})
	copies := hotcopy.New(client, hotcopy.Options{})
	_, err := copies.Reserve(ctx, []model.ReserveRequest{s.admission("eve")})
	if wantCode(t, err, model.CodeUnavailable); !errors.Is(err, model.ErrUnknownOutcome) {
		t.Errorf("the unit is taken, and the error is %v", err)
	}
	wantCode(t, check.ErrorOf(copies.Read(t.Context(), []string{s.v.ID})), model.CodeUnavailable)
}

// novelErrors lets Redis work and replaces its replies.
type novelErrors struct {
	redis.Hook

	answered func()
}

// DialHook implements redis.Hook.
func (novelErrors) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (novelErrors) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (n novelErrors) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		n.answered()
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
	check.Must(t, s.client.Del(t.Context(), s.head()).Err())
	check.Must(t, s.client.Set(t.Context(), s.head(), "text", 0).Err())
	_, err := s.copies.Reserve(t.Context(), []model.ReserveRequest{s.admission("eve")})
	wantCode(t, err, model.CodeInternal)
	if !strings.Contains(err.Error(), s.v.ID) || !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("error %v", err)
	}
	// The other vouchers of the same call are answered.
	broken := s.admission("eve")
	s.v = voucherOf(newID(t), 10)
	s.rebuild(1, 0, nil, nil)
	answers := check.Value(s.copies.Reserve(t.Context(), []model.ReserveRequest{broken, s.admission("eve")}))(t)
	if answers[0].Err == nil || answers[0].ID != broken.OrderID || answers[1].Err != nil {
		t.Errorf("answers %+v", answers)
	}
}

// lineSale is a sale that reaches the shared Redis through a line.
func lineSale(t *testing.T) (*sale, *testserver.Line) {
	t.Helper()
	s := newSale(t, testserver.SharedRedis(t), hotcopy.Options{}, 10)
	// The server must have the script: else it answers NOSCRIPT, and when that is
	// lost nothing was carried out.
	s.release(s.buy("first"))
	line := testserver.NewLine(t, strings.TrimSuffix(strings.TrimPrefix(testserver.SharedRedis(t), "redis://"), "/0"))
	s.copies = hotcopy.New(openRedis(t, "redis://"+line.Addr()+"/0"), hotcopy.Options{})
	s.wants(model.CopyOpen, 10, 0, 0) // it is connected, and knows the epoch
	return s, line
}

// executed waits until an order is in the copy, seen past the line.
func (s *sale) executed(a model.ReserveRequest) {
	s.t.Helper()
	check.Eventually(s.t, "the order arrives", func() bool {
		return s.client.HGet(s.t.Context(), s.key("buyers"), a.UserID).Val() == a.OrderID
	})
}

func TestReserveIsRepeatedAfterALostReply(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	line.CutReplies()
	group := []model.ReserveRequest{s.admission("bob"), s.admission("eve"), s.admission("bob")}
	var answers []model.ReserveResult
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { answers, err = s.copies.Reserve(t.Context(), group) })
	s.executed(group[1])
	line.Heal()
	wg.Wait()
	check.Must(t, err)
	if answers[0].Err != nil || answers[1].Err != nil || answers[0].Status != model.OrderProcessing {
		t.Errorf("answers %+v", answers)
	}
	wantCode(t, answers[2].Err, model.CodeAlreadyOrdered)
	s.wants(model.CopyOpen, 8, 2, 2)
}

func TestReserveWithoutAReplyIsUnknown(t *testing.T) {
	t.Parallel()
	testserver.Undisturbed(t, 500*time.Millisecond, func() error {
		s, line := lineSale(t)
		line.CutReplies()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a := s.admission("bob")
		var answers []model.ReserveResult
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { answers, err = s.copies.Reserve(ctx, []model.ReserveRequest{a}) })
		s.executed(a)
		left := time.Now()
		cancel()
		wg.Wait()
		took := time.Since(left)
		wantErr(t, err, model.ErrUnknownOutcome)
		wantErr(t, answers[0].Err, model.ErrUnknownOutcome)
		wantCode(t, err, model.CodeUnavailable)
		line.Heal()
		check.Must(t, s.admit(a).Err)
		s.wants(model.CopyOpen, 9, 1, 1)
		if took > 700*time.Millisecond {
			return fmt.Errorf("it ended %s after its context", took)
		}
		return nil
	})
}

// Redis that went away in the middle of a call is no proof that nothing was done.
func TestReserveStaysUnknownWhenRedisGoesAway(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	client := openRedis(t, "redis://"+line.Addr()+"/0")
	refused := make(refusedCalls, 1)
	client.AddHook(refused)
	s.copies = hotcopy.New(client, hotcopy.Options{})
	s.wants(model.CopyOpen, 10, 0, 0) // it is connected, and knows the epoch
	line.CutReplies()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := s.admission("bob")
	ended := make(chan error, 1)
	go func() { ended <- check.ErrorOf(s.copies.Reserve(ctx, []model.ReserveRequest{a})) }()
	s.executed(a)
	line.Close() // connections are refused from here on
	var err error
	select {
	case <-refused:
		cancel()
		err = <-ended
	case err = <-ended: // its patience is over
	}
	wantErr(t, err, model.ErrUnknownOutcome)
}

// refusedCalls tells when a client's call was refused a connection.
type refusedCalls chan struct{}

// DialHook implements redis.Hook.
func (refusedCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (refusedCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (r refusedCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if errors.Is(err, syscall.ECONNREFUSED) {
			select {
			case r <- struct{}{}:
			default: // it was told
			}
		}
		return err
	}
}

func TestReleaseAndSettleAreRepeatedAfterALostReply(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	r := s.buy("bob")
	line.CutReplies()
	wantErr(t, check.ErrorOf(s.copies.Release(t.Context(), releaseOf(r))), model.ErrUnknownOutcome)
	wantErr(t, s.copies.Settle(t.Context(), s.v.ID, []model.Order{r.Order}), model.ErrUnknownOutcome)
	line.Heal()
	s.release(r)
	s.wants(model.CopyOpen, 10, 0, 0)
}

// A copy of a request that stayed behind somewhere arrives after its order was
// sold, canceled and given back.
func TestReserveThatArrivesLateIsRefused(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	line.Slow(200 * time.Millisecond)
	a := s.admission("bob")
	r := s.admit(a).Reservation
	check.Must(t, s.copies.Settle(t.Context(), s.v.ID, []model.Order{r.Order}))
	s.release(r)
	wantErr(t, s.admit(a).Err, model.ErrOrderClosed)
	s.wants(model.CopyOpen, 10, 0, 0)
}

// follow makes a Redis a replica of another one, and waits until it has its data.
func follow(t *testing.T, replica redis.UniversalClient, primary *testserver.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(primary.Addr())
	check.Must(t, err)
	check.Must(t, replica.Do(t.Context(), "replicaof", host, port).Err())
	check.Eventually(t, "it follows", func() bool {
		return strings.Contains(replica.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
}

func promote(t *testing.T, replica redis.UniversalClient) {
	t.Helper()
	check.Must(t, replica.Do(t.Context(), "replicaof", "no", "one").Err())
}

func runID(t *testing.T, client redis.UniversalClient) string {
	t.Helper()
	_, rest, _ := strings.Cut(client.Info(t.Context(), "server").Val(), "run_id:")
	id, _, _ := strings.Cut(rest, "\r")
	return id
}

// A primary that was demoted, got older data and was promoted again is the same
// process. Its copy is an old one all the same.
func TestAPrimaryThatWasDemotedAndPromotedHasAnOldCopy(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t, "--appendonly", "no", "--repl-diskless-sync-delay", "0")
	other := testserver.Redis(t, "--appendonly", "no", "--repl-diskless-sync-delay", "0")
	behind := openRedis(t, other.URL())
	follow(t, behind, server)
	s.rebuild(2, 1, nil, nil) // the first replica gives a primary another replication id
	check.Must(t, s.client.Do(t.Context(), "wait", 1, 10_000).Err())
	promote(t, behind) // it hears nothing of what follows
	var reserved []model.Reservation
	for i := range 10 {
		reserved = append(reserved, s.buy(user(i)))
	}
	was := runID(t, s.client)
	follow(t, s.client, other)
	promote(t, s.client)
	if is := runID(t, s.client); is != was {
		t.Fatalf("it is another process: %s, was %s", is, was)
	}
	if n := s.client.HLen(t.Context(), s.key("buyers")).Val(); n != 1 {
		t.Fatalf("%d entries: it has no older data", n)
	}
	s.closedNow(reserved[0])
	s.rebuild(3, 2, nil, reserved)
	s.wants(model.CopyOpen, 0, 10, 10)
	for i := range 10 {
		wantCode(t, s.admit(s.admission(user(i))).Err, model.CodeAlreadyOrdered)
	}
}

// memory is how many bytes Redis uses, once nothing waits to be freed in the
// background.
func (s *sale) memory() int64 {
	s.t.Helper()
	var info string
	check.Eventually(s.t, "Redis has freed its memory", func() bool {
		info = s.client.Info(s.t.Context(), "memory").Val()
		return strings.Contains(info, "lazyfree_pending_objects:0\r\n")
	})
	_, rest, _ := strings.Cut(info, "used_memory:")
	used, _, _ := strings.Cut(rest, "\r")
	n := check.Value(strconv.ParseInt(used, 10, 64))(s.t)
	return n
}

// However often a sale is rebuilt, and wherever rebuilds are given up, Redis holds
// two copies of it at the most.
func TestMemoryNeverExceedsTwoCopies(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t, "--appendonly", "no")
	const buyers, rebuilds = 20_000, 20
	s.v.Stock = buyers
	var live []model.Order
	var carried []model.Reservation
	for i := range buyers {
		order := model.Order{ID: fmt.Sprintf("0199c0de-7a11-7000-8000-%012d.%s", i, s.v.ID), UserID: fmt.Sprintf("user:%d", i), Currency: "CNY"}
		if i%4 == 0 {
			carried = append(carried, model.Reservation{Order: order, Epoch: 1})
		} else {
			live = append(live, order)
		}
	}
	before := s.memory()
	s.rebuild(2, 1, live, carried)
	one := s.memory() - before
	bound := func(when string, copies float64) {
		t.Helper()
		if used := s.memory() - before; float64(used) > (copies+0.3)*float64(one)+1<<20 {
			t.Errorf("%s: %d bytes are used, one copy takes %d", when, used, one)
		}
	}
	for range rebuilds {
		s.rebuild(s.epoch+1, s.epoch, live, carried)
		bound("rebuilt", 1)
	}
	opened := s.epoch
	for epoch := opened + 1; epoch < opened+rebuilds; epoch++ { // whose builders died
		check.Must(t, s.load(epoch, opened, live, carried))
		bound("loaded and left", 2)
	}
	for epoch := opened + rebuilds; epoch < opened+2*rebuilds; epoch++ { // opened in the database alone
		check.Must(t, s.load(epoch, epoch-1, live, carried))
		bound("loaded and opened in the database alone", 2)
	}
	last := opened + 2*rebuilds
	check.Must(t, s.load(last, last-1, live, carried))
	s.copies.Abandon(t.Context(), s.record(last, 0))
	bound("given up", 1)
	wantErr(t, s.copies.Load(t.Context(), s.record(last, 0), live, carried), model.ErrSuperseded) // one that comes late
	s.rebuild(last+1, last-1, live, carried)
	bound("rebuilt in the end", 1)
	s.wants(model.CopyOpen, 0, int64(len(carried)), buyers)
}

// What expires is freed in the background: an expiring hash of a million buyers
// would stop Redis for most of a second.
func TestExpiryStopsNobody(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t, "--appendonly", "no")
	var live []model.Order
	for i := range 20_000 {
		live = append(live, model.Order{ID: fmt.Sprint(i), UserID: user(i)})
	}
	s.rebuild(2, 1, live, nil)
	s.memory()
	check.Must(t, s.client.ConfigResetStat(t.Context()).Err())
	check.Must(t, s.client.PExpire(t.Context(), s.key("buyers"), time.Millisecond).Err())
	check.Eventually(t, "it expires", func() bool { return s.client.Exists(t.Context(), s.key("buyers")).Val() == 0 })
	s.memory()
	if info := s.client.Info(t.Context(), "memory").Val(); !strings.Contains(info, "lazyfreed_objects:1\r\n") {
		t.Errorf("it was not freed in the background: %s", info)
	}
}
