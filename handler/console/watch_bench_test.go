package console_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/poll"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// BenchmarkWatchers measures what people cost who watch a live sale in the console; `make bench-console` starts it. Its
// first table has what the servers were asked in a second, by their own counters, and what all computed, while nobody
// buys. Its second has the rounds of a sale with and without the watchers, in alternating order: the processor time of
// the service, MariaDB and Redis for an order says more than the orders a second, because the buyers are on the same
// machine.
//
// An order differs from the next one by more than the watchers cost: many short rounds, whose median has an interval
// that holds it in 19 of 20 runs, tell a difference of two hundredths. All of that interval above watchLimit is an
// error.
//
// WATCHERS is how many watch (50), WATCH_SECONDS how long each count takes (5), ROUNDS how many pairs of rounds there
// are (40), and WATCH_ORDERS how many orders a round has (5000).
func BenchmarkWatchers(b *testing.B) {
	for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
		b.Run(string(mode), func(b *testing.B) {
			for b.Loop() {
				w := watch(b, serve(b, true, "SECKILL_ORDER_MODE="+string(mode)))
				watchers, rounds := setting(b, "WATCHERS", 50), setting(b, "ROUNDS", 40)
				costs := w.costs(b, []int{0, 1, watchers}, 3, time.Duration(setting(b, "WATCH_SECONDS", 5))*time.Second)
				sales := w.sales(b, watchers, rounds, setting(b, "WATCH_ORDERS", 5000))
				b.Log(table(costs.rows()), table(sales.rows()))
				b.ReportMetric(0, "ns/op") // which says nothing
				b.ReportMetric(costs[watchers].statements/costs[1].statements, "statements-ratio")
				b.ReportMetric(costs[watchers].commands/costs[1].commands, "commands-ratio")
				low, ratio, high := sales.ratio()
				b.ReportMetric(ratio, "cpu-ratio")
				if low > watchLimit {
					b.Errorf("%d watchers multiply what an order costs by %.3f (%.3f to %.3f), want at most %.2f", watchers, ratio, low, high, watchLimit)
				}
			}
		})
	}
}

// watchLimit is by how much watchers may multiply what an order costs.
const watchLimit = 1.02

// watched is a live sale, and the browser of an administrator.
type watched struct {
	*process
	browser *browser
	id      string
	sold    int // how many users have bought

	readings atomic.Int64 // that watchers were sent, but for the first of each
}

func watch(t testing.TB, p *process) *watched {
	t.Helper()
	w := &watched{process: p, browser: p.signedIn(t, "ada"), id: p.onSale(t, map[string]any{"stock": 1_000_000_000})}
	check.Eventually(t, "the sale is open", func() bool { return p.buy(t, "first", w.id) == "OK" })
	return w
}

// watchers opens so many streams, each of which has had its first reading then.
func (w *watched) watchers(t testing.TB, n int) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	for range n {
		request := check.Value(http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/console/vouchers/"+w.id+"/events", nil))(t)
		stream := &http.Client{Jar: w.browser.client.Jar, Transport: w.browser.client.Transport} // without a limit of time
		response, err := stream.Do(request)
		check.Must(t, err)
		lines := bufio.NewReader(response.Body)
		check.Value(lines.ReadString('\n'))(t)
		reading.Go(func() {
			defer response.Body.Close()
			for { // until it is canceled
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "data:") {
					w.readings.Add(1)
				}
			}
		})
	}
	return func() {
		cancel()
		reading.Wait()
	}
}

// cost is what the servers were asked in a second, and what all have computed in it. Of the readings it has all.
type cost struct {
	statements, entries, commands float64 // entries of indexes, which the database has read in turn
	readings                      float64 // that each watcher was sent
	cpu                           time.Duration
}

// costs are by the number of watchers.
type costs map[int]cost

// costs counts while nobody buys: the medians of rounds.
func (w *watched) costs(t testing.TB, watchers []int, rounds int, lasts time.Duration) costs {
	t.Helper()
	all := map[int][]cost{}
	for range rounds {
		for _, n := range watchers {
			all[n] = append(all[n], w.cost(t, n, lasts))
		}
	}
	medians := costs{}
	for n, found := range all {
		medians[n] = cost{
			statements: median(found, func(c cost) float64 { return c.statements }),
			entries:    median(found, func(c cost) float64 { return c.entries }),
			commands:   median(found, func(c cost) float64 { return c.commands }),
			readings:   median(found, func(c cost) float64 { return c.readings }),
			cpu:        time.Duration(median(found, func(c cost) float64 { return float64(c.cpu) })),
		}
	}
	return medians
}

func (w *watched) cost(t testing.TB, watchers int, lasts time.Duration) cost {
	t.Helper()
	defer w.watchers(t, watchers)()
	began, commands, cpu, readings := time.Now(), w.commands(t), w.cpu(t), w.readings.Load()
	statements, entries := w.statements(t)
	poll.Pause(t.Context(), lasts)
	seconds := time.Since(began).Seconds()
	statementsAfter, entriesAfter := w.statements(t)
	return cost{
		statements: (statementsAfter - statements - 2) / seconds, // its own are counted before they are answered
		entries:    (entriesAfter - entries) / seconds,
		commands:   (w.commands(t) - commands) / seconds,
		readings:   float64(w.readings.Load()-readings) / float64(max(watchers, 1)),
		cpu:        time.Duration(float64(w.cpu(t)-cpu) / seconds),
	}
}

func (c costs) rows() []string {
	rows := []string{"watchers\tstatements/s\tindex entries/s\tRedis commands/s\tCPU ms/s"}
	for _, n := range slices.Sorted(maps.Keys(c)) {
		rows = append(rows, fmt.Sprintf("%d\t%.1f\t%.1f\t%.1f\t%s", n, c[n].statements, c[n].entries, c[n].commands, milliseconds(c[n].cpu)))
	}
	return rows
}

// sale is one round of selling.
type sale struct {
	watchers int
	rate     float64       // orders a second
	cpu      time.Duration // of an order
}

// sales are pairs: without watchers and with them.
type sales [][2]sale

func (w *watched) sales(t testing.TB, watchers, rounds, orders int) (all sales) {
	t.Helper()
	for round := range rounds {
		var pair [2]sale
		for _, side := range []int{round % 2, 1 - round%2} {
			pair[side] = w.sale(t, side*watchers, orders)
		}
		all = append(all, pair)
	}
	return all
}

// sale sells so many orders to 32 buyers at a time, and waits until all are in the database.
func (w *watched) sale(t testing.TB, watchers, orders int) sale {
	t.Helper()
	const connections = 32
	tokens, err := token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill")
	check.Must(t, err)
	bearers := make([]string, orders)
	for i := range bearers {
		w.sold++
		bearers[i] = check.Value(tokens.Issue(token.Claims{Subject: "buyer-" + strconv.Itoa(w.sold), Role: model.RoleUser}, time.Hour))(t)
	}
	defer w.watchers(t, watchers)()
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	left := w.remaining(t)
	began, cpu := time.Now(), w.cpu(t)
	var next atomic.Int64
	check.Volley(connections, func(int) {
		for n := next.Add(1); n <= int64(orders); n = next.Add(1) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/api/v1/vouchers/"+w.id+"/seckill", http.NoBody)
			if err == nil {
				request.Header.Set("Authorization", "Bearer "+bearers[n-1])
				var response *http.Response
				if response, err = client.Do(request); err == nil {
					_, _ = io.Copy(io.Discard, response.Body) // the status is what counts
					err = response.Body.Close()
					if response.StatusCode != http.StatusCreated && response.StatusCode != http.StatusAccepted {
						t.Errorf("an attempt to buy is %d", response.StatusCode)
					}
				}
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	check.Eventually(t, "all orders are in the database", func() bool { return left-w.remaining(t) == int64(orders) })
	return sale{watchers: watchers, rate: float64(orders) / time.Since(began).Seconds(), cpu: (w.cpu(t) - cpu) / time.Duration(orders)}
}

func (w *watched) remaining(t testing.TB) (units int64) {
	t.Helper()
	check.Must(t, w.db.QueryRowContext(t.Context(), "SELECT remaining FROM vouchers WHERE id = ?", w.id).Scan(&units))
	return units
}

// ratio is the processor time of an order with watchers, divided by that without: the median of the rounds, and the
// interval that holds it in 19 of 20 runs: ranks of the binomial distribution of a half, in its normal form.
func (s sales) ratio() (low, mid, high float64) {
	var all []float64
	for _, pair := range s {
		all = append(all, float64(pair[1].cpu)/float64(pair[0].cpu))
	}
	slices.Sort(all)
	n := float64(len(all))
	rank := max(0, int(n/2-0.98*math.Sqrt(n)))
	return all[rank], median(all, func(ratio float64) float64 { return ratio }), all[len(all)-1-rank]
}

func (s sales) rows() []string {
	rows := []string{"round\tCPU µs/order alone\twatched\tratio\torders/s alone\twatched"}
	for n, pair := range s {
		rows = append(rows, fmt.Sprintf("%d\t%d\t%d\t%.3f\t%.0f\t%.0f", n+1, pair[0].cpu.Microseconds(), pair[1].cpu.Microseconds(),
			float64(pair[1].cpu)/float64(pair[0].cpu), pair[0].rate, pair[1].rate))
	}
	low, ratio, high := s.ratio()
	return append(rows, fmt.Sprintf("median\t\t\t%.3f\t\t", ratio), fmt.Sprintf("of 19 in 20 runs\t\t\t%.3f – %.3f\t\t", low, high))
}

func median[T any](of []T, value func(T) float64) float64 {
	var values []float64
	for _, one := range of {
		values = append(values, value(one))
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}
