package bench

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
)

const (
	contenders = 64
	// work is what each of them does under the lock.
	work = time.Millisecond
	// mutex is the yardstick: the same loop with a lock that costs nothing.
	mutex = "(sync.Mutex)"
)

// hot is one lock that everybody in a process wants.
func (b *bench) hot(t *testing.T) {
	lockers := b.openAll(t, peers, contenders)
	lockers[mutex] = &local{}
	names := append(slices.Clone(peers), mutex)
	got := b.turns(t, names, 3**turn, func(name string, length time.Duration) (outcome, error) {
		return load{Key: "hot", Goroutines: contenders, Hold: work, For: length}.run(t.Context(), lockers[name])
	})
	share := contenders * medianOf(got[mutex], outcome.cycle)
	contendedTable(fmt.Sprintf("64 goroutines, one lock, held for 1 ms; the fair share of the wait is %s", millis(share)), names, got, share, got[mutex])

	fast := ratio(got[ours], got[mutex])
	b.target(fast >= 0.95, "64 goroutines, one key: ≥ 0.95 of a sync.Mutex", "%.3f", fast)
	longest := medianOf(got[ours], longestWait)
	b.target(longest <= 2*share, "longest wait ≤ 2 × the fair share", "%.2f × (%s)", float64(longest)/float64(share), millis(longest))
}

func longestWait(o outcome) time.Duration { return o.wait(1) }

func forgotten(rounds []outcome) int {
	sum := 0
	for _, o := range rounds {
		sum += o.Forgotten
	}
	return sum
}

// contendedTable prints what contenders for one lock came to. Without a yardstick the share is each one's own:
// what everybody would wait if they were served in turn.
func contendedTable(title string, names []string, got map[string][]outcome, share time.Duration, yardstick []outcome) {
	rows := [][]string{{"", "acquisitions / s", "of a sync.Mutex", "median wait", "longest wait", "of the fair share", "forgotten waiters"}}
	for _, name := range names {
		rounds := got[name]
		longest := medianOf(rounds, longestWait)
		fair := share
		if fair == 0 {
			fair = contenders * medianOf(rounds, outcome.cycle)
		}
		of := "–"
		if yardstick != nil {
			of = times(ratio(rounds, yardstick))
		}
		rows = append(rows, []string{
			name, perSecond(medianOf(rounds, outcome.rate)), of,
			millis(medianOf(rounds, func(o outcome) time.Duration { return o.wait(0.5) })),
			millis(longest), times(float64(longest) / float64(fair)), strconv.Itoa(forgotten(rounds)),
		})
	}
	table(title, rows)
}
