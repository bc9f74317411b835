package bench

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// notableBacklog is from how many waiting orders on the drain after a run says something.
const notableBacklog = 2000

// round measures one case once: with the first number of connections in every round and with the others in the first
// one, and under the open load.
func (h *harness) round(round int, c workCase, b build, into *results) {
	h.Helper()
	s := h.begin(c, b, 1)
	defer s.end()
	w := s.prepare(s)
	closed(h.T, s.urls(), h.connections[0], 1, w) // everything is warm
	reached := 0.0
	for i, connections := range h.connections {
		if i > 0 && round > 0 {
			break
		}
		if c.sells {
			w = s.prepare(s)
		}
		figures := s.point(w, connections, b.name, c.name, strconv.Itoa(connections), into)
		if i == 0 {
			reached = figures[Rate]
		}
	}
	if !c.sells || reached == 0 {
		return
	}
	perSecond := max(1, int(reached/2))
	if h.openRate > 0 {
		perSecond = min(perSecond, h.openRate)
	}
	w = s.prepare(s)
	figures, err := s.measure(w, func() heard { return constant(h.T, s.instances[0].URL, perSecond, h.seconds, w) })
	if err != nil {
		h.fail("%s @open, %d/s: %v", c.name, perSecond, err)
		return
	}
	into.add(b.name, c.name, OpenLoad, figures)
}

// point measures work beside the yardstick: right before it and right after it.
func (s *session) point(w work, connections int, b, name, load string, into *results) Figures {
	s.Helper()
	s.drained()
	before := s.measureYardstick(connections)
	figures, err := s.measure(w, func() heard { return closed(s.T, s.urls(), connections, s.seconds, w) })
	yard := before.mean(s.measureYardstick(connections))
	if err != nil {
		s.fail("%s @%s: %v", name, load, err)
		return nil
	}
	figures.relate(yard)
	into.add("", yardstickName, strconv.Itoa(connections), yard.figures())
	into.add(b, name, load, figures)
	return figures
}

// yardstickName is the case of the yardstick's own rows.
const yardstickName = "yardstick"

// relate says what the figures are in yardsticks.
func (f Figures) relate(yard yardstickFigures) {
	f[Ratio] = f[Rate] / yard.rate()
	f[Cost] = (f[CPUProduct] + f[CPUMariaDB] + f[CPURedis] + f[CPUNATS]) / microseconds(yard.cpu)
}

// measure has work sent and holds the service to account. An error says that there are no figures.
func (s *session) measure(w work, send func() heard) (Figures, error) {
	s.Helper()
	for _, i := range s.instances {
		testserver.ForgetPeak(s, i.PID())
	}
	from := s.look(true)
	told := send()
	ended, persisted := time.Now(), 0.0
	if w.sells && s.mode == model.ModeAsync {
		persisted = sum(s.metrics(), persistedTotal)
	}
	var to, end look // of what is measured, and of the accounts
	drain := 0.0
	if s.ownProcess && w.sells { // the figures are those without a worker; then one drains what has gathered
		s.quiet()
		to = s.look(false)
		drain = s.drainAlone()
		end = s.look(false)
	} else {
		emptied := s.drained()
		to = s.look(false)
		end = to
		if left := sum(to.metrics, persistedTotal) - persisted; w.sells && left >= notableBacklog {
			drain = left / emptied.Sub(ended).Seconds()
		}
	}
	made := s.ledger(w, told, from, end)
	if err := made.check(); err != nil {
		return nil, err
	}
	f := s.figures(max(told.answers, made.rows), told, from, to)
	if w.sells && s.mode == model.ModeAsync {
		f[Persisted] = (persisted - sum(from.metrics, persistedTotal)) / told.took.Seconds()
	}
	if drain > 0 {
		f[Drain] = drain
	}
	return f, nil
}

const persistedTotal = "seckill_reservations_persisted_total"

// drainAlone lets one worker drain the queue, and returns its orders a second from its first transaction on.
func (s *session) drainAlone() float64 {
	s.Helper()
	s.worker = s.start("worker")
	defer s.dismiss()
	done := 0.0
	check.Must(s, eventually(s.Context(), longest, func() bool {
		done = sum(s.scrape(s.worker), persistedTotal)
		return done > 0 || s.queued() == 0
	}))
	first, before := time.Now(), done
	at := s.drained()
	if done = sum(s.scrape(s.worker), persistedTotal); done-before < notableBacklog {
		return 0
	}
	return (done - before) / at.Sub(first).Seconds()
}

// figures are those of so many orders, between two looks.
func (s *session) figures(orders int, told heard, from, to look) Figures {
	s.Helper()
	n := float64(orders)
	f := Figures{
		Rate: told.rate(), P50: milliseconds(told.p50), P99: milliseconds(told.p99), P999: milliseconds(told.p999),
		CPULoad: microseconds(told.cpu) / n,
	}
	for _, process := range []Figure{CPUProduct, CPUMariaDB, CPURedis, CPUNATS} {
		f[process] = microseconds(to.cpu[process]-from.cpu[process]) / n
	}
	counted, status := grown(from.metrics, to.metrics), grown(from.status, to.status)
	f[Allocs] = counted["go_memstats_mallocs_total"] / n
	f[Bytes] = counted["go_memstats_alloc_bytes_total"] / n
	f[Redis] = addAll(grown(from.redis, to.redis)) / n
	f[Statements] = statements(status) / n
	f[Fsyncs] = fsyncs(status) / n
	f[Messages] = float64(to.stored-from.stored) / n
	for figure, name := range map[Figure]string{
		Reserve: "seckill_reserve_group_size", Publish: "seckill_publish_group_size",
		Persist: "seckill_persist_group_size", Commit: "seckill_order_batch_size",
	} {
		if groups := counted[name+"_count"]; groups > 0 {
			f[figure] = counted[name+"_sum"] / groups
		}
	}
	for _, i := range s.processes() {
		f[Memory] += float64(testserver.PeakMemory(s, i.PID())) / (1 << 20)
	}
	return f
}

// fsyncs are MariaDB's: InnoDB counts those of its log among those of its data.
func fsyncs(status map[string]float64) float64 { return status["Innodb_data_fsyncs"] }

// ledger is what a measurement is held to account with.
type ledger struct {
	work
	heard
	rows             int // orders of the voucher in the database that were made meanwhile
	stock, remaining int
	placed           float64 // attempts to buy by the outcome that all are to have
	fsyncs           float64
	messages         uint64
	async            bool
	audit            error
}

func (s *session) ledger(w work, told heard, from, to look) ledger {
	s.Helper()
	l := ledger{work: w, heard: told, async: s.mode == model.ModeAsync, messages: to.stored - from.stored}
	counted := grown(from.metrics, to.metrics)
	l.fsyncs = fsyncs(grown(from.status, to.status))
	if w.sells {
		total := s.rows(w.voucher)
		l.rows = total - w.sold
		check.Must(s, s.db.QueryRowContext(s.Context(), "SELECT SUM(stock), SUM(remaining) FROM "+s.schema+".vouchers WHERE ? IN (id, '')",
			w.voucher).Scan(&l.stock, &l.remaining))
		if w.voucher != "" { // many are audited when the session ends
			l.audit = s.agrees(w.voucher)
		}
	}
	if w.code != "" {
		l.placed = sum(counted, "seckill_orders_placed_total", `outcome="`+string(w.code)+`"`)
	}
	return l
}

// rows counts the orders of a voucher, or all of them.
func (s *session) rows(voucher string) (count int) {
	s.Helper()
	check.Must(s, s.db.QueryRowContext(s.Context(), "SELECT COUNT(*) FROM "+s.schema+".orders WHERE ? IN (voucher_id, '')", voucher).Scan(&count))
	return count
}

// agrees waits until the database, Redis and the queue agree about a voucher, in number and by id.
func (s *session) agrees(voucher string) error {
	s.Helper()
	var audit model.Audit
	err := eventually(s.Context(), longest, func() bool {
		audit = s.instances[0].Audit(s, voucher)
		d, r := audit.Database, audit.Redis
		return audit.Balanced && d.Stock == d.Remaining+d.LiveOrders && (audit.Queue == nil || audit.Queue.Pending == 0) &&
			(r == nil || r.Reserved == 0 && r.Remaining == d.Remaining && r.Buyers == d.LiveOrders)
	})
	if err != nil {
		return fmt.Errorf("the audit does not balance: %w: %+v %+v", err, audit, audit.Redis)
	}
	return nil
}

// check says what does not add up.
func (l ledger) check() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(l.audit != nil, "%w", l.audit)
	refuse(l.answers == 0, "there was no answer")
	refuse(l.broken > 0, "%d requests had no answer, or a late one", l.broken)
	switch {
	case l.sells:
		refuse(l.refused > 0, "%d of %d orders were refused", l.refused, l.answers)
		refuse(l.rows < l.answers || l.rows > l.answers+l.unheard, "%d orders were accepted (and %d at most unheard), and there are %d rows", l.answers, l.unheard, l.rows)
		refuse(l.stock != l.remaining+l.sold+l.rows, "of %d units %d remain, and %d are sold", l.stock, l.remaining, l.sold+l.rows)
		refuse(l.fsyncs <= 0, "the database wrote %d orders without an fsync", l.rows)
		refuse(l.async && l.messages == 0, "the queue stored no message for %d orders", l.rows)
	case l.code != "":
		refuse(l.refused != l.answers, "%d of %d answers were no refusal", l.answers-l.refused, l.answers)
		refuse(l.placed < float64(l.answers) || l.placed > float64(l.answers+l.unheard), "%d answers, and the service counts %.0f × %s", l.answers, l.placed, l.code)
	default:
		refuse(l.refused > 0, "%d of %d answers were refusals", l.refused, l.answers)
	}
	return errors.Join(errs...)
}
