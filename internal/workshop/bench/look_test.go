package bench

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// look is everything that is counted, at one moment.
type look struct {
	cpu     map[Figure]time.Duration
	metrics map[string]float64 // of all processes of the service together
	status  map[string]float64 // of MariaDB
	redis   map[string]float64 // commands of all Redis together
	stored  uint64             // messages
}

// look looks at the CPU last before a measurement, and first after it, so that looking is no part of it.
func (s *session) look(before bool) look {
	s.Helper()
	var l look
	if !before {
		l.cpu = s.cpu()
	}
	l.metrics, l.status, l.redis = s.metrics(), s.status(), s.commands()
	_, l.stored = s.stored()
	if before {
		l.cpu = s.cpu()
	}
	return l
}

func (s *session) cpu() map[Figure]time.Duration {
	s.Helper()
	cpu := map[Figure]time.Duration{
		CPUMariaDB: testserver.CPU(s, s.database.PID()), CPURedis: testserver.CPU(s, s.redis.PID()), CPUNATS: testserver.CPU(s, s.nats.PID()),
	}
	for _, i := range s.processes() {
		cpu[CPUProduct] += testserver.CPU(s, i.PID())
	}
	for _, server := range s.harness.locks {
		cpu[CPURedis] += testserver.CPU(s, server.PID())
	}
	return cpu
}

// metrics adds up what the processes of the service count.
func (s *session) metrics() map[string]float64 {
	s.Helper()
	all := map[string]float64{}
	for _, i := range s.processes() {
		for name, value := range s.scrape(i) {
			all[name] += value
		}
	}
	return all
}

func (s *session) scrape(i *instance) map[string]float64 {
	s.Helper()
	return parse(string(check.Value(api.Send(s.Context(), s.client, http.MethodGet, i.ops+"/metrics", "", nil))(s).Body))
}

// parse reads Prometheus' text: a series and its value on each line.
func parse(text string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		series, value, ok := cutLast(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(series, "#") {
			continue
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			out[series] = n
		}
	}
	return out
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// sum is a metric, over all its labels, or those series alone that have the label.
func sum(metrics map[string]float64, name string, label ...string) (total float64) {
	for series, value := range metrics {
		bare, labels, _ := strings.Cut(series, "{")
		if bare == name && (len(label) == 0 || strings.Contains(labels, label[0])) {
			total += value
		}
	}
	return total
}

// status reads MariaDB's counters.
func (s *session) status() map[string]float64 {
	s.Helper()
	rows := check.Value(s.db.QueryContext(s.Context(), "SHOW GLOBAL STATUS"))(s)
	defer rows.Close()
	out := map[string]float64{}
	for rows.Next() {
		var name, value string
		check.Must(s, rows.Scan(&name, &value))
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = n
		}
	}
	check.Must(s, rows.Err())
	return out
}

// commands counts what Redis has carried out, inside scripts too, but for what this benchmark asks.
func (s *session) commands() map[string]float64 {
	s.Helper()
	out := map[string]float64{}
	for _, server := range append([]*testserver.Server{s.redis}, s.harness.locks...) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, DisableIdentity: true})
		for name, value := range colonFields(check.Value(client.Info(s.Context(), "commandstats").Result())(s)) {
			command, isCommand := strings.CutPrefix(name, "cmdstat_")
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.ParseFloat(calls, 64)
			if isCommand && err == nil && command != "info" && command != "hello" {
				out[command] += n
			}
		}
		check.Must(s, client.Close())
	}
	return out
}

// colonFields reads lines of "name:value".
func colonFields(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// grown is what was counted between two looks.
func grown(from, to map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for name, value := range to {
		if more := value - from[name]; more != 0 {
			out[name] = more
		}
	}
	return out
}

// statements are the SQL statements among MariaDB's counters: not pings, not the protocol's steps of a prepared one,
// and not what this benchmark asks.
func statements(status map[string]float64) (total float64) {
	for name, count := range status {
		verb, isStatement := strings.CutPrefix(name, "Com_")
		if isStatement && verb != "admin_commands" && !strings.HasPrefix(verb, "stmt_") && !strings.HasPrefix(verb, "show_") {
			total += count
		}
	}
	return total
}

// addAll adds up values.
func addAll(values map[string]float64) (total float64) {
	for _, value := range values {
		total += value
	}
	return total
}
