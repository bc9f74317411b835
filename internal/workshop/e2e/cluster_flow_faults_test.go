//go:build faults

//part:clusters

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// flow is a steady stream of buyers of one voucher, while something happens to Redis or to the queue.
type flow struct {
	*app

	voucher  string
	users    func(n int) string
	mu       sync.Mutex
	next     int
	promised map[string]string // orders, and their users
	answers  []sampled
	stop     context.CancelFunc
	buyers   sync.WaitGroup
}

// sampled is one answer.
type sampled struct {
	ended    time.Time
	accepted bool
	promised bool // for the first time: the buyer has not heard that there is an order already
}

// pace is between two purchases of a buyer: a stream that lasts for a failover is not to empty the stock.
const pace = 5 * time.Millisecond

// flowing lets some buyers at a time ask for the voucher until the test ends, each again until the answer is final.
func (a *app) flowing(t *testing.T, voucherID string, parallel int, users func(n int) string) *flow {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := &flow{app: a, voucher: voucherID, users: users, promised: map[string]string{}, stop: stop}
	for range parallel {
		f.buyers.Go(func() {
			for ctx.Err() == nil {
				f.mu.Lock()
				user := users(f.next)
				f.next++
				f.mu.Unlock()
				if user == "" {
					t.Errorf("voucher %s has sold to all users that there are", voucherID)
					return
				}
				for ctx.Err() == nil && !f.ask(t, user) {
					<-time.After(pace)
				}
				<-time.After(pace)
			}
		})
	}
	t.Cleanup(f.end)
	return f
}

func (f *flow) end() {
	f.stop()
	f.buyers.Wait()
}

// ask makes one request, and tells whether the answer is final.
func (f *flow) ask(t *testing.T, user string) bool {
	got, err := f.Place(t, f.voucher, user)
	f.mu.Lock()
	defer f.mu.Unlock()
	accepted := err == nil && got.Sells()
	switch {
	case accepted:
		f.promised[remote.Decode[model.Order](t, got).ID] = user
	case remote.Again(got, err):
		f.answers = append(f.answers, sampled{ended: time.Now()})
		return false
	case got.Code() != model.CodeAlreadyOrdered: // an earlier answer said that it was not known
		t.Errorf("%s: %d %s", user, got.Status, got.Body)
	}
	f.answers = append(f.answers, sampled{ended: time.Now(), accepted: true, promised: accepted})
	return true
}

// sold waits until so many more have been told yes.
func (f *flow) sold(t *testing.T, more int) {
	t.Helper()
	yes := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.promised)
	}
	from := yes()
	check.Eventually(t, fmt.Sprintf("%d more of voucher %s are sold", more, f.voucher), func() bool { return yes() >= from+more })
}

// between counts the answers of a time.
func (f *flow) between(from, to time.Time) (accepted, refused int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.answers {
		switch {
		case a.ended.Before(from) || a.ended.After(to):
		case a.accepted:
			accepted++
		default:
			refused++
		}
	}
	return accepted, refused
}

// away is the longest time without a new promise from one instant on.
func (f *flow) away(from time.Time) (longest time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.answers {
		if a.promised && a.ended.After(from) {
			longest = max(longest, a.ended.Sub(from))
			from = a.ended
		}
	}
	return longest
}

// failedOver logs what a failover cost the sale.
func (f *flow) failedOver(t *testing.T, who string, killed, elected time.Time) {
	t.Helper()
	yes, no := f.between(killed, elected)
	t.Logf("%s: election %.1f s (%d accepted, %d refused), refused for %.2f s after it",
		who, elected.Sub(killed).Seconds(), yes, no, f.away(elected).Seconds())
}

// conservedFlow ends the stream and checks that everything promised is there, and nothing else; then it sells the rest
// of a small stock to the last unit.
func (f *flow) conservedFlow(t *testing.T) {
	t.Helper()
	f.end()
	f.kept(t, f.voucher, f.promised)
	const more = 5
	sold := f.Audit(t, f.voucher).Database.LiveOrders
	got := f.Insist(t, http.MethodPost, "/admin/vouchers/"+f.voucher+"/stock", f.Admin(t), map[string]any{"stock": sold + more})
	check.Equal(t, "lower the stock", got.Status, http.StatusOK)
	f.sellsOn(t, f.voucher, 1_000_000)
}

// partition sorts users, and vouchers, by the node of a Cluster that holds what they need.
type partition struct {
	nodes []string
	at    *redis.ClusterClient
}

func newPartition(t *testing.T, primaries []*testserver.Server) *partition {
	t.Helper()
	nodes := make([]string, len(primaries))
	for i, node := range primaries {
		nodes[i] = node.Addr()
	}
	p := &partition{nodes: nodes, at: redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes})}
	t.Cleanup(func() { _ = p.at.Close() })
	return p
}

// of is the place among the nodes of the one that holds a key.
func (p *partition) of(t *testing.T, key string) int {
	t.Helper()
	node := check.Value(p.at.MasterForKey(t.Context(), key))(t)
	for i, address := range p.nodes {
		if node.Options().Addr == address {
			return i
		}
	}
	t.Fatalf("%s is on %s, which is none of %v", key, node.Options().Addr, p.nodes)
	return 0
}

// usersOn are users whose locks are on a node, as many as are ever needed.
func (p *partition) usersOn(t *testing.T, a *app, node int) func(n int) string {
	t.Helper()
	enough := 6000 + 10*ordersBefore(t)
	names := make([]string, 0, enough)
	for n := 0; len(names) < enough; n++ {
		if user := fmt.Sprintf("%s%d-%d", a.prefix, node, n); p.of(t, "lock:order:"+user) == node {
			names = append(names, user)
		}
	}
	return func(n int) string {
		if n >= len(names) {
			return ""
		}
		return names[n]
	}
}

// voucherOn is a voucher on sale whose hot copy is on a node.
func (p *partition) voucherOn(t *testing.T, a *app, node, stock int) model.Voucher {
	t.Helper()
	for range 100 {
		if v := a.onSale(t, stock); p.of(t, "{"+v.ID+"}") == node {
			return v
		}
	}
	t.Fatalf("no voucher is on node %d", node)
	return model.Voucher{}
}
