package repository_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/sqldb"
)

// TestOrdersAreSearched: by an order, a user, a username, a code, a voucher and the words of its title, newest first and
// page by page, whatever the status.
func TestOrdersAreSearched(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		at := func(title string) model.Voucher {
			return l.voucher(t, model.VoucherFields{Title: title, Stock: 9, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour)})
		}
		tea, cake := at("Green Tea 100% for two"), at("双人蛋糕 cake")
		account := model.Account{ID: newID(t), Username: "Ann", Role: model.RoleUser, PasswordHash: "$x"}
		check.Must(t, l.accounts.Create(t.Context(), account))
		anns, bobs := l.bought(t, tea.ID, account.ID), l.bought(t, tea.ID, "bob@example")
		teas, cakes := l.bought(t, cake.ID, "tea"), l.bought(t, cake.ID, "bob@example")
		notice := money(t, l.started(t, bobs))
		check.Value(l.payments.Settle(t.Context(), notice))(t)
		names := map[string]string{anns.ID: "ann", bobs.ID: "bob1", teas.ID: "tea", cakes.ID: "bob2"}
		for i, id := range []string{anns.ID, bobs.ID, teas.ID, cakes.ID} { // SQLite's clock has milliseconds
			l.exec(t, "UPDATE orders SET created_at = ? WHERE id = ?", time.Now().Add(time.Duration(i-9)*time.Second).UTC().Truncate(time.Millisecond), id)
		}
		for _, test := range []struct {
			q    model.OrderSearch
			want string
		}{
			{model.OrderSearch{}, "bob2 tea bob1 ann"},
			{model.OrderSearch{Words: "  "}, "bob2 tea bob1 ann"},
			{model.OrderSearch{Status: model.OrderPaid}, "bob1"},
			{model.OrderSearch{Status: model.OrderFailed}, ""},
			{model.OrderSearch{Words: anns.ID}, "ann"},
			{model.OrderSearch{Words: "bob@example"}, "bob2 bob1"},
			{model.OrderSearch{Words: "bob@example", Status: model.OrderUnpaid}, "bob2"},
			{model.OrderSearch{Words: "ANN"}, "ann"},
			{model.OrderSearch{Words: account.ID}, "ann"},
			{model.OrderSearch{Words: "tea"}, "tea bob1 ann"}, // a user and a word, each once
			{model.OrderSearch{Words: "two GREEN"}, "bob1 ann"},
			{model.OrderSearch{Words: "two cake"}, ""},
			{model.OrderSearch{Words: "蛋糕"}, "bob2 tea"},
			{model.OrderSearch{Words: "100%"}, "bob1 ann"},
			{model.OrderSearch{Words: "1%0"}, ""},
			{model.OrderSearch{Words: "_"}, ""},
			{model.OrderSearch{Words: cake.ID}, "bob2 tea"},
			{model.OrderSearch{Words: "'; DROP TABLE orders; --"}, ""},
			{model.OrderSearch{Words: "7K3M", CodeHash: notice.Code.Hash}, "bob1"},
			{model.OrderSearch{CodeHash: notice.Code.Hash}, "bob1"},
			{model.OrderSearch{CodeHash: newCode(t).Hash}, ""},
			{model.OrderSearch{Words: "7K3M", CodeHash: notice.Code.Hash, Status: model.OrderUnpaid}, ""},
		} {
			got := []string{}
			test.q.Limit = 1
			for pages := 0; pages <= len(names); pages++ {
				page := check.Value(l.orders.Search(t.Context(), test.q))(t)
				for _, order := range page.Items {
					got = append(got, names[order.ID])
				}
				if test.q.Cursor = page.NextCursor; page.NextCursor == "" {
					break
				}
			}
			check.Equal(t, fmt.Sprintf("%q of %q", test.q.Words, test.q.Status), strings.Join(got, " "), test.want)
		}
		wantCode(t, check.ErrorOf(l.orders.Search(t.Context(), model.OrderSearch{Status: "gone"})), model.CodeValidation)
		wantCode(t, check.ErrorOf(l.orders.Search(t.Context(), model.OrderSearch{Cursor: "x"})), model.CodeValidation)
	})
}

// TestSearchesUseIndexes: the newest of a status are found in the order of an index, without reading a row.
func TestSearchesUseIndexes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store{dialect: "mysql", strategy: model.StockConditional})
	const after = " AND created_at <= NOW(6) AND (created_at < NOW(6) OR id < 'x')"
	for _, more := range []string{"", after} {
		plan := testserver.Plan(t, f.db.SQL(), "SELECT id FROM orders FORCE INDEX (orders_newest) WHERE status = 'paid'"+more+" ORDER BY created_at DESC, id DESC LIMIT 21")
		if len(plan) != 1 || plan[0].Key != "orders_newest" || !strings.Contains(plan[0].Extra, "Using index") || strings.Contains(plan[0].Extra, "filesort") {
			t.Errorf("%s: %+v", more, plan)
		}
	}
}

// BenchmarkOrderSearch measures a page of a million orders of a hundred vouchers, by what is looked for:
//
//	go test ./repository -run '^$' -bench OrderSearch -benchtime 50x
func BenchmarkOrderSearch(b *testing.B) {
	server := testserver.MariaDB(b)
	createSchema(b, server, "bench")
	f := openFixture(b, store{dialect: "mysql", strategy: model.StockConditional}, sqldb.Options{DSN: server.DSN("bench")})
	check.Must(b, f.db.Migrate(b.Context()))
	for i := range 100 {
		f.voucher(b, model.VoucherFields{Title: fmt.Sprintf("Coffee number %d", i), Stock: model.MaxAmount, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour)})
	}
	for _, voucher := range list(b, f.db.SQL(), "SELECT id FROM vouchers") {
		for from := 1; from <= 10_000; from += 1000 { // a statement must not take longer than a connection waits
			f.exec(b, `INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at)
				SELECT CONCAT('o', seq, '.', ?), ?, CONCAT('user', seq), ELT(1 + seq % 3, 'paid', 'expired', IF(seq % 1000 = 2, 'failed', 'canceled')), 1000, 'CNY', NOW(6) - INTERVAL seq SECOND
				FROM seq_1_to_10000 WHERE seq BETWEEN ? AND ?`, voucher, voucher, from, from+999)
		}
	}
	f.exec(b, "ANALYZE TABLE orders")
	for name, q := range map[string]model.OrderSearch{
		"all": {}, "status": {Status: model.OrderPaid}, "rare status": {Status: model.OrderFailed}, "no order of a status": {Status: model.OrderUnpaid},
		"user": {Words: "user9999"}, "title": {Words: "coffee"}, "title and a rare status": {Words: "coffee", Status: model.OrderFailed},
		"one title and no order": {Words: "coffee 77", Status: model.OrderUnpaid}, "nothing": {Words: "tea"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				check.Value(f.orders.Search(b.Context(), q))(b)
			}
		})
	}
	b.Run("page 1000", func(b *testing.B) {
		q := model.OrderSearch{Cursor: model.Cursor{At: time.Now().Add(-10 * time.Minute), ID: "o600.x"}.String()}
		for b.Loop() {
			check.Value(f.orders.Search(b.Context(), q))(b)
		}
	})
}
