package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// compare is the view of what happened between two readings.
func compare(from, to reading) []row {
	s := span{from, to}
	rows := []row{{"server", readiness(to)}, {"buy", purchases(s)}, {"latency", latency(s)}, {"locks", locks(s)}, {"groups", groups(s)}}
	if to.has("seckill_backlog_messages") || to.has("seckill_reconciler_elected") {
		rows = append(rows, row{"backlog", backlog(s)}, row{"repair", repair(s)}, row{"promises", promises(to)})
	}
	return append(rows, row{"http", answers(s)}, row{"conns", connections(to)}, row{"process", process(s)})
}

func readiness(r reading) string {
	var failing []string
	for check, ready := range r.by("seckill_check_ready", "check") {
		if ready < 1 {
			failing = append(failing, check)
		}
	}
	slices.Sort(failing)
	ready := "ready"
	if len(failing) > 0 {
		ready = "NOT READY: " + strings.Join(failing, ", ")
	}
	up := r.at.Sub(time.UnixMilli(int64(1000 * r.sum("process_start_time_seconds")))).Round(time.Second)
	return fmt.Sprintf("%s, up %s", ready, up)
}

// purchases are the attempts to buy by what became of them, the most frequent first.
func purchases(s span) string {
	rates := s.rates("seckill_orders_placed_total", "outcome")
	total := 0.0
	for _, rate := range rates {
		total += rate
	}
	parts := []string{short(total) + "/s"}
	outcomes := slices.SortedStableFunc(maps.Keys(rates), func(a, b string) int {
		if rates[a] == rates[b] {
			return strings.Compare(a, b)
		}
		if rates[a] > rates[b] {
			return -1
		}
		return 1
	})
	for _, outcome := range outcomes {
		if rates[outcome] > 0 || outcome == "OK" {
			parts = append(parts, outcome+" "+short(rates[outcome]))
		}
	}
	if total > 0 {
		parts = append(parts, fmt.Sprintf("(%s %% from memory)", short(100*s.rate("seckill_orders_answered_locally_total")/total)))
	}
	return strings.Join(parts, "  ")
}

func latency(s span) string {
	h := s.histogram("seckill_order_place_seconds")
	return fmt.Sprintf("p50 %s  p95 %s  p99 %s", lasting(h.quantile(0.5)), lasting(h.quantile(0.95)), lasting(h.quantile(0.99)))
}

func locks(s span) string {
	h := s.histogram("seckill_lock_wait_seconds")
	return fmt.Sprintf("%s/s  wait p50 %s  p99 %s  busy %s/s",
		short(h.count()/s.seconds()), lasting(h.quantile(0.5)), lasting(h.quantile(0.99)), short(s.rates("seckill_orders_placed_total", "outcome")["LOCK_BUSY"]))
}

// groups are how many orders shared a step on average, where any did.
func groups(s span) string {
	var parts []string
	for _, step := range []struct{ name, metric string }{
		{"transaction", "seckill_order_batch_size"},
		{"reserve", "seckill_reserve_group_size"},
		{"publish", "seckill_publish_group_size"},
		{"persist", "seckill_persist_group_size"},
	} {
		if s.to.has(step.metric) {
			parts = append(parts, step.name+" "+short(s.histogram(step.metric).mean()))
		}
	}
	return strings.Join(parts, "  ")
}

func backlog(s span) string {
	if s.to.has("seckill_backlog_known") && s.to.sum("seckill_backlog_known") == 0 {
		return "not known"
	}
	return fmt.Sprintf("%s messages  oldest %s  persisted %s/s in p99 %s  waiting clients %s",
		short(s.to.sum("seckill_backlog_messages")), lasting(s.to.sum("seckill_backlog_age_seconds")),
		short(s.rate("seckill_reservations_persisted_total")), lasting(s.histogram("seckill_persist_seconds").quantile(0.99)),
		short(s.to.sum("seckill_order_waits")))
}

func repair(s span) string {
	elected := "elsewhere"
	if s.to.sum("seckill_reconciler_elected") > 0 {
		elected = "here"
	}
	return fmt.Sprintf("reconciles %s  put right %s/s  rebuilding %s  units on their way back %s",
		elected, short(s.rate("seckill_reconciled_total")), short(s.to.sum("seckill_rebuilding")), short(s.to.sum("seckill_releases_waiting")))
}

func promises(r reading) string {
	return fmt.Sprintf("failed %s  dead letters %s  stuck %s  unreadable %s  drifted %s",
		short(r.sum("seckill_orders_failed_total")), short(r.sum("seckill_orders_buried_total")), short(r.sum("seckill_orders_buried_stuck_total")),
		short(r.sum("seckill_queue_unreadable_total")), short(r.sum("seckill_drifted_orders")))
}

// answers are those of every route, by the class of the status.
func answers(s span) string {
	const name = "seckill_http_request_duration_seconds"
	counts := func(r reading) map[byte]float64 {
		classes := make(map[byte]float64)
		for _, m := range r.families[name].GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "code" && label.GetValue() != "" {
					classes[label.GetValue()[0]] += float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		return classes
	}
	from, to := counts(s.from), counts(s.to)
	var parts []string
	for _, class := range []byte("2345") {
		parts = append(parts, fmt.Sprintf("%cxx %s/s", class, short(grown(from[class], to[class])/s.seconds())))
	}
	return strings.Join(parts, "  ")
}

func connections(r reading) string {
	open, most := r.by("seckill_connections_open", "listener"), r.by("seckill_connections_max", "listener")
	redis := r.by("seckill_redis_connections", "state")
	return fmt.Sprintf("clients %s of %s  database %s in use  redis %s of %s in use",
		short(open["main"]), short(most["main"]), short(r.sum("go_sql_in_use_connections")), short(redis["open"]-redis["idle"]), short(redis["open"]))
}

func process(s span) string {
	const mebibyte = 1 << 20
	return fmt.Sprintf("%s cores  %s MiB  %s goroutines",
		short(s.rate("process_cpu_seconds_total")), short(s.to.sum("process_resident_memory_bytes")/mebibyte), short(s.to.sum("go_goroutines")))
}
