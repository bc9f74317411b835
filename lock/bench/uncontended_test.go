package bench

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// raw is the yardstick of the uncontended workloads: SET NX PX and DEL, which is no lock (anybody's DEL frees it).
const raw = "(SET NX, DEL)"

type rawLocker struct{ client *redis.Client }

func (l rawLocker) acquire(ctx context.Context, key string) (context.Context, func() error, error) {
	if err := l.client.SetArgs(ctx, key, "x", redis.SetArgs{Mode: "NX", TTL: lease}).Err(); err != nil {
		return nil, nil, err
	}
	return ctx, func() error { return l.client.Del(ctx, key).Err() }, nil
}

func (l rawLocker) close() error { return l.client.Close() }

func (b *bench) solo(t *testing.T) {
	got := b.uncontended(t, "One goroutine, nobody else", 1)
	slowest := ratio(got[ours], got[redsyncs])
	for _, peer := range peers[2:] {
		slowest = min(slowest, ratio(got[ours], got[peer]))
	}
	b.target(slowest >= 1, "one goroutine: not slower than any of them", "%.2f × the fastest", slowest)
}

func (b *bench) keys(t *testing.T) {
	got := b.uncontended(t, "64 goroutines, each with a lock of its own", 64)
	redsync, rueidis := ratio(got[ours], got[redsyncs]), ratio(got[ours], got[rueidiss])
	b.target(redsync >= 2, "64 goroutines, different keys: ≥ 2 × redsync", "%.2f ×", redsync)
	b.target(rueidis >= 1.5, "64 goroutines, different keys: ≥ 1.5 × rueidislock", "%.2f ×", rueidis)
	redsync, rueidis = ratio(got[tokenless], got[redsyncs]), ratio(got[tokenless], got[rueidiss])
	b.target(redsync >= 1.5, "64 goroutines, different keys, without tokens: ≥ 1.5 × redsync", "%.2f ×", redsync)
	b.target(rueidis >= 1, "64 goroutines, different keys, without tokens: ≥ rueidislock", "%.2f ×", rueidis)
}

// uncontended takes and releases locks that nobody else wants.
func (b *bench) uncontended(t *testing.T, title string, goroutines int) map[string][]outcome {
	t.Helper()
	own := append([]string{tokenless}, peers...)
	names := append(slices.Clone(own), raw)
	lockers := b.openAll(t, own, goroutines)
	lockers[raw] = rawLocker{pooled(b.addr, goroutines)}
	t.Cleanup(func() { _ = lockers[raw].close() })
	server := redis.NewClient(&redis.Options{Addr: b.addr})
	t.Cleanup(func() { _ = server.Close() })
	got := b.turns(t, names, *turn, func(name string, length time.Duration) (outcome, error) {
		start, err := measureCPU(t.Context(), server)
		if err != nil {
			return outcome{}, err
		}
		o, err := load{Key: "keys:" + name, Each: true, Goroutines: goroutines, For: length}.run(t.Context(), lockers[name])
		if err != nil {
			return outcome{}, err
		}
		end, err := measureCPU(t.Context(), server)
		o.Client, o.Server = end.client-start.client, end.server-start.server
		return o, err
	})
	rows := [][]string{{"", "acquire + release / s", ours + " is × as fast", tokenless, "CPU of the client each", "CPU of Redis each"}}
	for _, name := range names {
		rows = append(rows, []string{
			name, perSecond(medianOf(got[name], outcome.rate)), times(ratio(got[ours], got[name])), times(ratio(got[tokenless], got[name])),
			microsEach(medianOf(got[name], func(o outcome) float64 { return o.each(o.Client) })),
			microsEach(medianOf(got[name], func(o outcome) float64 { return o.each(o.Server) })),
		})
	}
	table(title, rows)
	return got
}

// openAll opens contestants that are closed with the test.
func (b *bench) openAll(t *testing.T, names []string, goroutines int) map[string]locker {
	t.Helper()
	lockers := make(map[string]locker)
	for _, name := range names {
		locks, err := open(name, b.addr, goroutines)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := locks.close(); err != nil {
				t.Errorf("close %s: %v", name, err)
			}
		})
		lockers[name] = locks
	}
	return lockers
}
