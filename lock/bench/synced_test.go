package bench

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

// The service's locks, confirmed by no replica and by all.
const (
	unconfirmed = "Synced(0)"
	confirmed   = "Synced(AllReplicas)"
)

// synced prints the price of an acquisition that one replica, or two, have confirmed.
func (b *bench) synced(t *testing.T) {
	rows := [][]string{{"replicas", "goroutines", unconfirmed + " / s", confirmed + " / s", "price: times as slow", "CPU of the primary each"}}
	for replicas := 1; replicas <= 2; replicas++ {
		primary := startRedis(t, "--repl-diskless-sync-delay", "0")
		host, port, err := net.SplitHostPort(primary)
		if err != nil {
			t.Fatal(err)
		}
		for range replicas {
			startRedis(t, "--replicaof", host, port)
		}
		server := redis.NewClient(&redis.Options{Addr: primary})
		t.Cleanup(func() { _ = server.Close() })
		followed(t, server, replicas)
		lockers := map[string]locker{unconfirmed: openTokenless(primary), confirmed: openTokenless(primary, lock.Synced(lock.AllReplicas))}
		for _, l := range lockers {
			t.Cleanup(func() { _ = l.close() })
		}
		for _, goroutines := range []int{1, 64} {
			got := b.turns(t, []string{unconfirmed, confirmed}, *turn, func(name string, length time.Duration) (outcome, error) {
				start, err := measureCPU(t.Context(), server)
				if err != nil {
					return outcome{}, err
				}
				o, err := load{Key: name, Each: true, Goroutines: goroutines, For: length}.run(t.Context(), lockers[name])
				if err != nil {
					return outcome{}, err
				}
				end, err := measureCPU(t.Context(), server)
				o.Server = end.server - start.server
				return o, err
			})
			cpu := func(name string) string {
				return microsEach(medianOf(got[name], func(o outcome) float64 { return o.each(o.Server) }))
			}
			rows = append(rows, []string{
				fmt.Sprint(replicas), fmt.Sprint(goroutines), perSecond(medianOf(got[unconfirmed], outcome.rate)),
				perSecond(medianOf(got[confirmed], outcome.rate)), times(ratio(got[unconfirmed], got[confirmed])), cpu(unconfirmed) + " : " + cpu(confirmed),
			})
		}
	}
	table("What it costs that replicas confirm", rows)
}

// followed waits for the replicas of a server.
func followed(t *testing.T, server *redis.Client, replicas int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for tick := time.Tick(5 * time.Millisecond); strings.Count(server.Info(ctx, "replication").Val(), "state=online") < replicas; {
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatal("the replicas do not follow")
		}
	}
}
