package bench

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// processes is hot with the same goroutines spread over four processes.
func (b *bench) processes(t *testing.T) {
	const count = 4
	children := make(map[string][]*process)
	for _, name := range peers {
		for range count {
			l := load{Peer: name, Addr: b.addr, Key: "processes:" + name, Goroutines: contenders / count, Hold: work}
			children[name] = append(children[name], startChild(t, roleLoad, l))
		}
	}
	got := b.turns(t, peers, 3**turn, func(name string, length time.Duration) (outcome, error) {
		for _, p := range children[name] {
			p.say(length.String())
		}
		var sum outcome
		for _, p := range children[name] {
			var o outcome
			p.hear(&o)
			sum.Count += o.Count
			sum.Elapsed = max(sum.Elapsed, o.Elapsed)
			sum.Waits = append(sum.Waits, o.Waits...)
			sum.Forgotten += o.Forgotten
		}
		return sum, nil
	})
	contendedTable("The same goroutines in 4 processes; the fair share is each contestant's own", peers, got, 0, nil)
	share := contenders * medianOf(got[ours], outcome.cycle)
	longest := medianOf(got[ours], longestWait)
	b.target(longest <= 3*share, "4 processes: longest wait ≤ 3 × the fair share",
		"%.2f × (%s; %.0f acquisitions / s)", float64(longest)/float64(share), millis(longest), medianOf(got[ours], outcome.rate))
}

// handover measures how long after a release in one process the waiter in another one has the lock, and what a
// round trip takes under the same circumstances, that is, after the same idle time.
func (b *bench) handover(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: b.addr})
	defer client.Close()
	lockers := b.openAll(t, peers, 1)
	rows := [][]string{{"", "release to next holder, median", "99 %", "of a round trip (PING)", "of a free lock's acquisition"}}
	for _, name := range peers {
		tries := 200
		if name == redsyncs || name == redislocks {
			tries = 25 // they ask at intervals, and that takes as long as it takes
		}
		waiter := startChild(t, roleWaiter, load{Peer: name, Addr: b.addr})
		var took, pings, calls []time.Duration
		for i := range tries {
			key := "handover:" + strconv.Itoa(i)
			_, release, err := lockers[name].acquire(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			waiter.say(key)
			// By then the waiter waits, whatever way it has of waiting; at no fixed phase of its intervals.
			pause := 15*time.Millisecond + time.Duration(i%10)*time.Millisecond
			<-time.After(pause)
			start := time.Now()
			if err := client.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			pings = append(pings, time.Since(start))

			<-time.After(pause)
			start = time.Now()
			if err := release(); err != nil {
				t.Fatal(err)
			}
			var at int64
			waiter.hear(&at)
			took = append(took, time.Unix(0, at).Sub(start))

			<-time.After(pause)
			start = time.Now()
			_, release, err = lockers[name].acquire(t.Context(), "free")
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, time.Since(start))
			if err := release(); err != nil {
				t.Fatal(err)
			}
		}
		all := outcome{Waits: took}
		middle, ping, call := median(took), median(pings), median(calls)
		rows = append(rows, []string{
			name, micros(middle), micros(all.wait(0.99)),
			times(float64(middle)/float64(ping)) + " × " + micros(ping), times(float64(middle)/float64(call)) + " × " + micros(call),
		})
		if name == ours {
			b.target(middle <= 2*call, "release → next holder in another process ≤ 2 round trips of one lock request",
				"%.2f × (%s; %.2f × a PING)", float64(middle)/float64(call), micros(middle), float64(middle)/float64(ping))
		}
	}
	table("Release in one process → next holder in another one", rows)
}
