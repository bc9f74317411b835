// Package telemetry holds what the service counts about itself. What takes more than one Prometheus call has a method.
package telemetry

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"seckill/internal/budget"
	"seckill/internal/token"
	"seckill/internal/version"
	"seckill/model"
)

// Counters are counters by label, for packages that know no library of metrics.
type Counters = prometheus.CounterVec

// Gauge is one gauge, likewise.
type Gauge = prometheus.Gauge

// Gauges are gauges by label, likewise.
type Gauges = prometheus.GaugeVec

type registry struct{ prometheus.Registerer }

func (r registry) counter(name, help string) prometheus.Counter {
	return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// counters makes a counter for each known value, from zero: a series born with 1 shows Prometheus no increase.
func (r registry) counters(name, label, help string, known ...string) *prometheus.CounterVec {
	vec := r.pairs(name, help, label)
	for _, value := range known {
		vec.WithLabelValues(value)
	}
	return vec
}

func (r registry) pairs(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (r registry) gauge(name, help string) prometheus.Gauge {
	return promauto.With(r).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func (r registry) gauges(name, label, help string) *prometheus.GaugeVec {
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
}

func (r registry) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return promauto.With(r).NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// sizes are the buckets of orders that were handled together: 500 at the most.
func sizes() []float64 { return prometheus.ExponentialBuckets(1, 2, 10) }

// Sizes is a histogram as a function of a number.
func Sizes(of prometheus.Observer) func(n int) { return func(n int) { of.Observe(float64(n)) } }

// Metrics count the attempts to buy.
type Metrics struct {
	placed    *prometheus.CounterVec
	placing   *prometheus.HistogramVec
	Local     prometheus.Counter
	Batch     prometheus.Histogram // orders
	LockWait  prometheus.Histogram // seconds
	Unknown   prometheus.Counter
	Hit, Miss prometheus.Counter // reads of the copies of vouchers
}

// New registers the metrics.
func New(registerer prometheus.Registerer) *Metrics {
	// From a local answer to the longest one the contract allows (seconds).
	buckets := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 6}
	r := registry{registerer}
	reads := r.counters("seckill_voucher_copy_reads_total", "result",
		"Reads of this instance's copies of vouchers, by hit or miss.")
	m := &Metrics{
		placed: r.counters("seckill_orders_placed_total", "outcome",
			"Attempts to buy, by what became of them (OK or the problem's code).", "OK"),
		placing: promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
			Name: "seckill_order_place_seconds",
			Help: "How long an attempt to buy took, by what became of it.", Buckets: buckets,
		}, []string{"outcome"}),
		Local: r.counter("seckill_orders_answered_locally_total",
			"Attempts to buy that were answered from this instance's memory."),
		Batch:    r.histogram("seckill_order_batch_size", "Orders that shared one transaction.", sizes()),
		LockWait: r.histogram("seckill_lock_wait_seconds", "How long the user's lock took to get.", buckets),
		Unknown: r.counter("seckill_orders_unknown_total",
			"Orders whose client was answered before it was known what became of them."),
		Hit:  reads.WithLabelValues("hit"),
		Miss: reads.WithLabelValues("miss"),
	}
	m.placing.WithLabelValues("OK") // from zero, see registry.counters
	return m
}

// Placed counts one attempt to buy by its outcome.
func (m *Metrics) Placed(outcome string, took time.Duration) {
	m.placed.WithLabelValues(outcome).Inc()
	m.placing.WithLabelValues(outcome).Observe(took.Seconds())
}

// Sale gathers attempts, how long they take, and the backlog (nil: no queue), from memory alone, unlike NewChecks.
func Sale(attempts *Metrics, backlog *Admission) prometheus.Gatherer {
	shown := prometheus.NewRegistry()
	shown.MustRegister(attempts.placed, attempts.placing)
	if backlog != nil {
		shown.MustRegister(backlog.age, backlog.messages, backlog.Known)
	}
	return shown
}

// Admission counts asynchronous orders on their way into the queue.
type Admission struct {
	Reserved    prometheus.Histogram
	Published   prometheus.Histogram
	Unpublished prometheus.Counter
	Unconfirmed prometheus.Counter
	NotLoaded   prometheus.Counter
	StaleMarks  *prometheus.CounterVec // by action
	Known       prometheus.Gauge       // whether the queue tells its backlog
	Refused     prometheus.Counter     // for the backlog
	Waiting     prometheus.Gauge
	age         prometheus.Gauge
	messages    prometheus.Gauge
}

// NewAdmission registers the metrics.
func NewAdmission(registerer prometheus.Registerer) *Admission {
	r := registry{registerer}
	return &Admission{
		Reserved:  r.histogram("seckill_reserve_group_size", "Orders that shared one call to the hot copies.", sizes()),
		Published: r.histogram("seckill_publish_group_size", "Orders that shared one message.", sizes()),
		Unpublished: r.counter("seckill_orders_unpublished_total",
			"Reserved orders whose message was not acknowledged in time. They are published again."),
		Unconfirmed: r.counter("seckill_orders_unconfirmed_total",
			"Published orders that were not promised, because their hot copy was closed or replaced meanwhile."),
		NotLoaded: r.counter("seckill_orders_not_loaded_total", "Attempts to buy that met a closed hot copy."),
		StaleMarks: r.counters("seckill_stale_marks_total", "action",
			"Buyers' marks of closed orders that stood in somebody's way, by what was found: released, a unit that was "+
				"given back; refused by the database, or lost there: the hot copy is stale.", "released", "refused", "lost"),
		age: r.gauge("seckill_backlog_age_seconds",
			"How long the oldest message has been waiting in the queue, as last seen."),
		messages: r.gauge("seckill_backlog_messages", "Messages that wait in the queue, as last seen."),
		Known:    r.gauge("seckill_backlog_known", "1 while the queue tells its backlog; 0 refuses orders before long."),
		Refused: r.counter("seckill_orders_refused_for_backlog_total",
			"Attempts to buy that were refused because the backlog is too old, or not known."),
		Waiting: r.gauge("seckill_order_waits", "Requests that wait for an order to leave processing."),
	}
}

// Backlog says what waits in the queue.
func (m *Admission) Backlog(age time.Duration, messages int64) {
	m.age.Set(age.Seconds())
	m.messages.Set(float64(messages))
	m.Known.Set(1)
}

// Worker counts what happens behind the requests: persisting, settling, reconciling and rebuilding.
type Worker struct {
	Persisted       *prometheus.CounterVec // by status
	Failed          *prometheus.CounterVec // by reason
	Buried          prometheus.Counter
	Stuck           prometheus.Counter // dead letters without a failed row
	Unsettled       prometheus.Counter
	Reconciled      *prometheus.CounterVec // by action
	ReleasesWaiting prometheus.Gauge
	Drift           *OffVouchers
	rebuilds        *prometheus.CounterVec
	rebuilding      prometheus.Gauge
	rebuildFor      prometheus.Histogram
}

// NewWorker registers the metrics.
func NewWorker(registerer prometheus.Registerer) *Worker {
	r := registry{registerer}
	return &Worker{
		Persisted: r.counters("seckill_reservations_persisted_total", "status",
			"Reservations that became a row, by its status.",
			string(model.OrderUnpaid), string(model.OrderPaid), string(model.OrderFailed)),
		Failed: r.counters("seckill_orders_failed_total", "reason", "Orders that were admitted and then failed.",
			model.ReasonSoldOut, model.ReasonAlreadyOrdered, model.ReasonSuperseded, model.ReasonUnprocessable),
		Buried: r.counter("seckill_orders_buried_total", "Orders that went to the dead letters."),
		Stuck: r.counter("seckill_orders_buried_stuck_total",
			"Dead letters whose failed row could not be written: their messages come again, and an operator must look."),
		Unsettled: r.counter("seckill_settle_failures_total",
			"Calls to hot copies that failed after a commit; the reconciler repeats them."),
		Reconciled: r.counters("seckill_reconciled_total", "action",
			"What the reconciler put right, by what it did: settled, republished, relayed, applied, intent, rebuild.",
			"settled", "republished", "relayed", "applied", "intent", "rebuild"),
		rebuilds: r.counters("seckill_rebuilds_total", "result",
			"Rebuilds of hot copies, by result: done, superseded, failed.", "done", "superseded", "failed"),
		rebuilding: r.gauge("seckill_rebuilding", "Rebuilds under way on this instance."),
		rebuildFor: r.histogram("seckill_rebuild_seconds", "How long a voucher's rebuild took.",
			// From an empty voucher to one that waits for a long queue (seconds).
			[]float64{.01, .05, .1, .25, .5, 1, 2, 3, 5, 10, 30, 60, 300}),
		ReleasesWaiting: r.gauge("seckill_releases_waiting",
			"Returned units that a hot copy does not know of yet, as last seen."),
		Drift: offVouchers(r, "seckill_drifted_orders",
			"Orders that did not add up at the latest check of a voucher, where there were any."),
	}
}

// RebuildBegan counts a rebuild under way; the function ends it.
func (m *Worker) RebuildBegan() func(result string) {
	began := time.Now()
	m.rebuilding.Inc()
	return func(result string) {
		m.rebuilding.Dec()
		m.rebuilds.WithLabelValues(result).Inc()
		if result == "done" {
			m.rebuildFor.Observe(time.Since(began).Seconds())
		}
	}
}

// OffVouchers tells by how much vouchers do not add up. One that does has no series, so that their number stays small.
type OffVouchers struct {
	gauges *prometheus.GaugeVec

	mu  sync.Mutex
	ids map[string]bool
}

func offVouchers(r registry, name, help string) *OffVouchers {
	return &OffVouchers{gauges: r.gauges(name, "voucher_id", help), ids: map[string]bool{}}
}

// NewSamples registers the metric of vouchers that do not add up in the database.
func NewSamples(registerer prometheus.Registerer) *OffVouchers {
	return offVouchers(registry{registerer}, "seckill_voucher_units_off",
		"Stock less what remains less live orders of a voucher in the database, where that is not 0.")
}

// Set says by how much a voucher is off.
func (m *OffVouchers) Set(voucherID string, by int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if by == 0 {
		m.gauges.DeleteLabelValues(voucherID)
		delete(m.ids, voucherID)
		return
	}
	m.gauges.WithLabelValues(voucherID).Set(float64(by))
	m.ids[voucherID] = true
}

// Reset says that nobody looks here any more.
func (m *OffVouchers) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gauges.Reset()
	clear(m.ids)
}

// IDs are the vouchers that are off.
func (m *OffVouchers) IDs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.ids))
}

// Delivery counts what the queue hands to a worker.
type Delivery struct {
	Unreadable                         prometheus.Counter
	Acked, Moved, Delayed, Redelivered prometheus.Counter // messages
	orders                             prometheus.Histogram
	took                               prometheus.Histogram
}

// NewDelivery registers the metrics.
func NewDelivery(registerer prometheus.Registerer) *Delivery {
	r := registry{registerer}
	messages := r.counters("seckill_queue_messages_total", "result",
		"Messages of the queue, by what became of them: acked, moved (their orders wait in messages of their voucher), "+
			"delayed (they come again), redelivered (they came again).")
	return &Delivery{
		orders: r.histogram("seckill_persist_group_size", "Orders that were persisted together.", sizes()),
		took: r.histogram("seckill_persist_seconds", "How long it took to persist them and to tell the hot copies.",
			// From a lone order to a transaction that ran into its time limit (seconds).
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}),
		Acked: messages.WithLabelValues("acked"), Moved: messages.WithLabelValues("moved"),
		Delayed: messages.WithLabelValues("delayed"), Redelivered: messages.WithLabelValues("redelivered"),
		Unreadable: r.counter("seckill_queue_unreadable_total",
			"Orders, or whole messages, that could not be read and went to the dead letters."),
	}
}

// Persisted counts orders that were persisted together.
func (m *Delivery) Persisted(orders int, took time.Duration) {
	if orders > 0 {
		m.orders.Observe(float64(orders))
		m.took.Observe(took.Seconds())
	}
}

// Expiry counts the orders that were not paid in time, and who waits for their units.
type Expiry struct {
	Expired, Paused prometheus.Counter
	Waiting, Held   prometheus.Gauge // users who wait, and units that should be theirs by now
}

// NewExpiry registers the metrics.
func NewExpiry(registerer prometheus.Registerer) *Expiry {
	r := registry{registerer}
	return &Expiry{
		Expired: r.counter("seckill_orders_expired_total", "Orders that were not paid in time."),
		Paused: r.counter("seckill_expiry_paused_total",
			"Times an overdue order was left alone, because the database's clock has leapt ahead by more than its "+
				"payment window."),
		Waiting: r.gauge("seckill_waitlist_waiting", "Users who wait for a unit of a sold-out voucher, as last seen."),
		Held: r.gauge("seckill_waitlist_held",
			"Units that came back a minute ago or more while users wait, and that no order has got or that no hot "+
				"copy knows of, as last seen."),
	}
}

// UnknownType is the outcome of a webhook of a type that is not known, which changes nothing.
const UnknownType = "UNKNOWN_TYPE"

// UsedUnpaid is the outcome of news that the money of a used order went back, or is disputed.
const UsedUnpaid = "USED_UNPAID"

// Payments count what the provider says, by source and outcome, and refunds by their outcome.
type Payments struct{ Notices, Refunds *prometheus.CounterVec }

// NewPayments registers the metrics.
func NewPayments(registerer prometheus.Registerer) *Payments {
	r := registry{registerer}
	m := &Payments{
		Notices: r.pairs("seckill_payment_notices_total",
			"What the payment provider said, by webhook or when it was asked, by what became of it (OK, "+
				"UNKNOWN_TYPE, USED_UNPAID or the problem's code).",
			"source", "outcome"),
		Refunds: r.counters("seckill_refund_attempts_total", "outcome",
			"Attempts to refund, by what became of them: done, later or failed for good.",
			"done", "later", "failed"),
	}
	for _, source := range []string{"webhook", "question"} {
		for _, outcome := range []string{"OK", UsedUnpaid, string(model.CodeValidation)} {
			m.Notices.WithLabelValues(source, outcome)
		}
	}
	for _, outcome := range []string{UnknownType, string(model.CodeUnauthenticated)} {
		m.Notices.WithLabelValues("webhook", outcome)
	}
	return m
}

// NewAccounts registers the counter of calls that hash a password, by action and outcome.
func NewAccounts(registerer prometheus.Registerer) *Counters {
	attempts := registry{registerer}.pairs("seckill_account_attempts_total",
		"Calls that hash a password (login, register, password), by what became of them (OK or the problem's "+
			"code).", "action", "outcome")
	for _, action := range []string{"login", "register", "password"} {
		attempts.WithLabelValues(action, "OK") // from zero, see registry.counters
	}
	return attempts
}

// NewTokens registers the counter of refused tokens, which begins at zero for each issuer and reason.
func NewTokens(registerer prometheus.Registerer, issuers ...string) *Counters {
	refused := registry{registerer}.pairs("seckill_tokens_refused_total",
		"Tokens that were refused, by the issuer that they name and the step or claim that was wrong.", "issuer",
		"reason")
	for _, issuer := range append(issuers, token.Stranger) {
		for _, reason := range token.Reasons() {
			refused.WithLabelValues(issuer, string(reason))
		}
	}
	return refused
}

// NewTracing registers the counter of spans that ended, by their result.
func NewTracing(registerer prometheus.Registerer) *Counters {
	return registry{registerer}.counters("seckill_trace_spans_total", "result",
		"Spans of traces that ended, by what became of them: exported, dropped (too many waited), failed (the "+
			"collector did not take them).",
		"exported", "dropped", "failed")
}

// NewDraws registers how many seconds ago the sale ended whose draw is overdue longest.
func NewDraws(registerer prometheus.Registerer) Gauge {
	return registry{registerer}.gauge("seckill_draw_overdue_seconds",
		"How long ago the sale ended whose draw is to be done; 0: none is.")
}

// Events are what receivers of events wait for, in seconds, and what was sent to them, by receiver (stream, or the host
// of a URL) and outcome.
type Events struct {
	Waiting *Gauges
	Sent    *Counters
}

// NewEvents registers the metrics.
func NewEvents(registerer prometheus.Registerer) *Events {
	r := registry{registerer}
	m := &Events{
		Waiting: r.gauges("seckill_events_waiting_seconds", "receiver",
			"How long ago the oldest event happened that a receiver (stream, or the host of a URL) has not taken; 0: none is."),
		Sent: r.pairs("seckill_events_sent_total",
			"Events that a receiver has taken (delivered), and attempts that it did not answer well (failed).",
			"receiver", "outcome"),
	}
	m.Waiting.WithLabelValues("stream")
	for _, outcome := range []string{"delivered", "failed"} {
		m.Sent.WithLabelValues("stream", outcome)
	}
	return m
}

// NewClocks registers by how many seconds the clock of a server is ahead of this instance's.
func NewClocks(registerer prometheus.Registerer) *Gauges {
	return registry{registerer}.gauges("seckill_clock_offset_seconds", "server",
		"By how much the clock of the database, or of Redis, is ahead of this instance's.")
}

// NewElections registers which jobs this instance does, that one instance does at a time.
func NewElections(registerer prometheus.Registerer) *Gauges {
	return registry{registerer}.gauges("seckill_elected", "job",
		"1 on the instance that does a job for all: reconciler, expiry, draw, events, receivers, samples.")
}

// NewBuild registers a gauge that is always 1: its labels say which build runs.
func NewBuild(registerer prometheus.Registerer, build version.Build) {
	promauto.With(registerer).NewGauge(prometheus.GaugeOpts{
		Name:        "seckill_build_info",
		Help:        "1 for the build that runs, with its version, the commit of its source, and the version of Go.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Commit, "goversion": build.Go},
	}).Set(1)
}

type checks struct {
	ready *prometheus.Desc
	ask   func() map[string]error
}

// NewChecks is the metric of the readiness checks. The function asks all by name and bounds itself: a scrape waits.
func NewChecks(ask func() map[string]error) prometheus.Collector {
	return checks{ask: ask, ready: prometheus.NewDesc("seckill_check_ready",
		"1 for each readiness check that passes as the metrics are read, else 0.", []string{"check"}, nil)}
}

func (c checks) Describe(ch chan<- *prometheus.Desc) { ch <- c.ready }

func (c checks) Collect(ch chan<- prometheus.Metric) {
	for name, err := range c.ask() {
		ready := 1.0
		if err != nil {
			ready = 0
		}
		ch <- prometheus.MustNewConstMetric(c.ready, prometheus.GaugeValue, ready, name)
	}
}

const maxTallies = 64 // vouchers are told at once: those that were asked for last

// Tallies count the attempts to buy each existing voucher. The zero Tallies has counted none.
type Tallies struct {
	mu      sync.Mutex
	counted map[string]*tally // by voucher
}

type tally struct {
	first, latest time.Time
	told, stored  bool // nothing has come since Changed, or since Unstored
	heard         map[string]*model.Heard
}

// Placed counts an attempt.
func (t *Tallies) Placed(voucherID, outcome string, took time.Duration) {
	if t == nil || outcome == string(model.CodeNotFound) || outcome == string(model.CodeValidation) {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counted == nil {
		t.counted = map[string]*tally{}
	}
	of := t.counted[voucherID]
	if of == nil {
		of = &tally{first: now, heard: map[string]*model.Heard{}}
		t.counted[voucherID] = of
	}
	of.latest, of.told, of.stored = now, false, false
	heard := of.heard[outcome]
	if heard == nil {
		heard = &model.Heard{First: now.UTC(), Took: make([]uint64, len(tallyBounds)+1)}
		of.heard[outcome] = heard
	}
	n, _ := slices.BinarySearch(tallyBounds, took.Seconds())
	heard.Took[n]++
	step := model.StepAt(heard.First, now)
	if more := step + 1 - len(heard.Steps); more > 0 {
		heard.Steps = append(heard.Steps, make([]uint32, more)...)
	}
	heard.Steps[step]++
}

var tallyBounds = model.TallyBounds() //nolint:gochecknoglobals // constant

// Changed are the tallies of the vouchers in demand that have grown since the last call.
func (t *Tallies) Changed() map[string]model.Tally {
	now := time.Now().UTC()
	t.mu.Lock()
	defer t.mu.Unlock()
	grown := slices.DeleteFunc(slices.Collect(maps.Keys(t.counted)), func(id string) bool { return t.counted[id].told })
	slices.SortFunc(grown, func(a, b string) int { return t.counted[b].latest.Compare(t.counted[a].latest) })
	changed := map[string]model.Tally{}
	for _, id := range grown[:min(len(grown), maxTallies)] {
		of := t.counted[id]
		of.told = true
		tally := model.Tally{At: now, Placed: map[string]uint64{}, Took: make([]uint64, len(tallyBounds)+1)}
		for outcome, heard := range of.heard {
			tally.Placed[outcome] = heard.Attempts()
			for n, attempts := range heard.Took {
				tally.Took[n] += attempts
			}
		}
		changed[id] = tally
	}
	return changed
}

// Unstored is what was counted of each voucher since the first attempt, where that has grown since the last call.
func (t *Tallies) Unstored() map[string]model.Counted {
	t.mu.Lock()
	defer t.mu.Unlock()
	unstored := map[string]model.Counted{}
	for id, of := range t.counted {
		if !of.stored {
			of.stored = true
			heard := make(map[string]*model.Heard, len(of.heard))
			for outcome, one := range of.heard {
				heard[outcome] = &model.Heard{First: one.First, Took: slices.Clone(one.Took), Steps: slices.Clone(one.Steps)}
			}
			unstored[id] = model.Counted{First: of.first.UTC(), Latest: of.latest.UTC(), ByCode: heard}
		}
	}
	return unstored
}

// Trouble logs a failure and its end once: one is information (a busy machine), a second a warning. Its zero is well.
type Trouble struct {
	mu     sync.Mutex
	first  time.Time // of the failures that are counted; zero: nothing has failed yet
	failed bool      // the latest that was logged is a failure
	warned bool      // and a warning
}

// Note takes the error of the latest try, nil when it went well, and what to log when that is new, with the error.
//
//nolint:sloglint // the callers' texts are constants
func (t *Trouble) Note(ctx context.Context, log *slog.Logger, err error, fails, well string, attrs ...slog.Attr) {
	level, news := t.note(err)
	switch {
	case !news:
	case err != nil:
		log.LogAttrs(ctx, level, fails, append(attrs, slog.Any("error", err))...)
	default:
		log.LogAttrs(ctx, level, well, attrs...)
	}
}

// note reports whether a try's outcome is news, and how much it matters.
func (t *Trouble) note(err error) (level slog.Level, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		news = t.failed
		t.failed, t.warned = false, false
		return slog.LevelInfo, news
	}
	age := time.Since(t.first)
	switch {
	case t.warned, !t.first.IsZero() && age < budget.Brief:
		return level, false
	case t.failed, !t.first.IsZero() && age < budget.Survey:
		t.failed, t.warned = true, true
		return slog.LevelWarn, true
	default:
		t.first, t.failed = time.Now(), true
		return slog.LevelInfo, true
	}
}
