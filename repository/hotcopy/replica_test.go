package hotcopy_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/model"
)

// follow makes a Redis a replica of another one, and waits until it has its data.
func follow(t *testing.T, replica redis.UniversalClient, primary *testserver.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(primary.Addr())
	must(t, err)
	must(t, replica.Do(t.Context(), "replicaof", host, port).Err())
	for deadline := time.Now().Add(30 * time.Second); ; {
		if strings.Contains(replica.Info(t.Context(), "replication").Val(), "master_link_status:up") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not follow")
		}
		<-time.After(20 * time.Millisecond)
	}
}

func promote(t *testing.T, replica redis.UniversalClient) {
	t.Helper()
	must(t, replica.Do(t.Context(), "replicaof", "no", "one").Err())
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
	must(t, s.client.Do(t.Context(), "wait", 1, 10_000).Err())
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
