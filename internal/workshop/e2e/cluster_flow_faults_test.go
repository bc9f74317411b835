//go:build faults

//part:clusters

package e2e_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// flow is a steady crowd of one voucher, while something happens to Redis or to the queue.
type flow struct {
	*crowd

	end func()
}

// pace is between two purchases of a buyer: a crowd that lasts for a failover is not to empty the stock.
const pace = 5 * time.Millisecond

// flowing lets some buyers at a time ask for the voucher until the test ends.
func (a *app) flowing(t *testing.T, voucherID string, parallel int, names func(n int) string) *flow {
	t.Helper()
	f := &flow{crowd: newCrowd(a, voucherID)}
	f.names, f.lives = names, func(t *testing.T, user string) { // a life
		f.insist(t, user)
		<-time.After(pace)
	}
	f.end = sync.OnceFunc(f.coming(t, parallel))
	t.Cleanup(f.end)
	return f
}

// between counts the answers of a time.
func (f *flow) between(from, to time.Time) (accepted, refused int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.samples {
		switch {
		case a.ended.Before(from) || a.ended.After(to):
		case a.final:
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
	for _, a := range f.samples {
		if a.promise && a.ended.After(from) {
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
	check.Equal(t, "users who heard that all is sold", f.soldOut, 0)
	f.instances[0].kept(t, f.voucher, f.promised)
	f.instances[0].sellsOut(t, f.voucher)
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
	return func(n int) string { return names[n%len(names)] }
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
