package hotcopy_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"seckill/internal/redisdb"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// newCluster is a Cluster of two nodes, half of the slots each.
func newCluster(t *testing.T) (urls string, nodes []*testserver.Server) {
	t.Helper()
	var all []string
	for i := range 2 {
		node := testserver.Redis(t, "--cluster-enabled", "yes", "--appendonly", "no", "--cluster-require-full-coverage", "no")
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
	if good < 30 || bad < 30 {
		t.Errorf("%d answers from a node, %d without", good, bad)
	}
}
