package hotcopy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/redisdb"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

func TestProcessingOrdersArePaged(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		var want []string
		for i := range 7 {
			r := s.buy(fmt.Sprintf("user-%d", i))
			if i == 3 {
				check.Must(t, s.copies.Settle(t.Context(), []model.Order{r.Order}))
				continue
			}
			want = append(want, r.ID)
		}
		slices.Reverse(want)
		var got []string
		for q := (model.OrderQuery{VoucherID: s.v.ID, Limit: 4}); ; {
			page := check.Value(s.copies.Processing(t.Context(), q))(t)
			for _, o := range page.Items {
				got = append(got, o.ID)
				if o.Status != model.OrderProcessing || o.UserID == "" || o.Price != s.v.Price || o.CreatedAt.IsZero() {
					t.Errorf("%+v", o)
				}
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
		check.That(t, slices.Equal(got, want), "listed %v, want %v", got, want)
		got = nil
		check.Must(t, s.copies.EachProcessing(t.Context(), s.v.ID,
			func(o model.Order) error { got = append(got, o.ID); return nil }))
		check.That(t, slices.Equal(got, want), "yielded %v, want %v", got, want)
		wantCode(t, check.ErrorOf(s.copies.Processing(t.Context(),
			model.OrderQuery{VoucherID: s.v.ID, Cursor: "nonsense"})), model.CodeValidation)
		s.shut()
		check.Is(t, "the answer", check.ErrorOf(s.copies.Processing(t.Context(), model.OrderQuery{VoucherID: s.v.ID})),
			model.ErrCopyClosed)
		check.Is(t, "the answer", s.copies.EachProcessing(t.Context(), s.v.ID, nil), model.ErrCopyClosed)
	})
}

// All orders that are processing cost Redis one scan: page by page they would cost one for each page.
func TestAllProcessingOrdersAreReadOnce(t *testing.T) {
	t.Parallel()
	s := newSale(t, testserver.SharedRedis(t), hotcopy.Options{}, 10)
	const orders = 5000
	var carried []model.Reservation
	for i := range orders {
		carried = append(carried, model.Reservation{Order: model.Order{
			ID: fmt.Sprintf("%d.%s", i, s.v.ID), UserID: user(i), Currency: "CNY", CreatedAt: time.UnixMicro(int64(i)),
		}})
	}
	s.rebuild(2, 1, nil, carried)
	scans := 0
	s.client.AddHook(hotcopy.OnCommands(func(ctx context.Context, cmds []redis.Cmder, next hotcopy.Next) error {
		if cmds[0].Name() == "hscan" {
			scans++
		}
		return next(ctx, cmds)
	}))
	last := orders
	check.Must(t, s.copies.EachProcessing(t.Context(), s.v.ID, func(o model.Order) error {
		last--
		check.Equal(t, "the order that follows", int(o.CreatedAt.UnixMicro()), last)
		return nil
	}))
	check.Equal(t, "orders not seen", last, 0)
	check.That(t, scans > 0 && scans <= 3*orders/1000, "%d scans", scans)
}

// A quiet copy is in the epoch asked for, has nothing reserved, and knows as many buyers as the database.
func TestQuiet(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		quiet := func() []bool {
			return s.copies.Quiet(t.Context(), []model.EpochRecord{
				s.record(s.epoch, 0), s.record(s.epoch+1, 0), {VoucherID: newID(t), Epoch: 1},
			})
		}
		got := quiet()
		check.That(t, slices.Equal(got, []bool{true, false, false}), "%v", got)
		sold := s.record(s.epoch, 0)
		sold.Taken = 1
		check.Equal(t, "quiet, and one order is not marked", s.copies.Quiet(t.Context(), []model.EpochRecord{sold})[0],
			false)
		_, err := s.copies.Reserve(t.Context(),
			[]model.ReserveRequest{{OrderID: model.OrderID(newID(t), s.v.ID), VoucherID: s.v.ID, UserID: "u"}})
		if check.Must(t, err); quiet()[0] {
			t.Error("something is reserved")
		}
	})
}

// newCluster is a Cluster of two nodes, half of the slots each.
func newCluster(t *testing.T) (urls string, nodes []*testserver.Server) {
	t.Helper()
	var all []string
	for i := range 2 {
		node := testserver.Redis(t, "--cluster-enabled", "yes", "--appendonly", "no", "--cluster-require-full-coverage",
			"no")
		nodes, all = append(nodes, node), append(all, node.URL())
		check.Must(t, openRedis(t, node.URL()).Do(t.Context(), "cluster", "addslotsrange", i*8192, i*8192+8191).Err())
	}
	host, port, err := net.SplitHostPort(nodes[1].Addr())
	check.Must(t, err)
	check.Must(t, openRedis(t, all[0]).ClusterMeet(t.Context(), host, port).Err())
	for _, url := range all {
		client := openRedis(t, url)
		check.Eventually(t, "there is a cluster", func() bool {
			info := client.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_assigned:16384")
		})
	}
	return strings.Join(all, ","), nodes
}

func TestHotCopiesOnACluster(t *testing.T) {
	t.Parallel()
	urls, nodes := newCluster(t)
	client := openRedis(t, urls)
	copies := another(client)
	const vouchers, buyers = 10, 30 // on both nodes
	var group []model.ReserveRequest
	for n := range vouchers {
		s := &sale{t: t, client: client, copies: copies, v: voucherOf(fmt.Sprint("v", n), buyers)}
		s.rebuild(1, 0, nil, nil)
		s.rebuild(2, 1, nil, nil)
		for i := range buyers {
			group = append(group, s.admission(user(i)))
		}
	}
	identity := check.Value(redisdb.Identity(t.Context(), client))(t)
	before := check.Value(copies.Incarnation(t.Context()))(t)
	again, err := copies.Incarnation(t.Context())
	if check.Must(t, err); len(identity) != 40 || !strings.Contains(before, identity) || again != before {
		t.Errorf("%q of %q, then %q", identity, before, again)
	}
	answers := check.Value(copies.Reserve(t.Context(), group))(t)
	var reservations []model.Reservation
	for _, a := range answers {
		check.Must(t, a.Err)
		reservations = append(reservations, a.Reservation)
	}
	confirmed := check.Value(copies.Confirm(t.Context(), reservations))(t)
	for i, ok := range confirmed {
		if !ok {
			t.Errorf("%+v is not confirmed", reservations[i])
		}
	}
	check.Must(t, copies.Touch(t.Context(), reservations))

	told := make(chan string, buyers)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := make(chan struct{}, 10)
	var watching sync.WaitGroup
	watching.Go(func() { copies.Watch(ctx, func(ids []string) { told <- ids[0] }, func() { ready <- struct{}{} }) })
	<-ready
	for n := range vouchers { // from either node
		r := reservations[n*buyers]
		check.Must(t, copies.Settle(t.Context(), []model.Order{r.Order}))
		check.Equal(t, "the order that is told of", check.Receive(t, "the settling of "+r.ID, told), r.ID)
		if applied, err := copies.Release(t.Context(), releaseOf(r)); !applied || err != nil {
			t.Errorf("released %v, %v", applied, err)
		}
		<-told
	}
	cancel()
	watching.Wait()
	oneNodeLess(t, copies, nodes[0], reservations)
}

// oneNodeLess: what the other node holds is still answered.
func oneNodeLess(t *testing.T, copies *hotcopy.Store, node *testserver.Server, reservations []model.Reservation) {
	t.Helper()
	node.Kill()
	var group []model.ReserveRequest
	for _, r := range reservations {
		group = append(group, model.ReserveRequest{OrderID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID})
	}
	answers := check.Value(copies.Reserve(t.Context(), group))(t)
	good, bad := 0, 0
	for _, a := range answers {
		switch {
		case a.Err == nil || model.CodeOf(a.Err) == model.CodeInternal: // closed before
			good++
		case model.CodeOf(a.Err) == model.CodeUnavailable:
			bad++
		default:
			t.Errorf("answer %+v", a)
		}
	}
	check.That(t, good >= 30 && bad >= 30, "%d answers from a node, %d without", good, bad)
}

func signs(t *testing.T, list *hotcopy.Instances, self model.Instance) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		list.Sign(ctx, self, func(_ context.Context, self *model.Instance) {
			if self.Unready == "" && !self.Since.IsZero() {
				self.Unready = "redis"
			}
		})
	}()
	stop = func() { cancel(); <-left }
	t.Cleanup(stop)
	return stop
}

// Instances of one deployment see each other; who leaves is gone at once, who died after four missing signs.
func TestInstances(t *testing.T) {
	t.Parallel()
	client := openRedis(t, testserver.SharedRedis(t))
	of := func(deployment string) *hotcopy.Instances {
		return hotcopy.NewInstances(client, func(context.Context) (string, error) { return deployment, nil })
	}
	deployment := newID(t)
	list := of(deployment)
	self := model.Instance{ID: "1", Name: "a:8080", Role: "all", Mode: model.ModeAsync, Version: "v1"}
	signs(t, list, self)
	leave := signs(t, list, model.Instance{
		ID: "2", Name: "b:8080", Role: "worker", Mode: model.ModeAsync,
		Version: "v2",
	})
	names := func() (names []string) {
		for _, instance := range check.Value(list.Alive(t.Context()))(t) {
			names = append(names, instance.Name)
		}
		return names
	}
	check.Eventually(t, "both are there", func() bool { return slices.Equal(names(), []string{"a:8080", "b:8080"}) })
	found := check.Value(list.Alive(t.Context()))(t)[0]
	check.That(t, aboutNow(found.Since) && !found.SeenAt.Before(found.Since.Truncate(time.Millisecond)),
		"since %s, seen at %s", found.Since, found.SeenAt)
	found.Since, found.SeenAt = time.Time{}, time.Time{}
	check.Equal(t, "what is told of one", found, self)
	leave()
	check.Equal(t, "instances after one has left", len(names()), 1)
	check.Eventually(t, "its next sign tells what it sees", func() bool {
		alive := check.Value(list.Alive(t.Context()))(t)
		check.Equal(t, "times that an instance is listed", len(alive), 1)
		return alive[0].Unready == "redis"
	})

	key := "seckill:v1:instances:" + deployment
	dead := redis.Z{Score: float64(time.Now().Add(-13 * time.Second).UnixMilli()), Member: `{"id":"3","name":"dead:1"}`}
	check.Must(t, client.ZAdd(t.Context(), key, dead).Err())
	now := names()
	check.That(t, !slices.Contains(now, "dead:1"), "a dead one is alive: %q", now)
	if !check.Faults { // who comes signs at once, and then all 3 s
		signs(t, list, self)
	}
	check.Eventually(t, "the next sign forgets it", func() bool {
		return errors.Is(client.ZScore(t.Context(), key, dead.Member.(string)).Err(), redis.Nil)
	})
	ttl := client.PTTL(t.Context(), key).Val()
	check.That(t, ttl > 0 && ttl <= time.Minute, "the list itself is kept for %s", ttl)
	check.Equal(t, "instances of another deployment", len(check.Value(of(newID(t)).Alive(t.Context()))(t)), 0)
}

// An instance that does not know its deployment yet is nowhere, and asks again.
func TestAnInstanceOfNoDeploymentYet(t *testing.T) {
	t.Parallel()
	unknown := errors.New("no schema yet")
	list := hotcopy.NewInstances(openRedis(t, testserver.SharedRedis(t)),
		func(context.Context) (string, error) { return "", unknown })
	signs(t, list, model.Instance{ID: "1"})()
	_, err := list.Alive(t.Context())
	check.That(t, errors.Is(err, unknown), "the list is %v", err)
}

// What the instances of one deployment count is there for each of them, by voucher, and of no other deployment.
func TestTalliesAreShared(t *testing.T) {
	t.Parallel()
	client := openRedis(t, testserver.SharedRedis(t))
	of := func(deployment, instance string) *hotcopy.Tallies {
		return hotcopy.NewTallies(client, func(context.Context) (string, error) { return deployment, nil }, instance)
	}
	deployment := newID(t)
	tally := model.Tally{
		At: time.Now().UTC().Truncate(time.Millisecond), Placed: map[string]uint64{"OK": 3},
		Took: []uint64{1, 2},
	}
	check.Must(t, of(deployment, "a").Publish(t.Context(), map[string]model.Tally{"v1": tally, "v2": tally}))
	check.Must(t, of(deployment, "b").Publish(t.Context(), map[string]model.Tally{"v1": {At: tally.At}}))
	found := check.Value(of(deployment, "c").Read(t.Context(), "v1"))(t)
	check.Equal(t, "instances", fmt.Sprint(slices.Sorted(maps.Keys(found))), "[a b]")
	check.Equal(t, "the tally of a", fmt.Sprint(found["a"]), fmt.Sprint(tally))
	check.Equal(t, "instances of another deployment", len(check.Value(of(newID(t), "a").Read(t.Context(), "v1"))(t)), 0)
}
