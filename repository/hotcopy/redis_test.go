package hotcopy_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

func ownSale(t *testing.T, args ...string) (*sale, *testserver.Server) {
	t.Helper()
	server := testserver.Redis(t, args...)
	return newSale(t, server.URL(), hotcopy.Options{}, 10), server
}

func (s *sale) closedNow(r model.Reservation) {
	s.t.Helper()
	ctx := s.t.Context()
	check.Is(s.t, "the answer", s.admit(s.admission("eve")).Err, model.ErrCopyClosed)
	check.Is(s.t, "the answer", s.admit(model.ReserveRequest{
		OrderID: r.ID, VoucherID: r.VoucherID,
		UserID: r.UserID,
	}).Err, model.ErrCopyClosed)
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
	check.Is(s.t, "the answer", err, model.ErrCopyClosed)
	_, _, err = s.copies.OrderOf(ctx, s.v.ID, r.UserID)
	check.Is(s.t, "the answer", err, model.ErrCopyClosed)
	check.Is(s.t, "the answer", check.ErrorOf(s.copies.Due(ctx, s.v.ID, 0, 1)), model.ErrCopyClosed)
	check.Is(s.t, "the answer", s.copies.Buyers(ctx, s.v, func(string) error { return nil }), model.ErrCopyClosed)
	check.Is(s.t, "the answer", s.copies.Lower(ctx, s.v.ID, 5, 9), model.ErrCopyClosed)
	if applied, err := s.copies.Apply(ctx, s.v); applied || err != nil {
		s.t.Errorf("applied %v, %v", applied, err)
	}
}

func (s *sale) restart(server *testserver.Server) {
	s.t.Helper()
	server.Kill()
	server.Start()
	check.Eventually(s.t, "it has loaded its data", func() bool { return s.client.Ping(s.t.Context()).Err() == nil })
}

// A Redis that was restarted with an older copy is another server. What it has can still be carried to a new epoch.
func TestRedisRestartedWithAnOldCopy(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t, "--appendonly", "no")
	zoe := s.buy("zoe")
	check.Must(t, s.client.Save(t.Context()).Err())
	r := s.buy("bob")
	s.restart(server)
	check.Equal(t, "buyers of the old copy, and the sentinel", s.client.HLen(t.Context(), s.key("buyers")).Val(), 2)
	s.closedNow(r)
	var kept []model.Reservation
	check.Must(t, s.copies.Pendings(t.Context(), s.v.ID, 1,
		func(r model.Reservation) error { kept = append(kept, r); return nil }))
	check.That(t, len(kept) == 1 && kept[0] == zoe, "kept %+v", kept)
	s.rebuild(2, 1, nil, append(kept, r))
	s.wants(model.CopyOpen, 8, 2, 2)
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
	check.Must(t, s.copies.Settle(t.Context(), []model.Order{kept.Order}))
	s.release(r)
	s.wants(model.CopyOpen, 9, 0, 1)
	// And so does what makes room.
	s.shut()
	check.Must(t, s.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	s.rebuild(3, 1, nil, nil)
	s.buy("eve")
}

func TestRedisGoneSaysThatNothingWasDone(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t)
	server.Kill()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	bobs := model.Release{OrderID: "x." + s.v.ID, VoucherID: s.v.ID, UserID: "bob"}
	calls := []func() error{
		func() error {
			fresh := another(openRedis(t, server.URL())) // with no connection to break
			err := check.ErrorOf(fresh.Reserve(t.Context(), []model.ReserveRequest{s.admission("eve")}))
			wantUndone(t, err)
			return err
		},
		func() error {
			return check.ErrorOf(s.copies.Reserve(ended, []model.ReserveRequest{s.admission("eve")}))
		},
		func() error { return check.ErrorOf(s.copies.Read(t.Context(), []string{s.v.ID})) },
		func() error { return check.ErrorOf(s.copies.Release(t.Context(), bobs)) },
		func() error {
			return s.copies.Settle(t.Context(), []model.Order{{ID: "x." + s.v.ID, VoucherID: s.v.ID}})
		},
	}
	check.Volley(len(calls), func(i int) { wantCode(t, calls[i](), model.CodeUnavailable) })
}

// An unknown error of Redis or a proxy says nothing of the orders: a changing call does not know whether it was done.
func TestAnErrorOfRedisThatIsNotKnownMeansLater(t *testing.T) {
	t.Parallel()
	s := newSale(t, testserver.SharedRedis(t), hotcopy.Options{}, 10)
	client := openRedis(t, testserver.SharedRedis(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	client.AddHook(hotcopy.OnCommands(func(ctx context.Context, cmds []redis.Cmder, next hotcopy.Next) error {
		err := next(ctx, cmds)   // Redis works, and its replies are replaced
		if calls++; calls == 2 { // it was asked again
			cancel()
		}
		for _, cmd := range cmds {
			cmd.SetErr(novelError("NOVEL trouble of the year 2030"))
		}
		return err
	}))
	copies := another(client)
	_, err := copies.Reserve(ctx, []model.ReserveRequest{s.admission("eve")})
	if wantCode(t, err, model.CodeUnavailable); !errors.Is(err, model.ErrUnknownOutcome) {
		t.Errorf("the unit is taken, and the error is %v", err)
	}
	wantCode(t, check.ErrorOf(copies.Read(t.Context(), []string{s.v.ID})), model.CodeUnavailable)
}

type novelError string

func (e novelError) Error() string { return string(e) }

func (novelError) RedisError() {}

// ruins are what may be wrong with one copy, each done to the sale given.
func ruins() map[string]func(s *sale) {
	all := map[string]func(s *sale){
		"a word for a number": func(s *sale) { check.Must(s.t, s.client.HSet(s.t.Context(), s.head(), "stock", "word").Err()) },
		"another server":      func(s *sale) { check.Must(s.t, s.client.HSet(s.t.Context(), s.head(), "server", "word").Err()) },
		"closed":              func(s *sale) { s.shut() },
	}
	for _, noun := range []string{"head", "buyers", "pending", "due", "closed"} {
		all[noun+" is missing"] = func(s *sale) { check.Must(s.t, s.client.Del(s.t.Context(), s.keyOf(noun)).Err()) }
		all[noun+" of another type"] = func(s *sale) {
			check.Must(s.t, s.client.Del(s.t.Context(), s.keyOf(noun)).Err())
			check.Must(s.t, s.client.SAdd(s.t.Context(), s.keyOf(noun), "x").Err())
		}
	}
	return all
}

// Whatever is wrong with one copy, the others answer as if alone; a step is one command, however many vouchers.
func TestOneCopyOfAGroupHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		commands := 0
		s.client.AddHook(hotcopy.OnCommands(func(ctx context.Context, cmds []redis.Cmder, next hotcopy.Next) error {
			commands += len(cmds)
			return next(ctx, cmds)
		}))
		one := func(what string) {
			t.Helper()
			check.Equal(t, "commands for "+what, commands, 1)
			commands = 0
		}
		for what, ruin := range ruins() {
			var first, second []model.ReserveRequest
			for range 3 {
				s.v = voucherOf(newID(t), 10)
				s.rebuild(1, 0, nil, nil)
				s.read() // it knows the epoch
				first, second = append(first, s.admission("bob"), s.admission("eve")),
					append(second, s.admission("zoe"))
			}
			bob := s.buy("max") // the scripts are known
			check.Must(t, check.ErrorOf(s.copies.Confirm(t.Context(), []model.Reservation{bob})))
			s.release(bob)
			commands = 0
			var orders []model.Order
			var reserved []model.Reservation
			for _, answer := range check.Value(s.copies.Reserve(t.Context(), first))(t) {
				check.Must(t, answer.Err)
				orders, reserved = append(orders, answer.Order), append(reserved, answer.Reservation)
			}
			one("a reserve")
			check.Must(t, check.ErrorOf(s.copies.Confirm(t.Context(), reserved)))
			one("a confirm")
			check.Must(t, s.copies.Settle(t.Context(), orders[:1]))

			s.v.ID = first[2].VoucherID
			ruin(s)
			commands = 0
			answers := check.Value(s.copies.Reserve(t.Context(), second))(t)
			one("a reserve upon " + what)
			check.Is(t, "the answer upon "+what, answers[1].Err, model.ErrCopyClosed)
			confirmed, _ := s.copies.Confirm(t.Context(), reserved)
			_ = s.copies.Settle(t.Context(), orders)
			for _, n := range []int{0, 2} {
				s.v.ID = second[n].VoucherID
				s.wants(model.CopyOpen, 7, 1, 3)
				if !confirmed[2*n] || !confirmed[2*n+1] || answers[n].Err != nil {
					t.Errorf("upon %s: voucher %d is confirmed %v, and answers %v", what, n, confirmed, answers[n].Err)
				}
			}
			commands = 0
		}
		var orders []model.Order
		for i := range 65 {
			orders = append(orders, model.Order{ID: fmt.Sprintf("a.v%d", i), VoucherID: fmt.Sprint("v", i)})
		}
		check.Must(t, s.copies.Settle(t.Context(), orders[1:]))
		one("a settle")
		check.Must(t, s.copies.Settle(t.Context(), orders)) // is more than holds up others for a moment
		check.Equal(t, "commands", commands, 2)
	})
}

func lineSale(t *testing.T) (*sale, *testserver.Line) {
	t.Helper()
	s := newSale(t, testserver.SharedRedis(t), hotcopy.Options{}, 10)
	// The server must have the script: else it answers NOSCRIPT, and when that is lost nothing was carried out.
	s.release(s.buy("first"))
	line := testserver.NewLine(t, strings.TrimSuffix(strings.TrimPrefix(testserver.SharedRedis(t), "redis://"), "/0"))
	s.copies = another(openRedis(t, "redis://"+line.Addr()+"/0"))
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
	check.That(t, answers[0].Err == nil && answers[1].Err == nil && answers[0].Status == model.OrderProcessing,
		"answers %+v", answers)
	wantCode(t, answers[2].Err, model.CodeAlreadyOrdered)
	s.wants(model.CopyOpen, 8, 2, 2)
}

func TestReserveWithoutAReplyIsUnknown(t *testing.T) {
	t.Parallel()
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
	cancel()
	wg.Wait() // though no reply comes
	check.Is(t, "the call", err, model.ErrUnknownOutcome)
	check.Is(t, "the order", answers[0].Err, model.ErrUnknownOutcome)
	wantCode(t, err, model.CodeUnavailable)
	line.Heal()
	check.Must(t, s.admit(a).Err)
	s.wants(model.CopyOpen, 9, 1, 1)
}

// Redis that went away in the middle of a call is no proof that nothing was done.
func TestReserveStaysUnknownWhenRedisGoesAway(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	client := openRedis(t, "redis://"+line.Addr()+"/0")
	refused := make(chan struct{}, 1)
	client.AddHook(hotcopy.OnCommands(func(ctx context.Context, cmds []redis.Cmder, next hotcopy.Next) error {
		err := next(ctx, cmds)
		if errors.Is(err, syscall.ECONNREFUSED) {
			select {
			case refused <- struct{}{}:
			default: // it was told
			}
		}
		return err
	}))
	s.copies = another(client)
	s.wants(model.CopyOpen, 10, 0, 0) // it is connected, and knows the epoch
	line.CutReplies()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := s.admission("bob")
	ended := make(chan error, 1)
	go func() { ended <- check.ErrorOf(s.copies.Reserve(ctx, []model.ReserveRequest{a})) }()
	s.executed(a)
	line.Close() // connections are refused from here on
	check.Receive(t, "a refused connection", refused)
	cancel()
	check.Is(t, "the answer", <-ended, model.ErrUnknownOutcome)
}

func TestReleaseAndSettleAreRepeatedAfterALostReply(t *testing.T) {
	t.Parallel()
	s, line := lineSale(t)
	r := s.buy("bob")
	line.CutReplies()
	check.Is(t, "the answer", check.ErrorOf(s.copies.Release(t.Context(), releaseOf(r))), model.ErrUnknownOutcome)
	check.Is(t, "the answer", s.copies.Settle(t.Context(), []model.Order{r.Order}), model.ErrUnknownOutcome)
	line.Heal()
	s.release(r)
	s.wants(model.CopyOpen, 10, 0, 0)
}

// The restarted server has all that was loaded, and maybe not the latest of what it had said. Nobody sells from it.
func TestWhatWasLoadedBeforeARestartDoesNotOpen(t *testing.T) {
	t.Parallel()
	s, server := ownSale(t, "--appendfsync", "always")
	live := []model.Order{s.buy("bob").Order}
	check.Must(t, s.load(2, 1, live, nil))
	loaded := s.client.HLen(t.Context(), s.key("buyers")).Val()
	server.Kill()
	server.Start()
	check.Equal(t, "buyers that the append-only file has", s.client.HLen(t.Context(), s.key("buyers")).Val(), loaded)
	for _, more := range [][]model.Order{nil, live} {
		check.Is(t, "loaded", s.copies.Load(t.Context(), s.record(2, 0), more, nil), model.ErrSuperseded)
	}
	check.Is(t, "opened", s.copies.Open(t.Context(), s.record(2, 1), s.v, 0), model.ErrSuperseded)
	check.Is(t, "sold", s.admit(s.admission("eve")).Err, model.ErrCopyClosed)
	if state := s.client.HGet(t.Context(), s.head(), "state").Val(); state == string(model.CopyOpen) {
		t.Error("the head says open")
	}
	s.rebuild(3, 1, live, nil)
	s.wants(model.CopyOpen, 9, 0, 1)
}

// BenchmarkHotCopyGroups measures what an order costs Redis, by the number of vouchers that its group of 64 is of. Only
// Redis' processor counts. Run make bench-go PKG=./repository/hotcopy ARGS='-bench=Groups -benchtime=1000x'.
func BenchmarkHotCopyGroups(b *testing.B) {
	const size = 64
	for _, vouchers := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("vouchers=%d", vouchers), func(b *testing.B) {
			server := testserver.Redis(b)
			s := newSale(b, server.URL(), hotcopy.Options{LockKeys: true}, model.MaxAmount)
			ids := []string{s.v.ID}
			for len(ids) < vouchers {
				s.v = voucherOf(newID(b), model.MaxAmount)
				s.rebuild(1, 0, nil, nil)
				ids = append(ids, s.v.ID)
			}
			asked, reserved := make([][]model.ReserveRequest, b.N), make([][]model.Reservation, b.N)
			for i := range asked {
				for n := range size {
					at := i*size + n
					s.v.ID = ids[at%vouchers]
					asked[i] = append(asked[i], s.admission(user(at)))
				}
			}
			step := func(name string, do func(i int)) {
				before := redisCPU(b, s)
				for i := range b.N {
					do(i)
				}
				b.ReportMetric((redisCPU(b, s)-before)*1e6/float64(b.N*size), name+"-µs/order")
			}
			b.ResetTimer()
			step("reserve", func(i int) {
				for _, answer := range check.Value(s.copies.Reserve(b.Context(), asked[i]))(b) {
					check.Must(b, answer.Err)
					reserved[i] = append(reserved[i], answer.Reservation)
				}
			})
			step("confirm", func(i int) { check.Must(b, check.ErrorOf(s.copies.Confirm(b.Context(), reserved[i]))) })
			step("settle", func(i int) {
				var orders []model.Order
				for _, r := range reserved[i] {
					orders = append(orders, r.Order)
				}
				check.Must(b, s.copies.Settle(b.Context(), orders))
			})
		})
	}
}

// redisCPU is processor time, which does not depend on what else the machine does.
func redisCPU(b *testing.B, s *sale) (seconds float64) {
	b.Helper()
	for line := range strings.SplitSeq(s.client.Info(b.Context(), "cpu").Val(), "\r\n") {
		if name, value, _ := strings.Cut(line, ":"); name == "used_cpu_user" || name == "used_cpu_sys" {
			used := check.Value(strconv.ParseFloat(value, 64))(b)
			seconds += used
		}
	}
	return seconds
}
