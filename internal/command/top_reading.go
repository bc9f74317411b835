package command

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxReading bounds the metrics of one server, in bytes: thirty times what one has that
// has done everything.
const maxReading = 4 << 20

// reading is what a server's metrics said.
type reading struct {
	at       time.Time
	families map[string]*dto.MetricFamily
}

func read(ctx context.Context, client *http.Client, base string) (reading, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/metrics", nil)
	if err != nil {
		return reading{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return reading{}, err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	if response.StatusCode != http.StatusOK {
		return reading{}, fmt.Errorf("it answers %s; is this the operations listener of a seckill server?", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(response.Body, maxReading))
	if err != nil {
		return reading{}, fmt.Errorf("read its metrics: %w", err)
	}
	if families["seckill_check_ready"] == nil {
		return reading{}, fmt.Errorf("it tells no metrics of a seckill server")
	}
	return reading{at: time.Now(), families: families}, nil
}

// has says whether there is a metric: one of asynchronous orders is there in async alone.
func (r reading) has(name string) bool { return r.families[name] != nil }

// each visits the series of a metric, with the value of one of its labels.
func (r reading) each(name, label string, visit func(value string, m *dto.Metric)) {
	for _, m := range r.families[name].GetMetric() {
		of := ""
		for _, pair := range m.GetLabel() {
			if pair.GetName() == label {
				of = pair.GetValue()
			}
		}
		visit(of, m)
	}
}

// number is the value of a counter or a gauge.
func number(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
}

// by sums a counter or a gauge by the values of a label.
func (r reading) by(name, label string) map[string]float64 {
	sums := make(map[string]float64)
	r.each(name, label, func(value string, m *dto.Metric) { sums[value] += number(m) })
	return sums
}

// sum is a counter or a gauge over all its series.
func (r reading) sum(name string) (sum float64) {
	r.each(name, "", func(_ string, m *dto.Metric) { sum += number(m) })
	return sum
}

// span is what happened between two readings of one server.
type span struct{ from, to reading }

func (s span) seconds() float64 { return s.to.at.Sub(s.from.at).Seconds() }

// grown is the increase of a counter, which begins anew with its process.
func grown(from, to float64) float64 {
	if to < from {
		return to
	}
	return to - from
}

// rate is how often something was counted in a second.
func (s span) rate(name string) float64 { return grown(s.from.sum(name), s.to.sum(name)) / s.seconds() }

// rates are those by the values of a label.
func (s span) rates(name, label string) map[string]float64 {
	from, rates := s.from.by(name, label), make(map[string]float64)
	for value, to := range s.to.by(name, label) {
		rates[value] = grown(from[value], to) / s.seconds()
	}
	return rates
}

// histogram is what was observed between two readings, over all series.
type histogram struct {
	bounds []float64 // upper ones, ascending; the last is +Inf
	counts []float64 // up to each bound
	sum    float64
}

func (s span) histogram(name string) histogram {
	var from, to histogram
	s.from.each(name, "", func(_ string, m *dto.Metric) { from.add(m.GetHistogram()) })
	s.to.each(name, "", func(_ string, m *dto.Metric) { to.add(m.GetHistogram()) })
	if from.count() > to.count() || !slices.Equal(from.bounds, to.bounds) {
		return to // another process, or its first series
	}
	for i := range to.counts {
		to.counts[i] -= from.counts[i]
	}
	to.sum -= from.sum
	return to
}

func (h *histogram) add(of *dto.Histogram) {
	buckets := of.GetBucket()
	if h.bounds == nil {
		h.bounds, h.counts = make([]float64, len(buckets)), make([]float64, len(buckets))
	}
	for i, bucket := range buckets[:min(len(buckets), len(h.bounds))] {
		h.bounds[i] = bucket.GetUpperBound()
		h.counts[i] += float64(bucket.GetCumulativeCount())
	}
	h.sum += of.GetSampleSum()
}

func (h histogram) count() float64 {
	if len(h.counts) == 0 {
		return 0
	}
	return h.counts[len(h.counts)-1]
}

// mean is NaN where nothing was observed.
func (h histogram) mean() float64 { return h.sum / h.count() }

// quantile is taken within its bucket as if the observations lay evenly there, as
// Prometheus does; NaN where nothing was observed.
func (h histogram) quantile(q float64) float64 {
	if h.count() == 0 {
		return math.NaN()
	}
	rank := q * h.count()
	i, _ := slices.BinarySearch(h.counts, rank)
	lower, before := 0.0, 0.0
	if i > 0 {
		lower, before = h.bounds[i-1], h.counts[i-1]
	}
	if math.IsInf(h.bounds[i], 1) {
		return lower
	}
	return lower + (h.bounds[i]-lower)*(rank-before)/(h.counts[i]-before)
}

// short writes a number for people.
func short(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v == math.Trunc(v) || v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
}

// lasting writes so many seconds for people.
func lasting(seconds float64) string {
	if math.IsNaN(seconds) {
		return "-"
	}
	d := time.Duration(seconds * float64(time.Second))
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 10).String()
		}
	}
	return "0s"
}
