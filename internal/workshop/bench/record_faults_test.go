//go:build faults

//part:packaging
package bench

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
)

// record is what a run has found, for the page that shows it: of each case and load, by unit, a figure of each round.
type record struct {
	names   []string // in their order
	figures map[string]map[string][]float64
	servers string // versions
}

func (r *record) add(name string, figures map[string]float64) {
	if r.figures == nil {
		r.figures = map[string]map[string][]float64{}
	}
	if r.figures[name] == nil {
		r.figures[name] = map[string][]float64{}
		r.names = append(r.names, name)
	}
	for unit, figure := range figures {
		r.figures[name][unit] = append(r.figures[name][unit], figure)
	}
}

// of is the median of the rounds; 0 when there is none.
func (r *record) of(name, unit string) float64 {
	all := slices.Sorted(slices.Values(r.figures[name][unit]))
	if len(all) == 0 {
		return 0
	}
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

func (r *record) measured(s *session, nats string) {
	var mariadb string
	check.Must(s, s.db.QueryRowContext(s.Context(), "SELECT VERSION()").Scan(&mariadb))
	client := redis.NewClient(&redis.Options{Addr: s.servers["redis"][0].Addr()})
	defer client.Close()
	_, version, _ := strings.Cut(check.Value(client.Info(s.Context(), "server").Result())(s), "redis_version:")
	version, _, _ = strings.Cut(version, "\r")
	mariadb, _, _ = strings.Cut(mariadb, "-")
	r.servers = fmt.Sprintf("%s, MariaDB %s, Redis %s, NATS %s",
		strings.Replace(runtime.Version(), "go", "Go ", 1), mariadb, version, nats)
}

// columns are those of the record's first table. A figure that is not there is a dash.
var columns = []struct{ title, unit, format string }{
	{"of the yardstick", "of-yardstick", "%.2f"},
	{"answers/s", "answers/s", "%.0f"},
	{"p50 ms", "p50-ms", "%.1f"},
	{"p99 ms", "p99-ms", "%.1f"},
	{"refused p99 ms", "refused-p99-ms", "%.1f"},
	{"µs: product", "product-µs/op", "%.1f"},
	{"MariaDB", "mariadb-µs/op", "%.1f"},
	{"Redis", "redis-µs/op", "%.1f"},
	{"NATS", "nats-µs/op", "%.1f"},
	{"generator", "generator-µs/op", "%.1f"},
	{"yardsticks", "yardsticks/op", "%.2f"},
	{"allocations", "allocs/op", "%.0f"},
	{"Redis commands", "redis-commands/op", "%.2f"},
	{"group: reserve", "reserve-group", "%.0f"},
	{"publish", "publish-group", "%.0f"},
	{"commit", "commit-group", "%.0f"},
	{"MiB", "MiB", "%.0f"},
}

// aims are at most so much: the figure of a case and load, divided by the same of another one where there is one.
var aims = []struct {
	what           string
	most           float64
	of, unit, over string
}{
	{"CPU of an order, async, yardsticks", 2.9, "async 128", "yardsticks/op", ""},
	{"CPU of an order, async on 1,024 connections, yardsticks", 2.5, "async 1024", "yardsticks/op", ""},
	{"CPU of an order, sync, yardsticks", 3.2, "sync 128", "yardsticks/op", ""},
	{"CPU of an order, sync without the user's lock, yardsticks", 2.4, "sync-none 128", "yardsticks/op", ""},
	{"CPU of an order, multilock, yardsticks", 8, "multilock 128", "yardsticks/op", ""},
	{"a hundred vouchers, async, times one's CPU", 1.4, "async-100 128", "all-µs/op", "async 128"},
	{"a hundred vouchers, sync, times one's CPU", 1.15, "sync-100 128", "all-µs/op", "sync 128"},
	{"four instances, async, times one's CPU", 1.25, "async-4 128", "all-µs/op", "async 128"},
	{"four instances, sync, times one's CPU", 1.25, "sync-4 128", "all-µs/op", "sync 128"},
	{"p99 at half of the throughput, async, ms", 12, "async open-0.5", "p99-ms", ""},
	{"p99 at half of the throughput, sync, ms", 12, "sync open-0.5", "p99-ms", ""},
	{"p99 of a refusal at 1.5 times the throughput, async, ms", 100, "async open-1.5", "refused-p99-ms", ""},
	{"p99 of a refusal at 1.5 times the throughput, sync, ms", 100, "sync open-1.5", "refused-p99-ms", ""},
}

// page is the record as deployments/bench/README.md shows it.
func (h *harness) page() string {
	var page strings.Builder
	r := &h.record
	line := func(format string, args ...any) { fmt.Fprintf(&page, format+"\n", args...) }
	line("Measured on %s, commit %s, %d rounds of %.0f s,", time.Now().UTC().Format("2 January 2006"), commit(), h.rounds,
		h.lasts.Seconds())
	line("on %d cores (%s, %s GiB) that the generator, the servers and the service share.", runtime.NumCPU(),
		first("/proc/cpuinfo", `model name\s*: (.*)`), gibibytes())
	line("Linux %s, %s.", first("/proc/sys/kernel/osrelease", `(.*)`), r.servers)

	line("\n| case | load |%s", row(columns, func(i int) string { return columns[i].title }))
	line("|---|---|%s", strings.Repeat("---|", len(columns)))
	rank := func(name string) int {
		of, _, _ := strings.Cut(name, " ")
		return slices.IndexFunc(cases(), func(c workCase) bool { return c.name == of })
	}
	slices.SortStableFunc(r.names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	for _, name := range r.names {
		if strings.HasSuffix(name, " floor") {
			continue
		}
		line("| %s |%s", strings.Replace(name, " ", " | ", 1), row(columns, func(i int) string {
			return figure(columns[i].format, r.of(name, columns[i].unit))
		}))
	}

	line("\n| aim | at most | measured | |\n|---|---|---|---|")
	for _, aim := range aims {
		is := r.of(aim.of, aim.unit)
		if aim.over != "" {
			is = over(is, r.of(aim.over, aim.unit))
		}
		verdict := map[bool]string{true: "met", false: "missed"}[is <= aim.most]
		if is == 0 {
			verdict = ""
		}
		line("| %s | %g | %s | %s |", aim.what, aim.most, figure("%.2f", is), verdict)
	}

	line("\n| process | floor, µs | async | times | sync | times |\n|---|---|---|---|---|---|")
	var sum, async, sync float64
	floors := []struct{ process, of string }{
		{"product", "floor-http"}, {"mariadb", "floor-insert"}, {"redis", "floor-reserve"}, {"nats", "floor-publish"},
	}
	for _, f := range floors {
		unit := f.process + "-µs/op"
		least, a, s := r.of(f.of+" floor", unit), r.of("async 128", unit), r.of("sync 128", unit)
		sum, async, sync = sum+least, async+a, sync+s
		line("| %s | %.1f | %.1f | %.1f | %.1f | %.1f |", f.process, least, a, over(a, least), s, over(s, least))
	}
	line("| all | %.1f | %.1f | %.1f | %.1f | |", sum, async, over(async, sum), sync)
	return page.String()
}

func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func row[T any](columns []T, cell func(i int) string) string {
	var line strings.Builder
	for i := range columns {
		line.WriteString(" " + cell(i) + " |")
	}
	return line.String()
}

func figure(format string, value float64) string {
	if value == 0 {
		return "–"
	}
	return fmt.Sprintf(format, value)
}

func commit() string {
	head, _ := exec.Command("git", "rev-parse", "--short=8", "HEAD").Output()
	changed, _ := exec.Command("git", "status", "--porcelain").Output()
	return strings.TrimSpace(string(head)) + map[bool]string{true: "+"}[len(changed) > 0]
}

// first is what a pattern finds first in a file.
func first(path, pattern string) string {
	text, _ := os.ReadFile(path)
	if match := regexp.MustCompile(pattern).FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return "?"
}

func gibibytes() string {
	var kibibytes float64
	_, _ = fmt.Sscan(first("/proc/meminfo", `MemTotal:\s*(\d+)`), &kibibytes)
	return fmt.Sprintf("%.0f", kibibytes/(1<<20))
}
