//go:build faults

//part:clusters

package hotcopy_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// clusterSale opens a copy in 16 parts on a Cluster, the first of which lies on the primary
// given.
func clusterSale(t *testing.T, cluster *testserver.Cluster, primary int, stock int64, slack time.Duration) *sale {
	t.Helper()
	client := openRedis(t, cluster.URL())
	s := &sale{t: t, client: client, copies: hotcopy.New(client, hotcopy.Options{Slack: slack}), shards: 16, group: 25, slack: slack}
	for {
		s.v = voucherOf(newID(t), stock)
		if cluster.Owner(t, s.head()) == primary {
			break
		}
	}
	s.v.Shards = 16
	s.rebuild(1, 0, nil, nil)
	return s
}

// usersOn are some users of each part that lies on a primary.
func (s *sale) usersOn(cluster *testserver.Cluster, primary, ofEach int) (users []string) {
	s.t.Helper()
	for part := range s.shards {
		if cluster.Owner(s.t, s.partHead(part)) == primary {
			users = append(users, s.usersOf(part, ofEach)...)
		}
	}
	return users
}

// look is what requests that want to buy see of the copy.
func (s *sale) look(store *hotcopy.Store) model.HotCopy {
	s.t.Helper()
	return check.Value(store.Look(s.t.Context(), []string{s.v.ID}))(s.t)[s.v.ID]
}

// The parts of a voucher lie on all primaries of a Cluster. It is sold to the last unit and
// not beyond, and when a primary is away it is sold from the others, and not sold out.
func TestPartsOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no", "--cluster-require-full-coverage", "no")
	s := clusterSale(t, cluster, 0, 50, check.Deadline)
	wantAnswers(t, "all primaries", s.sell(s.usersBut(-1, 300), s.store(), s.store()), map[string]int{"reserved": 50, "SOLD_OUT": 250})
	s.wants(model.CopyOpen, 0, 50, 50)
	check.Equal(t, "a look finds it", s.look(s.store()).Voucher.Phase, model.PhaseSoldOut)
	s.divide(3)
	s.divide(16)
	s.wants(model.CopyOpen, 0, 50, 50)
	clusterSale(t, cluster, 0, 7, check.Deadline).keepsAUnit(6, 20)
	soldOutIsOfOneInstant(t, cluster)

	const gone = 1
	var sales []*sale
	for _, primary := range []int{gone, 0} {
		sales = append(sales, clusterSale(t, cluster, primary, 64, 0)) // 4 in each part
	}
	var stores []*hotcopy.Store
	for _, s := range sales {
		stores = append(stores, s.store())
	}
	cluster.Primaries[gone].Pause()
	hungIsNotWaitedFor(t, cluster, gone, sales, stores)
	cluster.Primaries[gone].Kill()
	for i, s := range sales {
		s.soldWithout(cluster, gone, stores[i])
	}
}

// swap has two units, of which one is free and one is sold: in a part on the first primary of
// a Cluster and in one on the second.
type swap struct {
	*sale

	users [2]string          // on each of them
	sold  *model.Reservation // of the one whose unit is not free
}

// free makes the free unit that on one of them. There is always one.
func (w *swap) free(primary int) {
	if w.sold != nil && w.sold.UserID == w.users[primary] {
		w.release(*w.sold)
		w.sold = new(w.buy(w.users[1-primary]))
	}
}

const swappedLooks = 4

// between is in front of the first two primaries of a Cluster. In each of the first looks the
// second primary answers before the first one does, and the free unit is on the other one each
// time.
func between(w *swap, primary int, looks *atomic.Int32, looked chan struct{}) hotcopy.OnPipeline {
	return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if len(cmds) == 1 || !strings.HasPrefix(cmds[0].Name(), "eval") || looks.Add(1) > swappedLooks {
			return next(ctx, cmds)
		}
		if primary == 0 {
			select {
			case <-looked:
				w.free(1)
			case <-ctx.Done():
			}
			return next(ctx, cmds)
		}
		w.free(0)
		defer func() { looked <- struct{}{} }()
		return next(ctx, cmds)
	}
}

// soldOutIsOfOneInstant: there is a unit at every instant, and each look misses it. That is
// not sold out.
func soldOutIsOfOneInstant(t *testing.T, cluster *testserver.Cluster) {
	t.Helper()
	s := clusterSale(t, cluster, 2, 2, check.Deadline)
	w := &swap{sale: s, users: [2]string{s.usersOn(cluster, 0, 1)[0], s.usersOn(cluster, 1, 1)[0]}}
	first := s.buy(w.users[0])
	w.sold = new(s.buy(w.users[1]))
	s.release(first)

	client, ok := openRedis(t, cluster.URL()).(*redis.ClusterClient)
	if !ok {
		t.Fatal("the client is none of a Cluster")
	}
	var looks [2]atomic.Int32
	looked := make(chan struct{}, swappedLooks)
	client.OnNewNode(func(node *redis.Client) {
		for primary := range 2 {
			if node.Options().Addr == cluster.Primaries[primary].Addr() {
				node.AddHook(between(w, primary, &looks[primary], looked))
			}
		}
	})
	store := another(client)
	userID := s.usersOn(cluster, 2, 1)[0]
	if word := answer(s.reserve(store, userID)); word != "reserved" && word != "UNAVAILABLE" {
		t.Errorf("while there is a unit a user is answered %s", word)
	}
	if looks[0].Load() < 2 || looks[1].Load() < 2 {
		t.Errorf("there were %d and %d looks", looks[0].Load(), looks[1].Load())
	}
	if word := answer(s.reserve(s.store(), userID)); word != "reserved" && word != "ALREADY_ORDERED" {
		t.Errorf("in the end the user is answered %s", word)
	}
	s.wants(model.CopyOpen, 0, 2, 2)
}

// hungIsNotWaitedFor: users of healthy parts are answered before those of a primary that
// hangs, who were first.
func hungIsNotWaitedFor(t *testing.T, cluster *testserver.Cluster, hung int, sales []*sale, stores []*hotcopy.Store) {
	t.Helper()
	for i, s := range sales {
		ctx, cancel := context.WithCancel(t.Context())
		waiting, over := s.admission(s.usersOn(cluster, hung, 1)[0]), make(chan error, 1)
		go func() {
			_, err := stores[i].Reserve(ctx, []model.ReserveRequest{waiting})
			over <- err
		}()
		for _, primary := range []int{0, 2} {
			check.Must(t, s.reserve(stores[i], s.usersOn(cluster, primary, 1)[0]))
		}
		select {
		case err := <-over:
			t.Errorf("a call to the primary that hangs ended first: %v", err)
		default:
		}
		cancel()
		<-over
	}
}

// soldWithout sells what is left on the other primaries.
func (s *sale) soldWithout(cluster *testserver.Cluster, gone int, store *hotcopy.Store) {
	s.t.Helper()
	t, ctx := s.t, s.t.Context()
	parts := len(s.usersOn(cluster, gone, 1))
	what := fmt.Sprintf("%d parts of %s are away", parts, s.v.ID)
	got := s.sell(s.usersOn(cluster, 0, 9), store)
	for word, n := range s.sell(s.usersOn(cluster, 2, 9), store) {
		got[word] += n
	}
	// Two users have an order already. The last ones cannot be told whether there is anything
	// left in the parts that are away.
	sold := 4*(16-parts) - 2
	wantAnswers(t, what, got, map[string]int{"reserved": sold, "ALREADY_ORDERED": 2, "UNAVAILABLE": 9*(16-parts) - 2 - sold})
	wantAnswers(t, what, s.sell(s.usersOn(cluster, gone, 1), store), map[string]int{"UNAVAILABLE": parts})
	if hot := s.look(store); hot.State != model.CopyOpen || hot.Voucher.Remaining < 1 || hot.Voucher.Phase != model.PhaseLive {
		t.Errorf("%s: looks %+v", what, hot)
	}
	copies, err := store.Read(ctx, []string{s.v.ID})
	wantCode(t, err, model.CodeUnavailable)
	if _, told := copies[s.v.ID]; told {
		t.Errorf("%s: reads %+v", what, copies)
	}
}
