package bench

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"
)

// load is goroutines that take and release locks for a while.
type load struct {
	Peer       string        // contestant
	Addr       string        // of Redis
	Key        string        // the one lock of all goroutines; with Each the prefix of their own ones
	Each       bool          // every goroutine has a lock of its own
	Goroutines int           //
	Hold       time.Duration // how long each lock is held
	For        time.Duration // no goroutine begins anew after this
}

// outcome is what a load came to.
type outcome struct {
	Count   int           // acquisitions, each with its release
	Elapsed time.Duration // until the last of them
	Waits   []time.Duration

	Forgotten int // goroutines that never had the lock although nobody held it any more

	Client time.Duration // CPU time of this process, where it was measured
	Server time.Duration // CPU time of Redis, where it was measured
}

func (o outcome) rate() float64 { return float64(o.Count) / o.Elapsed.Seconds() }

// cycle is the mean time from one acquisition to the next one.
func (o outcome) cycle() time.Duration { return o.Elapsed / time.Duration(max(o.Count, 1)) }

// each is the share of an acquisition with its release, in µs.
func (o outcome) each(of time.Duration) float64 {
	return float64(of.Nanoseconds()) / 1000 / float64(max(o.Count, 1))
}

// wait returns the quantile q of the waits; 1 is the longest.
func (o outcome) wait(q float64) time.Duration {
	if len(o.Waits) == 0 {
		return 0
	}
	waits := slices.Sorted(slices.Values(o.Waits))
	return waits[int(q*float64(len(waits)-1))]
}

// overtime is how much longer than planned a load may take. With nobody new in line after its end, whoever has not had
// the lock by then has been forgotten.
const overtime = 4 * time.Second

func (l load) run(ctx context.Context, locks locker) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, l.For+overtime)
	defer cancel()
	counts, forgotten := make([]int, l.Goroutines), make([]int, l.Goroutines)
	lasts := make([]time.Duration, l.Goroutines)
	waits := make([][]time.Duration, l.Goroutines)
	errs := make([]error, l.Goroutines)
	var all sync.WaitGroup
	start := time.Now()
	for g := range l.Goroutines {
		key := l.Key
		if l.Each {
			key += ":" + strconv.Itoa(g)
		}
		all.Go(func() {
			for asked := time.Now(); asked.Sub(start) < l.For; asked = time.Now() {
				_, release, err := locks.acquire(ctx, key)
				if ctx.Err() != nil {
					forgotten[g] = 1
					waits[g] = append(waits[g], time.Since(asked))
					return
				}
				if err != nil {
					errs[g] = err
					return
				}
				if l.Hold > 0 {
					waits[g] = append(waits[g], time.Since(asked))
					<-time.After(l.Hold)
				}
				counts[g]++
				if errs[g] = release(); errs[g] != nil {
					return
				}
				lasts[g] = time.Since(start)
			}
		})
	}
	all.Wait()
	sum := outcome{Elapsed: slices.Max(lasts), Waits: slices.Concat(waits...)}
	for g := range counts {
		sum.Count += counts[g]
		sum.Forgotten += forgotten[g]
	}
	return sum, errors.Join(errs...)
}

// local is the yardstick of the workloads on one lock: no store at all.
type local struct{ mu sync.Mutex }

func (l *local) acquire(ctx context.Context, _ string) (context.Context, func() error, error) {
	l.mu.Lock()
	return ctx, func() error { l.mu.Unlock(); return nil }, nil
}

func (l *local) close() error { return nil }
