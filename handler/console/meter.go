package console

import (
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/model"
)

// Rates are what all instances together do for one voucher.
type Rates struct {
	PerSecond map[string]float64 `json:"per_second"`        // attempts to buy, by outcome: OK or the problem's code; null: not known yet
	Latency   *Latency           `json:"latency,omitempty"` // absent: nobody tried to buy
	Backlog   *Backlog           `json:"backlog,omitempty"` // absent: there is no queue, or it does not tell
}

// Latency is how long attempts to buy took, in milliseconds.
type Latency struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
}

// Backlog is what waits in the queue, of all vouchers.
type Backlog struct {
	Orders float64 `json:"orders"` // messages, which hold one order or more
	Age    float64 `json:"age"`    // of the oldest, in seconds
}

const (
	// tallyEvery is the time between two tallies of an instance that buyers ask.
	tallyEvery = time.Second
	// tallySilent is the age of a tally from which its instance counts as asked by no buyer.
	tallySilent = 2500 * time.Millisecond
)

// meter makes rates of the tallies of one voucher, by what has grown from one look to the next.
type meter struct {
	looked time.Time // zero: never
	before map[string]told
}

// told is the latest tally of an instance, and what had grown in it.
type told struct {
	tally model.Tally
	since time.Time // when it was first seen
	grown model.Tally
	over  float64 // seconds in which that has grown
}

// read is the rates of now; a negative number of attempts is none, of an instance that counts anew.
func (m *meter) read(tallies map[string]model.Tally, now time.Time) Rates {
	before, first := m.before, m.looked.IsZero()
	gap := now.Sub(m.looked)
	m.before, m.looked = make(map[string]told, len(tallies)), now
	if first {
		for instance, tally := range tallies {
			m.before[instance] = told{tally: tally, since: now.Add(-tallySilent)}
		}
		return Rates{}
	}
	rates := Rates{PerSecond: map[string]float64{}}
	took := make([]float64, len(model.TallyBounds())+1)
	for instance, tally := range tallies {
		was := before[instance]
		if tally.At.After(was.tally.At) {
			// What has grown after a silence has done so since the look before.
			over := min(tally.At.Sub(was.tally.At), max(gap, tallyEvery))
			was = told{tally: tally, since: now, grown: grown(was.tally, tally), over: over.Seconds()}
		}
		m.before[instance] = was
		if now.Sub(was.since) >= max(tallySilent, gap) || was.over == 0 {
			continue
		}
		for outcome, count := range was.grown.Placed {
			rates.PerSecond[outcome] += float64(count) / was.over
		}
		for n, count := range was.grown.Took {
			took[n] += float64(count)
		}
	}
	rates.Latency = latency(took)
	return rates
}

// grown is what a tally has more than an earlier one of the same instance.
func grown(before, after model.Tally) model.Tally {
	more := model.Tally{Placed: map[string]uint64{}, Took: make([]uint64, len(after.Took))}
	for outcome, count := range after.Placed {
		if was := before.Placed[outcome]; count > was {
			more.Placed[outcome] = count - was
		}
	}
	for n, count := range after.Took {
		if n >= len(before.Took) {
			more.Took[n] = count
		} else if was := before.Took[n]; count > was {
			more.Took[n] = count - was
		}
	}
	return more
}

// latency is that of attempts by how long they took; nil when there were none.
func latency(took []float64) *Latency {
	bounds := append(model.TallyBounds(), math.Inf(1))
	total := 0.0
	for _, count := range took {
		total += count
	}
	if total == 0 || len(took) > len(bounds) {
		return nil
	}
	const milliseconds = 1000
	return &Latency{Median: milliseconds * quantile(bounds, took, total/2), P99: milliseconds * quantile(bounds, took, total*0.99)} //nolint:mnd // as named
}

// quantile is between the bounds of a bucket in proportion, as Prometheus' histogram_quantile has it.
func quantile(bounds, took []float64, rank float64) float64 {
	low, below := 0.0, 0.0
	for n, count := range took {
		if below+count >= rank && count > 0 {
			if math.IsInf(bounds[n], 1) {
				return low
			}
			return low + (bounds[n]-low)*(rank-below)/count
		}
		low, below = bounds[n], below+count
	}
	return low
}

// backlogOf reads what waits in the queue out of an instance's metrics, which are in memory; nil: there is none, or it does not tell.
func backlogOf(metrics prometheus.Gatherer, log *slog.Logger) *Backlog {
	families, err := metrics.Gather()
	if err != nil { // what could be gathered is there all the same
		log.Debug("not all metrics could be gathered", slog.Any("error", err))
	}
	gauges := map[string]float64{}
	for _, family := range families {
		if name := family.GetName(); slices.Contains([]string{"seckill_backlog_known", "seckill_backlog_messages", "seckill_backlog_age_seconds"}, name) {
			gauges[name] = family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if gauges["seckill_backlog_known"] != 1 {
		return nil
	}
	return &Backlog{Orders: gauges["seckill_backlog_messages"], Age: gauges["seckill_backlog_age_seconds"]}
}
