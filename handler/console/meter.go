package console

import (
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// meterEvery is the least time between two looks at the counters, however many ask.
	meterEvery = readEvery - 50*time.Millisecond
	// meterLost is the time from which the difference to the look before says nothing of now.
	meterLost = 5 * time.Second
)

// Rates are what this instance does, for all vouchers together: its own counters tell no voucher.
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

// Backlog is what waits in the queue.
type Backlog struct {
	Orders float64 `json:"orders"` // messages, which hold one order or more
	Age    float64 `json:"age"`    // of the oldest, in seconds
}

// meter makes rates of this instance's metrics. The stream of a sale waits for them twice a second.
type meter struct {
	metrics prometheus.Gatherer
	log     *slog.Logger

	mu     sync.Mutex
	before sample
	rates  Rates
}

// sample is one look at the counters.
type sample struct {
	at      time.Time
	placed  map[string]float64  // by outcome
	took    map[float64]float64 // attempts of at most so many seconds, by that bound
	backlog *Backlog
}

func newMeter(metrics prometheus.Gatherer, log *slog.Logger) *meter {
	return &meter{metrics: metrics, log: log}
}

// read is the rates of now: the difference to the look before.
func (m *meter) read(now time.Time) Rates {
	m.mu.Lock()
	defer m.mu.Unlock()
	passed := now.Sub(m.before.at)
	if passed < meterEvery {
		return m.rates
	}
	latest := m.sample(now)
	m.rates = Rates{Backlog: latest.backlog}
	if passed < meterLost {
		m.rates.PerSecond = map[string]float64{}
		for outcome, count := range latest.placed {
			if more := count - m.before.placed[outcome]; more > 0 {
				m.rates.PerSecond[outcome] = more / passed.Seconds()
			}
		}
		m.rates.Latency = latency(m.before.took, latest.took)
	}
	m.before = latest
	return m.rates
}

func (m *meter) sample(now time.Time) sample {
	s := sample{at: now, placed: map[string]float64{}, took: map[float64]float64{}}
	families, err := m.metrics.Gather()
	if err != nil { // what could be gathered is there all the same
		m.log.Debug("not all metrics could be gathered", slog.Any("error", err))
	}
	gauges := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			switch family.GetName() {
			case "seckill_orders_placed_total":
				for _, label := range metric.GetLabel() {
					s.placed[label.GetValue()] += metric.GetCounter().GetValue()
				}
			case "seckill_order_place_seconds":
				for _, bucket := range metric.GetHistogram().GetBucket() {
					s.took[bucket.GetUpperBound()] += float64(bucket.GetCumulativeCount())
				}
				s.took[math.Inf(1)] += float64(metric.GetHistogram().GetSampleCount())
			case "seckill_backlog_known", "seckill_backlog_messages", "seckill_backlog_age_seconds":
				gauges[family.GetName()] = metric.GetGauge().GetValue()
			}
		}
	}
	if gauges["seckill_backlog_known"] == 1 {
		s.backlog = &Backlog{Orders: gauges["seckill_backlog_messages"], Age: gauges["seckill_backlog_age_seconds"]}
	}
	return s
}

// latency is that of the attempts between two looks; nil when there were none.
func latency(before, after map[float64]float64) *Latency {
	var bounds []float64
	counts := map[float64]float64{}
	for bound, count := range after {
		bounds = append(bounds, bound)
		counts[bound] = count - before[bound]
	}
	slices.Sort(bounds)
	if len(bounds) == 0 || counts[bounds[len(bounds)-1]] <= 0 {
		return nil
	}
	const milliseconds = 1000
	return &Latency{Median: milliseconds * quantile(bounds, counts, 0.5), P99: milliseconds * quantile(bounds, counts, 0.99)} //nolint:mnd // as named
}

// quantile is between the bounds of a bucket in proportion, as Prometheus' histogram_quantile has it.
func quantile(bounds []float64, cumulative map[float64]float64, q float64) float64 {
	rank := q * cumulative[bounds[len(bounds)-1]]
	low, below := 0.0, 0.0
	for _, bound := range bounds {
		if count := cumulative[bound]; count >= rank {
			if math.IsInf(bound, 1) {
				return low
			}
			return low + (bound-low)*(rank-below)/(count-below)
		}
		low, below = bound, cumulative[bound]
	}
	return low
}
