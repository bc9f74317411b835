package hotcopy_test

import (
	"context"
	"fmt"
	"testing"

	"seckill/internal/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// clusterSale opens a copy in 16 parts on a Cluster, the first of which lies on the primary
// given.
func clusterSale(t *testing.T, cluster *testserver.Cluster, primary int, stock int64) *sale {
	t.Helper()
	client := openRedis(t, cluster.URL())
	s := &sale{t: t, client: client, copies: hotcopy.New(client, hotcopy.Options{}), shards: 16, group: 25}
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
	return testserver.Value(store.Look(s.t.Context(), []string{s.v.ID}))(s.t)[s.v.ID]
}

// The parts of a voucher lie on all primaries of a Cluster. It is sold to the last unit and
// not beyond, and when a primary is away it is sold from the others, and not sold out.
func TestPartsOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no", "--cluster-require-full-coverage", "no")
	s := clusterSale(t, cluster, 0, 50)
	wantAnswers(t, "all primaries", s.sell(s.usersBut(-1, 300), s.store(), s.store()), map[string]int{"reserved": 50, "SOLD_OUT": 250})
	s.wants(model.CopyOpen, 0, 50, 50)
	testserver.Equal(t, "a look finds it", s.look(s.store()).Voucher.Phase, model.PhaseSoldOut)
	s.divide(3)
	s.divide(16)
	s.wants(model.CopyOpen, 0, 50, 50)

	const gone = 1
	var sales []*sale
	for _, primary := range []int{gone, 0} {
		sales = append(sales, clusterSale(t, cluster, primary, 64)) // 4 in each part
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
			must(t, s.reserve(stores[i], s.usersOn(cluster, primary, 1)[0]))
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
