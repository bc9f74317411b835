//part:packaging

package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// series are what may grow, and how it is measured at one size.
var series = map[string]func(*harness, workCase, int, *results){
	"buyers":      (*harness).buyers,
	"vouchers":    (*harness).vouchers,
	"instances":   (*harness).instances,
	"connections": (*harness).manyConnections,
	"neighbours":  (*harness).neighbours,
	"hot":         (*harness).hot,
	"overload":    (*harness).overload,
}

// What an order costs when there is more of something. Long version: make bench-scale. In make test there is no series.
//
//nolint:paralleltest // what it measures is not for a machine that is busy with other tests
func TestScale(t *testing.T) {
	o := readOptions(t)
	o.rounds = max(1, o.rounds)
	asked := strings.Fields(text("BENCH_SERIES", map[bool]string{true: "buyers=500"}[check.Faults]))
	if len(asked) == 0 {
		check.Equal(t, "series that there are", len(series), 7)
		return
	}
	h := open(t, o)
	results := newResults()
	for round := range o.rounds {
		for _, field := range asked {
			if round == 0 || !takesMinutes(field) {
				h.grow(field, results)
			}
		}
	}
	report := h.report(results)
	fmt.Fprint(os.Stdout, report.Text())
	h.record(report, Scale)
}

// takesMinutes reports whether a series is measured in the first round only. Its figures are those of half a minute each.
func takesMinutes(field string) bool { return strings.HasPrefix(field, "neighbours") }

// grow measures one series: "vouchers=1,100".
func (h *harness) grow(field string, into *results) {
	h.Helper()
	name, list, _ := strings.Cut(field, "=")
	grow, known := series[name]
	if !known {
		h.Fatalf("there is no series %q", name)
	}
	for size := range strings.SplitSeq(list, ",") {
		for _, c := range h.chosen() {
			began := time.Now()
			grow(h, c, check.Value(strconv.Atoi(size))(h), into)
			h.Logf("%s, %s %s: %v", c.name, size, name, time.Since(began).Round(time.Millisecond))
			if !into.has(c.name+seriesMark+name, size) {
				h.Errorf("%s: %s %s have no figures", c.name, size, name)
			}
		}
	}
}

func (r *results) has(name, load string) bool { return len(r.all[rowKey{"", name, load}]) > 0 }

// buyers measures orders of a voucher that so many have bought already, and the memory that they take.
func (h *harness) buyers(c workCase, size int, into *results) {
	h.Helper()
	s := h.begin(c, h.builds[0], 1)
	defer s.end()
	empty := s.redisMemory()
	w := s.selling()
	all := writeTokens(h.T, h.authority, size+2*h.mostOrders*h.seconds)
	for used, rate := 0, 10_000.0; w.sold < size; w.sold = s.rows(w.voucher) {
		// Seconds of a load, so that the last is not much longer than needed.
		seconds := min(10, max(1, int(float64(size-w.sold)/rate)))
		told := closed(h.T, s.urls(), h.connections[0], seconds, w.on(&records{path: all.path, width: all.width, begin: used, count: all.count - used}))
		if told.answers == 0 || told.refused > 0 {
			h.Fatalf("%d of %d orders were refused", told.refused, told.answers)
		}
		rate = told.rate()
		used += told.answers + told.unheard + 1 // who was not answered may have bought
		s.drained()
		w = w.on(&records{path: all.path, width: all.width, begin: used, count: all.count - used})
	}
	figures := s.point(w, h.connections[0], "", c.name+seriesMark+"buyers", strconv.Itoa(size), into)
	if figures != nil && s.mode == model.ModeAsync {
		figures[BuyerBytes] = (s.redisMemory() - empty) / float64(s.rows(w.voucher))
	}
}

// redisMemory is what Redis uses, in bytes.
func (s *session) redisMemory() float64 {
	s.Helper()
	fields := colonFields(check.Value(s.memory.Info(s.Context(), "memory").Result())(s))
	return check.Value(strconv.ParseFloat(fields["used_memory"], 64))(s)
}

// vouchers measures orders that are spread over so many vouchers.
func (h *harness) vouchers(c workCase, size int, into *results) {
	h.Helper()
	s := h.begin(c, h.builds[0], 1)
	defer s.end()
	s.onSaleAtOnce(size)
	endings := s.spreadOver(1, size, 2*h.mostOrders*h.seconds)
	w := work{head: "POST /api/v1/vouchers/", records: endings.part(0, 2), sells: true}
	closed(h.T, s.urls(), h.connections[0], 1, w.on(endings.part(1, 2)))
	s.drained()
	w.sold = s.rows("")
	s.point(w, h.connections[0], "", c.name+seriesMark+"vouchers", strconv.Itoa(size), into)
}

// onSaleAtOnce puts so many vouchers on sale: v000001 and so on.
func (s *session) onSaleAtOnce(count int) {
	s.Helper()
	check.Value(s.db.ExecContext(s.Context(), `INSERT INTO `+s.schema+`.vouchers
		(id, title, description, price, face_value, currency, stock, remaining, begin_at, end_at, state, version, created_at)
		SELECT CONCAT('v', LPAD(seq, 6, '0')), 'one of many', '', 1000, 2000, 'CNY', 1000000, 1000000, UTC_TIMESTAMP(6) - INTERVAL 1 HOUR,
			UTC_TIMESTAMP(6) + INTERVAL 1 DAY, 'published', 1, UTC_TIMESTAMP(6) FROM `+s.schema+`.seq_1_to_1000000 WHERE seq <= ?`, count))(s)
	if s.mode == model.ModeAsync {
		check.Must(s, eventually(s.Context(), longest, func() bool {
			var closed int
			check.Must(s, s.db.QueryRowContext(s.Context(),
				"SELECT COUNT(*) FROM "+s.schema+".vouchers WHERE copy_epoch = 0 OR copy_open_epoch <> copy_epoch").Scan(&closed))
			return closed == 0
		}))
	}
}

// spreadOver are the ends of requests to buy vouchers in turn, from one number on, each by a user of its own.
func (s *session) spreadOver(first, vouchers, requests int) *records {
	s.Helper()
	endings, write, done := newRecords(s.T, "spread")
	for n := range requests {
		write(fmt.Sprintf("v%06d/seckill HTTP/1.1\r\nHost: seckill\r\nContent-Length: 0\r\nAuthorization: Bearer %s\r\n\r\n",
			first+n%vouchers, bearer(s.T, s.authority, userName(n))))
	}
	done()
	return endings
}

// instances measures orders of one voucher that are spread over so many instances.
func (h *harness) instances(c workCase, size int, into *results) {
	h.Helper()
	h.spread(c, size, h.connections[0], c.name+seriesMark+"instances", size, into)
}

// manyConnections measures orders of one voucher on so many connections.
func (h *harness) manyConnections(c workCase, size int, into *results) {
	h.Helper()
	h.spread(c, 1, size, c.name+seriesMark+"connections", size, into)
}

func (h *harness) spread(c workCase, instances, connections int, name string, size int, into *results) {
	h.Helper()
	s := h.begin(c, h.builds[0], instances)
	defer s.end()
	closed(h.T, s.urls(), connections, 1, s.selling())
	s.point(s.selling(), connections, "", name, strconv.Itoa(size), into)
}
