package console_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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
