//go:build faults

//part:redis

package hotcopy_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

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
			check.Must(t, s.copies.Settle(t.Context(), []model.Order{r.Order}))
			if n%2 == 0 {
				s.release(r)
			}
		}
	})
	close(stop)
	<-flushed
	s.wants(model.CopyOpen, 1000-160, 0, 160)
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
	check.Must(t, s.client.Do(t.Context(), "acl", "setuser", "shop", "on", ">right", "~*", "&*", "+@all",
		"-@write").Err())
	for _, password := range []string{"right", "wrong"} {
		client := openRedis(t, "redis://shop:"+password+"@"+server.Addr()+"/0")
		wantUndone(t, check.ErrorOf(another(client).Reserve(t.Context(), []model.ReserveRequest{s.admission("eve")})))
	}
}

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

// A demoted primary that got older data and was promoted again is the same process, and has an old copy all the same.
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
	is := runID(t, s.client)
	check.Need(t, is == was, "it is another process: %s, was %s", is, was)
	n := s.client.HLen(t.Context(), s.key("buyers")).Val()
	check.Need(t, n == 1, "%d entries: it has no older data", n)
	s.closedNow(reserved[0])
	s.rebuild(3, 2, nil, reserved)
	s.wants(model.CopyOpen, 0, 10, 10)
	for i := range 10 {
		wantCode(t, s.admit(s.admission(user(i))).Err, model.CodeAlreadyOrdered)
	}
}

// memory is how many bytes Redis uses, once nothing waits to be freed in the background.
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

// However often a sale is rebuilt, and wherever rebuilds are given up, Redis holds two copies of it at the most.
func TestMemoryNeverExceedsTwoCopies(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t, "--appendonly", "no")
	const buyers, rebuilds = 20_000, 20
	s.v.Stock = buyers
	var live []model.Order
	var carried []model.Reservation
	for i := range buyers {
		order := model.Order{
			ID:     fmt.Sprintf("0199c0de-7a11-7000-8000-%012d.%s", i, s.v.ID),
			UserID: fmt.Sprintf("user:%d", i), Currency: "CNY",
		}
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
	// This loader comes late.
	check.Is(t, "the answer", s.copies.Load(t.Context(), s.record(last, 0), live, carried), model.ErrSuperseded)
	s.rebuild(last+1, last-1, live, carried)
	bound("rebuilt in the end", 1)
	s.wants(model.CopyOpen, 0, int64(len(carried)), buyers)
}

// What expires is freed in the background: an expiring hash of a million buyers would stop Redis for most of a second.
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
	info := s.client.Info(t.Context(), "memory").Val()
	check.That(t, strings.Contains(info, "lazyfreed_objects:1\r\n"), "it was not freed in the background: %s", info)
}

func TestIncarnation(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSale(t, server.URL(), hotcopy.Options{}, 10)
	seen := ""
	for _, loss := range []func(){
		func() {},
		func() { check.Must(t, s.client.FlushAll(t.Context()).Err()) },
		func() { s.restart(server) },
		func() { // demoted and promoted again: its run id is the same
			check.Must(t, s.client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
			check.Must(t, s.client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
		},
	} {
		loss()
		now := check.Value(s.copies.Incarnation(t.Context()))(t)
		again, err := s.copies.Incarnation(t.Context())
		if check.Must(t, err); now == seen || again != now {
			t.Errorf("before %q, now %q, again %q", seen, now, again)
		}
		seen = now
	}
}
