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

// pageLimit is what nobody may wait for longer.
const pageLimit = 100 * time.Millisecond

// BenchmarkPages measures how long each page of the console takes in a large shop on MariaDB; `make bench-console`
// starts it. A page whose fastest answer is above pageLimit is an error: nothing else on the machine explains that. The
// processor time is that of the service and of MariaDB, which the kernel counts in ticks of 10 ms.
//
// VOUCHERS (10000) and ORDERS (1000000) are the size of the shop, and ROUNDS (20) is how often each page is asked for.
func BenchmarkPages(b *testing.B) {
	for b.Loop() {
		shop := fillShop(b, serve(b, true), setting(b, "VOUCHERS", 10_000), setting(b, "ORDERS", 1_000_000))
		rows := []string{"page\tfastest ms\tmedian ms\tworst ms\tCPU ms"}
		worst := time.Duration(0)
		for _, p := range shop.pages(b) {
			took, cpu := shop.measure(b, p, setting(b, "ROUNDS", 20))
			mark := ""
			if took[0] > pageLimit {
				mark = " (!)"
				b.Errorf("%s takes %s at the least", p.name, took[0])
			}
			worst = max(worst, took[len(took)-1])
			rows = append(rows, fmt.Sprintf("%s%s\t%s\t%s\t%s\t%s", p.name, mark,
				milliseconds(took[0]), milliseconds(took[len(took)/2]), milliseconds(took[len(took)-1]), milliseconds(cpu)))
		}
		b.Log(table(rows))
		b.ReportMetric(0, "ns/op") // which says nothing
		b.ReportMetric(float64(worst.Milliseconds()), "worst-ms")
	}
}

// large is a shop with many vouchers and orders.
type large struct {
	*process
	browser *browser
}

// hotVoucher has a fifth of all orders, and heavyUser one of each other voucher.
const (
	hotVoucher = "voucher-000001"
	heavyUser  = "heavy"
)

// fillShop makes a shop: every phase of vouchers, and every status of orders.
func fillShop(t testing.TB, p *process, vouchers, orders int) *large {
	t.Helper()
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := p.db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec(`INSERT INTO vouchers (id, title, description, price, face_value, currency, stock, remaining, begin_at, end_at, state, version, created_at)
		SELECT CONCAT('voucher-', LPAD(seq, 6, '0')), CONCAT('Coffee for ', seq), 'A table at the window.', 1000, 2500, 'CNY', 100, 100,
			UTC_TIMESTAMP(6) + INTERVAL (CASE WHEN seq % 10 IN (5, 6) THEN 24 WHEN seq % 10 > 6 THEN -48 ELSE -1 END) HOUR,
			UTC_TIMESTAMP(6) + INTERVAL (CASE WHEN seq % 10 IN (5, 6) THEN 48 WHEN seq % 10 > 6 THEN -24 ELSE 24 END) HOUR,
			CASE seq % 20 WHEN 10 THEN 'draft' WHEN 11 THEN 'archived' WHEN 12 THEN 'paused' ELSE 'published' END, 1, UTC_TIMESTAMP(6) - INTERVAL seq SECOND
		FROM ` + sequence(1, vouchers))
	const insert = `INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, expires_at, paid_at, closed_at)
		SELECT CONCAT(id, '.', voucher_id), voucher_id, user_id, status, 1000, 'CNY', at, IF(status = 'unpaid', at + INTERVAL 30 DAY, NULL), IF(status IN ('paid', 'redeemed', 'refunded'), at, NULL),
			IF(status IN ('canceled', 'expired', 'refunded', 'failed'), at, NULL)
		FROM (SELECT %s AS id, %s AS voucher_id, %s AS user_id, UTC_TIMESTAMP(6) - INTERVAL seq * 50000 MICROSECOND AS at,
			CASE WHEN seq %% 100 < 10 THEN 'unpaid' WHEN seq %% 100 < 50 THEN 'paid' WHEN seq %% 100 < 70 THEN 'redeemed' WHEN seq %% 100 < 85 THEN 'canceled'
				WHEN seq %% 100 < 96 THEN 'expired' WHEN seq %% 100 < 99 THEN 'refunded' ELSE 'failed' END AS status FROM %s) made`
	const chunk = 50_000 // rows of a transaction
	for first := 1; first <= orders; first += chunk {
		exec(fmt.Sprintf(insert, "CONCAT('order-', LPAD(seq, 8, '0'))",
			fmt.Sprintf("IF(seq <= %d, '%s', CONCAT('voucher-', LPAD(2 + seq %% %d, 6, '0')))", orders/5, hotVoucher, vouchers-1),
			fmt.Sprintf("CONCAT('user-', IF(seq <= %d, seq, seq DIV 10))", orders/5), sequence(first, min(first+chunk-1, orders))))
	}
	exec(fmt.Sprintf(insert, "CONCAT('heavy-', LPAD(seq, 8, '0'))", "CONCAT('voucher-', LPAD(seq, 6, '0'))", "'"+heavyUser+"'", sequence(2, vouchers)))
	exec(`INSERT INTO order_history (order_id, moved_at, from_status, to_status, actor) SELECT id, created_at, '', status, user_id FROM orders`)
	exec(`UPDATE vouchers JOIN (SELECT voucher_id, COUNT(slot) AS live FROM orders GROUP BY voucher_id) sold ON sold.voucher_id = vouchers.id
		SET stock = live + IF(id LIKE '%3', 0, 100), remaining = IF(id LIKE '%3', 0, 100)`)
	exec(`INSERT INTO admin_log (changed_at, actor, action, subject, was, became)
		SELECT UTC_TIMESTAMP(6), CONCAT('admin-', seq % 10), 'voucher.patch', CONCAT('voucher-', LPAD(seq, 6, '0')), '{"state":"published"}', '{"state":"paused"}'
		FROM ` + sequence(1, 10*vouchers))
	exec("ANALYZE TABLE vouchers, orders, order_history, admin_log")
	return &large{process: p, browser: p.signedIn(t, "ada")}
}

// sequence is a table of numbers, which MariaDB makes as it is read.
func sequence(first, last int) string { return fmt.Sprintf("seq_%d_to_%d", first, last) }

// onePage is a page that is asked for, and what must be in it.
type onePage struct{ name, path, has string }

// pages are all pages of the console that read something, with the questions that are hardest to answer.
func (l *large) pages(t testing.TB) []onePage {
	t.Helper()
	deep := func(table, where string, args ...any) string {
		var cursor model.Cursor
		var entries int
		check.Must(t, l.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table+" WHERE "+where, args...).Scan(&entries))
		check.Must(t, l.db.QueryRowContext(t.Context(), fmt.Sprintf("SELECT created_at, id FROM %s WHERE %s ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET %d",
			table, where, entries*9/10), args...).Scan(&cursor.At, &cursor.ID))
		return cursor.String()
	}
	const lines, order, user = "<td>", "/console/orders/order-", "/console/orders/heavy-"
	hot := "/console/vouchers/" + hotVoucher
	late := "&cursor=" + deep("vouchers", "TRUE")
	pages := []onePage{
		{"overview", "/console", `class="card sale"`},
		{"vouchers", "/console/vouchers", lines},
		{"vouchers, deep", "/console/vouchers?" + late[1:], lines},
		{"drafts", "/console/vouchers?state=draft", lines},
		{"vouchers by title", "/console/vouchers?q=coffee+77", lines},
		{"vouchers of no title", "/console/vouchers?q=tea", "<h1"},
		{"orders", "/console/orders", "/console/orders/"},
		{"orders by title", "/console/orders?q=coffee", order},
		{"orders of no title", "/console/orders?q=tea", "<h1"},
	}
	for _, phase := range model.Phases() {
		path := "/console/vouchers?phase=" + string(phase)
		pages = append(pages, onePage{"vouchers, " + string(phase), path, lines}, onePage{"vouchers, " + string(phase) + ", deep", path + late, "<h1"})
	}
	pages = append(pages, []onePage{
		{"voucher", hot, "data-events"},
		{"voucher, edit", hot + "/edit", "<form"},
		{"voucher, first reading", hot + "/events", ""},
		{"audit of a hot voucher", hot + "/audit", "Everything adds up"},
		{"audit of another", "/console/vouchers/voucher-000002/audit", "Everything adds up"},
		{"order by id", "/console/orders/order-00000001." + hotVoucher, "<h1"},
		{"orders of a user", "/console/orders?user=user-1", order},
		{"orders of nobody", "/console/orders?user=nobody", "There are no such orders"},
		{"orders of a heavy user", "/console/orders?user=" + heavyUser, user},
		{"orders of a heavy user, deep", "/console/orders?user=" + heavyUser + "&cursor=" + deep("orders", "user_id = ?", heavyUser), user},
		{"orders of a voucher", "/console/orders?voucher=" + hotVoucher, order},
		{"orders of a voucher, deep", "/console/orders?voucher=" + hotVoucher + "&cursor=" + deep("orders", "voucher_id = ?", hotVoucher), order},
		{"orders of a user and a voucher", "/console/orders?user=user-1&voucher=" + hotVoucher, order},
		{"orders of a heavy user and a voucher", "/console/orders?user=" + heavyUser + "&voucher=voucher-000002", user},
	}...)
	for _, status := range model.OrderStatuses() {
		pages = append(pages, onePage{"orders of a voucher, " + string(status), "/console/orders?voucher=" + hotVoucher + "&status=" + string(status), "<h1"},
			onePage{"orders of a heavy user, " + string(status), "/console/orders?user=" + heavyUser + "&status=" + string(status), "<h1"})
	}
	return append(pages, []onePage{
		{"export, first byte", "/console/orders.csv?voucher=" + hotVoucher, ""},
		{"export of the failed, first byte", "/console/orders.csv?status=failed&voucher=" + hotVoucher, ""},
		{"log", "/console/log", lines},
		{"log of one", "/console/log?actor=admin-3", lines},
		{"log, deep", "/console/log?cursor=" + model.Cursor{At: time.Now(), ID: "30"}.String(), lines},
		{"system", "/console/system", "<h1"},
		{"dead letters", "/console/dead-letters", "<h1"},
		{"what the shop window asks for", "/api/v1/vouchers?limit=20", `"items"`},
	}...)
}

// measure asks for a page again and again, and returns how long it took, shortest first, and what it took of the
// processors. What is a stream, which has nothing to look for, is over with its first byte.
func (l *large) measure(t testing.TB, p onePage, rounds int) (took []time.Duration, cpu time.Duration) {
	t.Helper()
	l.ask(t, p) // connections, and what is read once
	before := l.cpu(t)
	for range rounds {
		took = append(took, l.ask(t, p))
	}
	slices.Sort(took)
	return took, (l.cpu(t) - before) / time.Duration(rounds)
}

func (l *large) ask(t testing.TB, p onePage) time.Duration {
	t.Helper()
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+p.path, nil))(t)
	began := time.Now()
	response, err := l.browser.client.Do(request)
	check.Must(t, err)
	defer response.Body.Close()
	var body []byte
	if p.has == "" {
		body = make([]byte, 1)
		_, err = io.ReadFull(response.Body, body)
	} else {
		body, err = io.ReadAll(response.Body)
	}
	passed := time.Since(began)
	check.Must(t, err)
	if response.StatusCode != http.StatusOK || !strings.Contains(string(body), p.has) {
		t.Fatalf("%s (%s) is %d and has no %q", p.name, p.path, response.StatusCode, p.has)
	}
	return passed
}

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
