package hotcopy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/ratelimit"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

func TestReleaseIsTheInverseOfReserve(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		s.buy("eve")
		was, before := s.content(), s.read()
		a := s.admission("bob")
		r := s.admit(a).Reservation
		s.release(r)
		check.Equal(t, "the copy", s.content(), was)
		if after := s.read(); after.Voucher.Version == before.Voucher.Version {
			t.Error("the version is as it was before")
		}
		s.release(r)
		check.Is(t, "the answer", s.admit(a).Err, model.ErrOrderClosed)
		again := s.buy("bob")
		s.release(r) // another order of the same user
		if is, _, err := s.copies.OrderOf(t.Context(), s.v.ID, "bob"); err != nil || is != again.ID {
			t.Errorf("bob has order %q, %v; want %s", is, err, again.ID)
		}
		s.wants(model.CopyOpen, 8, 2, 2)
	})
}

// However many units come back at once, each is given back once: a mark that is another order of the same user stays.
func TestReleaseOfManyOrders(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		const many = 7
		var back []model.Release
		for i := range many {
			r := s.buy(fmt.Sprint("user", i))
			if i%2 == 0 {
				check.Must(t, s.copies.Settle(t.Context(), []model.Order{r.Order}))
			}
			back = append(back, releaseOf(r))
		}
		s.wants(model.CopyOpen, 10-many, many/2, many)
		back = append(back, model.Release{OrderID: "older." + s.v.ID, VoucherID: s.v.ID, UserID: "user0"})
		if applied, err := s.copies.ReleaseAll(t.Context(), s.v.ID, back[1:]); !applied || err != nil {
			t.Errorf("applied %v, %v", applied, err)
		}
		s.wants(model.CopyOpen, 9, 0, 1)
		again := s.buy("user1")
		for range 2 {
			if applied, err := s.copies.ReleaseAll(t.Context(), s.v.ID, back); !applied || err != nil {
				t.Errorf("again: applied %v, %v", applied, err)
			}
			if is, _, err := s.copies.OrderOf(t.Context(), s.v.ID, "user1"); err != nil || is != again.ID {
				t.Errorf("user1 has order %q, %v; want %s", is, err, again.ID)
			}
		}
		s.wants(model.CopyOpen, 9, 1, 1)
		check.Must(t, s.copies.Settle(t.Context(), []model.Order{{VoucherID: s.v.ID}})) // names the sentinel
		s.wants(model.CopyOpen, 9, 1, 1)
		if _, err := s.copies.ReleaseAll(t.Context(), s.v.ID, append(back, model.Release{})); err == nil {
			t.Error("released nothing of nobody")
		}
	})
}

func TestReleaseMeetsAClosedCopyLater(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		r, ctx := s.buy("bob"), t.Context()
		was := s.content()
		later := func(when string) {
			t.Helper()
			applied, err := s.copies.Release(ctx, releaseOf(r))
			check.That(t, !applied && err == nil, "%s: applied %v, %v", when, applied, err)
			check.Must(t, s.copies.Settle(ctx, []model.Order{r.Order}))
			check.Equal(t, when+": the copy", s.content(), was)
		}
		check.Must(t, s.copies.Close(ctx, s.record(2, 1)))
		later("closed")
		check.Must(t, s.copies.Load(ctx, s.record(2, 0), nil, nil))
		check.Must(t, s.copies.Load(ctx, s.record(2, 0), nil, []model.Reservation{r}))
		later("being loaded")
		check.Must(t, s.copies.Open(ctx, s.record(2, 1), s.v, 0))
		s.epoch = 2
		s.release(r)
		s.wants(model.CopyOpen, 10, 0, 0)
	})
}

func TestDueByRedisClockAndTouch(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		first, second := s.buy("bob"), s.buy("eve")
		due := func(olderThan time.Duration, limit int) (ids []string) {
			t.Helper()
			all := check.Value(s.copies.Due(ctx, s.v.ID, olderThan, limit))(t)
			for _, r := range all {
				ids = append(ids, r.ID)
			}
			return ids
		}
		if got := due(0, 10); len(got) != 2 {
			t.Errorf("due %v", got)
		}
		if got := due(time.Minute, 10); len(got) != 0 {
			t.Errorf("due after a minute: %v", got)
		}
		for _, id := range []string{first.ID, second.ID} {
			s.age(id)
		}
		if got := due(time.Minute, 1); len(got) != 1 {
			t.Errorf("due, at most one: %v", got)
		}
		settled := s.buy("zoe")
		check.Must(t, s.copies.Settle(ctx, []model.Order{settled.Order}))
		published := first
		published.Epoch = 5
		check.Must(t, s.copies.Touch(ctx, []model.Reservation{published, settled}))
		if got := due(time.Minute, 10); !slices.Equal(got, []string{second.ID}) {
			t.Errorf("due after one was published again: %v, want %s", got, second.ID)
		}
		// What was settled meanwhile is not noted again: it would stand before others for ever.
		check.Equal(t, "noted orders", len(due(0, 10)), 2)
		// A rebuild may have given the entry another epoch since it was read.
		pending, _, err := s.copies.Pending(ctx, first.ID)
		check.That(t, err == nil && pending == first, "pending %+v, %v; want %+v", pending, err, first)
		s.wants(model.CopyOpen, 7, 2, 3)
	})
}

func TestWatchTellsWhatIsSettled(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		told := listen(t, func(ctx context.Context, told func(string), ready func()) {
			s.copies.Watch(ctx, func(ids []string) {
				for _, id := range ids {
					told(id)
				}
			}, ready)
		})
		var orders []model.Order
		for i := range 250 {
			orders = append(orders, model.Order{ID: fmt.Sprintf("%d.%s", i, s.v.ID), VoucherID: s.v.ID})
		}
		check.Must(t, s.copies.Settle(t.Context(), orders))
		told.await(t, orders[0].ID)
		told.await(t, orders[249].ID)
		r := s.buy("bob")
		s.release(r)
		told.await(t, r.ID)
		s.shut()
		for _, voucher := range []string{s.v.ID, "missing" + s.v.ID} { // closed, and not there
			check.Must(t, s.copies.Settle(t.Context(), []model.Order{{ID: "x." + voucher, VoucherID: voucher}}))
			told.await(t, "x."+voucher)
		}
	})
}

func (s *sale) marks() map[string]string {
	s.t.Helper()
	found := map[string]string{}
	check.Must(s.t, s.copies.Marks(s.t.Context(), s.v.ID, s.epoch, func(user, order string) error {
		found[user] = order
		return nil
	}))
	return found
}

// Only the outbox gives a waitlist's units back, in order: one with an heir is never free.
func TestAUnitChangesHands(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		s.v.Waitlist, s.v.Cooldown, s.v.Stock = true, model.Window(time.Minute), 2
		s.rebuild(2, 1, nil, nil)
		ann, bob := s.buy("ann"), s.buy("bob")
		check.Must(t, s.copies.Settle(t.Context(), []model.Order{ann.Order, bob.Order}))
		row := func(id int64, order, user, heir, heirUser string) model.Release {
			return model.Release{
				ID: id, OrderID: order, VoucherID: s.v.ID, UserID: user, HeirID: heir,
				HeirUserID: heirUser,
			}
		}
		gives := func(want bool, marked map[string]string, rows ...model.Release) {
			t.Helper()
			applied := check.Value(s.copies.ReleaseAll(t.Context(), s.v.ID, rows))(t)
			got := s.marks()
			check.That(t, applied == want && maps.Equal(got, marked), "applied %v, and the marks are %v, want %v",
				applied, got, marked)
			check.Equal(t, "what remains", s.read().Voucher.Remaining, int64(2-len(marked)))
		}
		before := s.read().Voucher.Version
		tells := func(want error, marked map[string]string, told model.Release, before ...model.Release) {
			t.Helper()
			told.ID, told.Direct = 0, true
			check.Is(t, "what is told", check.ErrorOf(s.copies.ReleaseAll(t.Context(), s.v.ID, append(before, told))),
				want)
			got := s.marks()
			check.That(t, maps.Equal(got, marked), "the marks are %v, want %v", got, marked)
		}
		unsold := map[string]string{"ann": ann.ID, "bob": bob.ID}
		check.Is(t, "one of which it is not known who got the unit",
			check.ErrorOf(s.copies.Release(t.Context(), releaseOf(ann))), model.ErrNeedsOutbox)
		first, second := row(1, ann.ID, "ann", "h1", "carl"), row(2, "h1", "carl", "h2", "ann")
		tells(model.ErrNeedsOutbox, unsold, second) // the first one comes before
		tells(model.ErrNeedsOutbox, unsold, second, releaseOf(ann))
		tells(nil, map[string]string{"carl": "h1", "bob": bob.ID}, first)
		tells(model.ErrNeedsOutbox, map[string]string{"carl": "h1", "bob": bob.ID}, first)
		tells(nil, map[string]string{"ann": "h2", "bob": bob.ID}, second, first)
		for range 2 {
			gives(true, map[string]string{"ann": "h2", "bob": bob.ID}, first, second)
		}
		check.That(t, s.read().Voucher.Version != before,
			"the version is as it was, and instances do not learn who has an order")
		check.Is(t, "a late admission", s.admit(model.ReserveRequest{
			OrderID: ann.ID, VoucherID: s.v.ID,
			UserID: "ann",
		}).Err, model.ErrOrderClosed)

		// An earlier row has to take ann's mark away first.
		third, fourth := row(4, bob.ID, "bob", "h3", "ann"), row(3, "h2", "ann", "h4", "dora")
		third.CooldownUntil = new(time.Now().Add(time.Hour))
		gives(false, map[string]string{"ann": "h2", "bob": bob.ID}, third)
		gives(true, map[string]string{"ann": "h3", "dora": "h4"}, fourth, third)
		wantCode(t, s.admit(s.admission("bob")).Err, model.CodeCoolingDown)
		more := s.v
		more.Stock, more.Revision = 3, s.v.Revision+1
		_, err := s.copies.Apply(t.Context(), more)
		outgrown, ok := errors.AsType[*model.OutgrownError](err)
		check.That(t, ok && outgrown.Epoch == s.epoch, "a sold-out copy grows: %v", err)
		gives(true, map[string]string{"ann": "h3"}, row(5, "h4", "dora", "", ""))
		check.That(t, check.Value(s.copies.Apply(t.Context(), more))(t), "a copy with units left does not grow")
		check.Equal(t, "what remains", s.read().Voucher.Remaining, 2)
	})
}

func hourly(t *testing.T, events, used int64) ratelimit.Ask {
	t.Helper()
	emission := time.Hour / time.Duration(events)
	return ratelimit.Ask{Key: newID(t), Emission: emission, Capacity: emission * time.Duration(events), Used: used}
}

func takeOne(t *testing.T, limits *hotcopy.Limits, ask ratelimit.Ask) ratelimit.Verdict {
	t.Helper()
	verdicts := check.Value(limits.Take(t.Context(), []ratelimit.Ask{ask}))(t)
	return verdicts[0]
}

func TestLimitIsExact(t *testing.T) {
	t.Parallel()
	url := testserver.SharedRedis(t)
	clients := []*hotcopy.Limits{hotcopy.NewLimits(openRedis(t, url)), hotcopy.NewLimits(openRedis(t, url))}
	ask := hourly(t, 7, 0)
	var allowed atomic.Int64
	check.Volley(40, func(i int) {
		if takeOne(t, clients[i%2], ask).Wait == 0 {
			allowed.Add(1)
		}
	})
	n := allowed.Load()
	check.That(t, n == 7, "%d are allowed of 7 an hour", n)
	last := takeOne(t, clients[0], ask)
	check.That(t, last.Wait >= ask.Emission-time.Minute && last.Wait <= ask.Emission && last.Left == 0,
		"then %+v, with one every %s", last, ask.Emission)
}

// What was used before counts, is forgiven beyond the quota, and all is forgotten once the quota is whole again.
func TestLimitCountsWhatWasUsedBefore(t *testing.T) {
	t.Parallel()
	client := openRedis(t, testserver.SharedRedis(t))
	limits := hotcopy.NewLimits(client)
	ask := hourly(t, 10, 5)
	if v := takeOne(t, limits, ask); v.Wait != 0 || v.Left != 4 {
		t.Errorf("after five of ten: %+v", v)
	}
	ask.Used = 1000
	if v := takeOne(t, limits, ask); v.Wait <= 0 || v.Wait > ask.Emission || v.Left != 0 {
		t.Errorf("after a thousand: %+v", v)
	}
	ttl := client.PTTL(t.Context(), "seckill:v1:limit:"+ask.Key).Val()
	check.That(t, ttl >= time.Hour-time.Minute && ttl <= time.Hour+time.Second,
		"a full quota of an hour is kept for %s", ttl)
}

// Many senders share a call, and a Redis that has forgotten the script is told again.
func TestLimitsShareACall(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	client := openRedis(t, server.URL())
	limits := hotcopy.NewLimits(client)
	one, two := hourly(t, 1, 0), hourly(t, 2, 0)
	for round, want := range [][3]bool{{true, true, true}, {false, false, false}} {
		check.Must(t, client.ScriptFlush(t.Context()).Err())
		verdicts := check.Value(limits.Take(t.Context(), []ratelimit.Ask{one, two, two}))(t)
		for i, v := range verdicts {
			check.That(t, (v.Wait == 0) == want[i], "round %d, ask %d: %+v", round, i, v)
		}
	}
	server.Kill()
	if _, err := limits.Take(t.Context(), []ratelimit.Ask{one}); err == nil {
		t.Error("a Redis that is away has answered")
	}
}

// A request that was given up, or a stop, does not keep the news of what it had committed back.
func TestNewsOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	url := testserver.SharedRedis(t)
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()

	t.Run("of a voucher", func(t *testing.T) {
		t.Parallel()
		changes, id := hotcopy.NewVoucherChanges(openRedis(t, url)), newID(t)
		told := listen(t, func(ctx context.Context, told func(string), ready func()) {
			changes.Watch(ctx, told, func(returned string) { told("a unit of " + returned) }, ready, func() {})
		})
		check.Must(t, changes.Announce(gone, id))
		told.await(t, id)
		check.Must(t, changes.AnnounceReturn(gone, id))
		told.await(t, "a unit of "+id)
	})
	t.Run("of a limit", func(t *testing.T) {
		t.Parallel()
		limits, deployment := hotcopy.NewLimits(openRedis(t, url)), newID(t)
		told := listen(t, limits.Watch)
		check.Must(t, limits.Announce(gone, deployment))
		told.await(t, deployment)
	})
}

// An instance knows at once that it hears nothing, whether the server is dead or only silent, and that it hears again.
func TestDeafInstancesKnow(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*testserver.Server) (back func()){
		"dead":   func(s *testserver.Server) func() { s.Kill(); return s.Start },
		"silent": func(s *testserver.Server) func() { s.Pause(); return s.Resume },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			client := openRedis(t, server.URL())
			changes, id := hotcopy.NewVoucherChanges(client), newID(t)
			deaf := make(chan struct{}, 1000)
			told := listen(t, func(ctx context.Context, told func(string), ready func()) {
				heard := func() { told("again"); ready() }
				changes.Watch(ctx, told, told, heard, func() { deaf <- struct{}{} })
			})
			told.await(t, "again")
			<-deaf // before it was subscribed
			check.Eventually(t, "it has asked three times, where nothing was to be heard", func() bool {
				_, calls, _ := strings.Cut(client.Info(t.Context(), "commandstats").Val(), "cmdstat_ping:calls=")
				return calls >= "3"
			})
			check.Equal(t, "times it was deaf, though the server has answered", len(deaf), 0)
			back := away(server)
			check.Receive(t, "that nothing is heard", deaf)
			back()
			told.await(t, "again")
			check.Must(t, changes.Announce(t.Context(), id))
			told.await(t, id)
		})
	}
}

func TestCopiesTellOfReturnedUnits(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		changes := hotcopy.NewVoucherChanges(s.client)
		told := listen(t, func(ctx context.Context, told func(string), ready func()) {
			changes.Watch(ctx, func(string) {}, told, ready, func() {})
		})
		var last model.Reservation
		for n := range s.v.Stock {
			last = s.buy(fmt.Sprint("user", n))
		}
		s.release(last)
		told.await(t, s.v.ID)
		s.release(s.buy("bob"))
		told.await(t, s.v.ID)
		s.rebuild(s.epoch+1, s.epoch, nil, nil)
		told.await(t, s.v.ID)
		s.release(s.buy("carol")) // of units that are left, nobody has to be told
		end := newID(t)
		check.Must(t, changes.AnnounceReturn(t.Context(), end))
		for news := ""; news != end; {
			if news = check.Receive(t, "the end", told); news == s.v.ID {
				t.Error("told of a unit though units were left")
			}
		}
	})
}

type news chan string

func listen(t *testing.T, watch func(ctx context.Context, told func(string), ready func())) news {
	t.Helper()
	told, ready := make(news, 1000), make(chan struct{}, 10)
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { watch(ctx, func(message string) { told <- message }, func() { ready <- struct{}{} }) })
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	<-ready
	return told
}

// await passes over what other tests announce.
func (n news) await(t *testing.T, message string) {
	t.Helper()
	for check.Receive(t, "news of "+message, n) != message {
		continue
	}
}
