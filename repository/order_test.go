package repository_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestPages walks through lists whose rows share instants, while new rows arrive.
func TestPages(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		const rows = 25
		v, other := f.onSale(t, 1000), f.onSale(t, 1000)
		instant := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
		var want []string
		for i := range rows {
			o := order(t, v.ID, "alice")
			o.CreatedAt = instant.Add(time.Duration(i/3) * time.Microsecond) // three share each
			check.Must(t, f.place(t, o).Err)
			f.exec(t, "UPDATE orders SET status = 'canceled' WHERE id = ?", o.ID)
			want = append(want, o.ID)
		}
		slices.Reverse(want) // ids sort by time, too
		check.Must(t, f.place(t, order(t, other.ID, "alice")).Err)
		check.Must(t, f.place(t, order(t, v.ID, "bob")).Err)
		query := model.OrderQuery{UserID: "alice", VoucherID: v.ID, Status: model.OrderCanceled, Limit: 4}
		var got []string
		for {
			page := check.Value(f.orders.List(t.Context(), query))(t)
			for _, o := range page.Items {
				got = append(got, o.ID)
			}
			if query.Cursor = page.NextCursor; query.Cursor == "" {
				break
			}
			check.Equal(t, "rows of a page", len(page.Items), query.Limit)
			newer := order(t, v.ID, "alice") // what arrives meanwhile does not disturb
			check.Must(t, f.place(t, newer).Err)
			f.exec(t, "UPDATE orders SET status = 'canceled' WHERE id = ?", newer.ID)
		}
		check.That(t, slices.Equal(got, want), "got %d rows %v, want %v", len(got), got, want)
		var streamed int
		check.Must(t, f.orders.Each(t.Context(), model.OrderQuery{VoucherID: v.ID, Limit: 1},
			func(model.BookedOrder) error { streamed++; return nil }))
		check.Equal(t, "rows streamed", int64(streamed),
			f.number(t, "SELECT COUNT(*) FROM orders WHERE voucher_id = ?", v.ID))
		stop := errors.New("enough")
		if err := f.orders.Each(t.Context(), model.OrderQuery{},
			func(model.BookedOrder) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("error %v", err)
		}
		if err := f.orders.Each(t.Context(), model.OrderQuery{VoucherID: "absent"},
			func(model.BookedOrder) error { return stop }); err != nil {
			t.Error(err)
		}
	})
}

func TestBadCursors(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		encode := base64.RawURLEncoding.EncodeToString
		for _, cursor := range []string{
			"x", "!", encode([]byte("1")), encode([]byte(" ")), encode([]byte("1 a b")), encode([]byte("x 1.v")),
			encode([]byte("1 ")),
			encode([]byte("9223372036854775807 1.v")), encode([]byte("-9223372036854775808 1.v")),
			encode([]byte("+1 1.v")),
			encode([]byte("1 1.v")) + "=", encode([]byte("1 1.v")) + "\n", encode([]byte("1 '; DROP TABLE orders; --")),
		} {
			err := check.ErrorOf(f.orders.List(t.Context(), model.OrderQuery{Cursor: cursor}))
			wantCode(t, err, model.CodeValidation)
			e, ok := errors.AsType[*model.Error](err)
			check.That(t, ok && len(e.Fields) == 1 && e.Fields[0].Location == "query.cursor", "%q: %+v", cursor, err)
			wantCode(t, check.ErrorOf(f.vouchers.List(t.Context(), model.VoucherQuery{Cursor: cursor})),
				model.CodeValidation)
			wantCode(t, f.orders.Each(t.Context(), model.OrderQuery{Cursor: cursor}, nil), model.CodeValidation)
		}
	})
}

// TestManyOrders: buyers, streams, snapshots and lookups by id of more rows than are read at once, each of them once.
func TestManyOrders(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		const rows = 5001 // a snapshot reads 5000 at once
		v := f.onSale(t, rows)
		var batch []model.Order
		var ids, users []string
		for i := range rows {
			batch = append(batch, order(t, v.ID, user(i)))
			ids, users = append(ids, batch[i].ID), append(users, user(i))
		}
		f.create(t, batch...)
		seen := map[string]bool{}
		check.Must(t, f.orders.Each(t.Context(), model.OrderQuery{VoucherID: v.ID},
			func(o model.BookedOrder) error { seen[o.ID] = true; return nil }))
		check.Equal(t, "rows streamed", len(seen), rows)
		sold := ""
		check.Must(t, f.orders.Sold(t.Context(), v.ID, func(o model.BookedOrder) error { // all of one instant
			check.That(t, seen[o.ID] && o.ID > sold, "%s is sold after %s", o.ID, sold)
			delete(seen, o.ID)
			sold = o.ID
			return nil
		}))
		check.Equal(t, "orders that were not sold", len(seen), 0)
		found := check.Value(f.orders.Find(t.Context(), append(ids, "absent", "no id!", "")))(t)
		check.Equal(t, "orders found", len(found), rows)
		for _, o := range batch {
			check.Need(t, found[o.ID].UserID == o.UserID, "order %s: %+v", o.ID, found[o.ID])
		}
		check.Equal(t, "orders of no ids", len(check.Value(f.orders.Find(t.Context(), nil))(t)), 0)

		f.exec(t, "UPDATE orders SET status = 'expired' WHERE user_id = ?", user(0))
		var buyers, live []string
		check.Must(t, f.orders.Buyers(t.Context(), v, func(u string) error { buyers = append(buyers, u); return nil }))
		check.Must(t, check.ErrorOf(f.copies.Close(t.Context(), v.ID, 0, "")))
		check.Must(t, f.copies.Snapshot(t.Context(), v.ID, 1, func(s model.Snapshot) error {
			return s.Live(t.Context(), func(some []model.Order) error {
				for _, o := range some {
					live = append(live, o.UserID)
				}
				return nil
			})
		}))
		check.That(t, slices.Equal(buyers, users[1:]) && slices.Equal(live, users[1:]),
			"%d buyers, %d live orders, want %d", len(buyers), len(live), rows-1)
		stop := errors.New("enough")
		check.Is(t, "the error", f.orders.Buyers(t.Context(), v, func(string) error { return stop }), stop)
	})
}

// TestImpossibleIDs reach no SQL, where they would be an error or match too much.
func TestImpossibleIDs(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 1)
		check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
		for _, q := range []model.OrderQuery{{UserID: "Bób"}, {UserID: "alice "}, {VoucherID: "茶"}, {VoucherID: v.ID + " "}} {
			page, err := f.orders.List(t.Context(), q)
			check.That(t, err == nil && len(page.Items) == 0, "%+v: %+v, %v", q, page, err)
		}
		wantCode(t, check.ErrorOf(f.orders.List(t.Context(), model.OrderQuery{Status: "é"})), model.CodeValidation)
		check.Must(t, f.orders.Buyers(t.Context(), model.Voucher{ID: v.ID + " "},
			func(string) error { return errors.New("a buyer") }))
		many, err := f.vouchers.GetMany(t.Context(), []string{"é", v.ID + " ", v.ID})
		check.That(t, err == nil && len(many) == 1, "many: %+v, %v", many, err)
		nothing := model.StockChange{Stock: new(int64)}
		for _, id := range []string{"é", v.ID + " "} {
			wantCode(t, check.ErrorOf(f.vouchers.Get(t.Context(), id)), model.CodeNotFound)
			wantCode(t, check.ErrorOf(f.vouchers.Patch(t.Context(), id, model.VoucherPatch{})), model.CodeNotFound)
			wantCode(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), id, nothing, model.Idempotency{})),
				model.CodeNotFound)
			wantCode(t, check.ErrorOf(f.vouchers.Stats(t.Context(), id)), model.CodeNotFound)
		}
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			overDialects(t, func(t *testing.T, f *fixture) {
				check.Must(t, check.ErrorOf(f.modes.Adopt(t.Context(), mode)))
				f.asIn(t, mode)
				v := f.onSale(t, 1)
				o := f.place(t, order(t, v.ID, "alice")).Order
				for n := range 3 {
					got, changed, err := f.cancel(t.Context(), "alice", o.ID)
					check.Must(t, err)
					check.That(t, changed == (n == 0) && got.Status == model.OrderCanceled && got.ClosedAt != nil &&
						aboutNow(*got.ClosedAt) && got.Price == o.Price, "%d: changed %v, %+v", n, changed, got)
					f.balanced(t, v.ID, 0)
				}
				list := f.outbox(t)
				check.That(t, (len(list) == 1) == (mode == model.ModeAsync) && len(list) <= 1, "outbox %v", list)
				detail := check.Value(f.orders.Detail(t.Context(), o.ID))(t)
				wantCode(t, check.ErrorOf(f.orders.Detail(t.Context(), fmt.Sprint("1.", v.ID))), model.CodeNotFound)
				if h := detail.History; len(h) != 2 || h[1].To != model.OrderCanceled || h[1].From == nil ||
					*h[1].From != model.OrderUnpaid ||
					h[1].By != "alice" || !h[1].At.Equal(*detail.ClosedAt) || h[0].From != nil ||
					h[0].To != model.OrderUnpaid ||
					h[0].By != "alice" || !h[0].At.Equal(o.CreatedAt) {
					t.Errorf("history %+v", h)
				}
				check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
				f.balanced(t, v.ID, 1)
			})
		})
	}
}

// TestCancelRefused: only what is unpaid, and only by its buyer.
func TestCancelRefused(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		o := f.place(t, order(t, v.ID, "alice")).Order
		for _, who := range []string{"Alice", "bob", "alice ", ""} {
			_, _, err := f.cancel(t.Context(), who, o.ID)
			wantCode(t, err, model.CodeNotFound)
		}
		for _, id := range []string{"", "absent", "no id!", o.ID + " "} {
			_, _, err := f.cancel(t.Context(), "alice", id)
			wantCode(t, err, model.CodeNotFound)
		}
		f.balanced(t, v.ID, 1)
		for _, status := range []model.OrderStatus{model.OrderPaid, model.OrderExpired, model.OrderFailed, model.OrderRefunded} {
			f.exec(t, "UPDATE orders SET status = ? WHERE id = ?", status, o.ID)
			_, changed, err := f.cancel(t.Context(), "alice", o.ID)
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeIllegalState ||
				e.OrderStatus != status || changed {
				t.Errorf("%s: %v", status, err)
			}
		}
		check.Equal(t, "what remains", f.number(t, "SELECT remaining FROM vouchers WHERE id = ?", v.ID), 4)
	})
}

func TestCancelMany(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		one, two := f.onSale(t, 5), f.onSale(t, 5)
		alice, bob, zoe := f.place(t, order(t, one.ID, "alice")).Order, f.place(t, order(t, one.ID, "bob")).Order,
			f.place(t, order(t, two.ID, "zoe")).Order
		paid, gone := f.place(t, order(t, one.ID, "eve")).Order, f.place(t, order(t, two.ID, "mallory")).Order
		f.exec(t, "UPDATE orders SET status = 'paid' WHERE id = ?", paid.ID)
		check.Must(t, check.ErrorOf(f.orders.Cancel(t.Context(),
			[]model.Cancellation{{OrderID: gone.ID, UserID: "mallory"}})))

		asked := []model.Cancellation{
			{OrderID: alice.ID, UserID: "alice"},
			{OrderID: bob.ID, UserID: "alice"},
			{OrderID: alice.ID, UserID: "alice"},
			{OrderID: zoe.ID, UserID: "zoe"},
			{OrderID: paid.ID, UserID: "eve"},
			{OrderID: gone.ID, UserID: "mallory"},
			{OrderID: "no id!", UserID: "alice"},
		}
		answers := check.Value(f.orders.Cancel(t.Context(), asked))(t)
		for i, want := range []struct {
			changed bool
			refusal model.Code
		}{
			{true, ""},
			{false, model.CodeNotFound},
			{false, ""},
			{true, ""},
			{false, model.CodeIllegalState},
			{false, ""},
			{false, model.CodeNotFound},
		} {
			got := answers[i]
			if want.refusal != "" {
				wantCode(t, got.Err, want.refusal)
				continue
			}
			check.That(t, got.Err == nil && got.Changed == want.changed && got.Order.ID == asked[i].OrderID &&
				got.Order.Status == model.OrderCanceled && got.Order.ClosedAt != nil, "%d: %+v", i, got)
		}
		f.balanced(t, one.ID, 2) // bob's, and the paid one
		f.balanced(t, two.ID, 0)
	})
}

// TestALostCancelMeetsARefusal, which is an answer: the order was paid when its cancellation was repeated.
func TestALostCancelMeetsARefusal(t *testing.T) {
	t.Parallel()
	near := newAsync(t, stores()[0])
	v := near.onSale(t, 1)
	bobs := near.place(t, order(t, v.ID, "bob")).Order
	far := near.through(t, onceOn("COMMIT", func(*wire) verdict {
		go func() { // waits for the lost transaction's row lock
			_, _ = near.db.SQL().ExecContext(context.Background(), "UPDATE orders SET status = 'paid' WHERE id = ?",
				bobs.ID)
		}()
		check.Eventually(t, "the payment waits", func() bool { return near.blocked(t, "'paid' WHERE id = '"+bobs.ID) })
		return cutBefore
	}))
	_, _, err := far.cancel(t.Context(), "bob", bobs.ID)
	wantCode(t, err, model.CodeIllegalState)
	near.balanced(t, v.ID, 1)
}

func TestReleases(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		var orders []string
		for i := range 5 {
			row := check.Value(f.orders.Fail(t.Context(), reservation(t, "somevoucher", user(i), 1, 1),
				model.ReasonUnprocessable))(t)
			orders = append(orders, row.ID)
		}
		list := check.Value(f.releases.After(t.Context(), model.Release{}, 3))(t)
		check.Need(t, len(list) == 3 && list[0].OrderID == orders[0] && list[2].OrderID == orders[2] &&
			list[1].UserID == user(1), "%+v", list)
		rest := check.Value(f.releases.After(t.Context(), list[2], 100))(t)
		check.That(t, len(rest) == 2 && rest[0].OrderID == orders[3], "%+v", rest)
		for range 2 { // again: nothing
			check.Must(t, f.releases.Done(t.Context(), []int64{list[2].ID, list[0].ID, 1 << 40}))
			check.Must(t, f.releases.DoneOrders(t.Context(), []string{orders[4], "absent", "no id!"}))
			left := f.outbox(t)
			check.That(t, slices.Equal(left, []string{orders[1], orders[3]}), "left %v of %v", left, orders)
		}
		check.Must(t, f.releases.Done(t.Context(), nil))
		check.Must(t, f.releases.DoneOrders(t.Context(), nil))
	})
}

// Orders are found by every kind of word, newest first and page by page, whatever the status.
func TestOrdersAreSearched(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		at := func(title string) model.Voucher {
			return l.voucher(t, model.VoucherFields{Title: title, Price: 1, Stock: 9})
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
			l.exec(t, "UPDATE orders SET created_at = ? WHERE id = ?",
				time.Now().Add(time.Duration(i-9)*time.Second).UTC().Truncate(time.Millisecond), id)
		}
		for _, test := range []struct {
			q    model.OrderQuery
			want string
		}{
			{model.OrderQuery{}, "bob2 tea bob1 ann"},
			{model.OrderQuery{Words: "  "}, "bob2 tea bob1 ann"},
			{model.OrderQuery{Status: model.OrderPaid}, "bob1"},
			{model.OrderQuery{Status: model.OrderFailed}, ""},
			{model.OrderQuery{Words: anns.ID}, "ann"},
			{model.OrderQuery{Words: "bob@example"}, "bob2 bob1"},
			{model.OrderQuery{Words: "bob@example", Status: model.OrderUnpaid}, "bob2"},
			{model.OrderQuery{Words: "ANN"}, "ann"},
			{model.OrderQuery{Words: account.ID}, "ann"},
			{model.OrderQuery{Words: "tea"}, "tea bob1 ann"}, // a user and a word, each once
			{model.OrderQuery{Words: "two GREEN"}, "bob1 ann"},
			{model.OrderQuery{Words: "two cake"}, ""},
			{model.OrderQuery{Words: "蛋糕"}, "bob2 tea"},
			{model.OrderQuery{Words: "100%"}, "bob1 ann"},
			{model.OrderQuery{Words: "1%0"}, ""},
			{model.OrderQuery{Words: "_"}, ""},
			{model.OrderQuery{Words: cake.ID}, "bob2 tea"},
			{model.OrderQuery{Words: "'; DROP TABLE orders; --"}, ""},
			{model.OrderQuery{Words: "7K3M", CodeHash: string(notice.Code.Hash)}, "bob1"},
			{model.OrderQuery{CodeHash: string(notice.Code.Hash)}, "bob1"},
			{model.OrderQuery{CodeHash: string(newCode(t).Hash)}, ""},
			{model.OrderQuery{Words: "7K3M", CodeHash: string(notice.Code.Hash), Status: model.OrderUnpaid}, ""},
		} {
			got := []string{}
			test.q.Limit = 1
			for pages := 0; pages <= len(names); pages++ {
				page := check.Value(l.orders.List(t.Context(), test.q))(t)
				for _, order := range page.Items {
					got = append(got, names[order.ID])
				}
				if test.q.Cursor = page.NextCursor; page.NextCursor == "" {
					break
				}
			}
			check.Equal(t, fmt.Sprintf("%q of %q", test.q.Words, test.q.Status), strings.Join(got, " "), test.want)
		}
		wantCode(t, check.ErrorOf(l.orders.List(t.Context(), model.OrderQuery{Status: "gone"})),
			model.CodeValidation)
		wantCode(t, check.ErrorOf(l.orders.List(t.Context(), model.OrderQuery{Cursor: "x"})), model.CodeValidation)
	})
}

// The books of a span have each order whose instant is in it, once, the latest first, however they are asked for and
// read; and their sums are those of the report.
func TestBooks(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		tea := l.voucher(t, model.VoucherFields{Title: "Tea", Stock: 99, Price: 1005})
		cake := l.voucher(t, model.VoucherFields{Title: "Cake", Stock: 99, Price: 7})
		for i, v := range []model.Voucher{tea, cake, tea} {
			ann := fmt.Sprint("ann", i)
			l.bought(t, v.ID, ann)
			_, code := l.paid(t, v.ID, ann+"-uses")
			check.Value(l.orders.Redeem(t.Context(), code.Hash, atTill("till")))(t)
			l.exec(t, "UPDATE uses SET place = ? WHERE used_by = 'till'", "north")
			back, _ := l.paid(t, v.ID, ann+"-regrets")
			check.Must(t, l.refunds.Done(t.Context(), l.refunded(t, back.ID).ID))
			l.paid(t, v.ID, ann+"-waits")
			cash := l.bought(t, v.ID, ann+"-cash")
			check.Value(l.payments.Elsewhere(t.Context(), cash.ID, newID(t), "boss", model.Elsewhere{Reference: "till " + ann}, newCode(t)))(t)
			l.refunded(t, cash.ID) // a person has to pay it back, and has not yet
			late := l.bought(t, v.ID, ann+"-late")
			payment := l.started(t, late)
			l.cancels(t, late.UserID, late.ID)
			check.Value(l.payments.Settle(t.Context(), money(t, payment)))(t)
		}
		all := map[string]model.BookedOrder{}
		books := func(q model.OrderQuery) (ids []string) {
			check.Must(t, l.orders.Each(t.Context(), q, func(o model.BookedOrder) error {
				ids = append(ids, o.ID)
				all[o.ID] = o
				check.Equal(t, "the place of "+o.UserID, o.Place, map[bool]string{true: "north"}[o.RedeemedAt != nil])
				return nil
			}))
			return ids
		}
		gift := l.voucher(t, model.VoucherFields{Title: "Gift", Stock: 9})
		l.db.Codes = func(string) model.SealedCode { return newCode(t) }
		free := l.bought(t, gift.ID, "carl")
		check.Equal(t, "orders in the books", len(books(model.OrderQuery{})), 19)
		check.That(t, all[free.ID].PaidAt != nil && all[free.ID].Received == 0, "a free order: %+v", all[free.ID])
		for voucher, want := range map[string]model.ReportMoney{tea.ID: {Received: 10050, Returned: 2010}, cake.ID: {Received: 35, Returned: 7}} {
			var got model.ReportMoney
			for _, o := range all {
				if o.VoucherID == voucher {
					got.Received, got.Returned = got.Received+o.Received, got.Returned+o.Returned
					check.Equal(t, "the reference of "+o.UserID, o.Reference != "", strings.HasSuffix(o.UserID, "-cash"))
				}
			}
			check.Equal(t, "the sums", got, want)
		}
		for _, v := range []model.Voucher{tea, cake} {
			var booked, sold model.ReportMoney
			for _, o := range all {
				if o.VoucherID == v.ID {
					booked.Received, booked.Returned = booked.Received+o.Received, booked.Returned+o.Returned
				}
			}
			check.Must(t, l.orders.Sold(t.Context(), v.ID, func(o model.BookedOrder) error {
				sold.Received, sold.Returned = sold.Received+o.Received, sold.Returned+o.Returned
				return nil
			}))
			check.That(t, booked == sold && sold.Returned > 0 && sold.Returned < sold.Received, "%+v, the report %+v", booked, sold)
		}
		for _, of := range model.OrderInstants() {
			var instants []time.Time
			in := func(q model.OrderQuery) (want []string) {
				for _, o := range all {
					at := map[model.OrderInstant]*time.Time{"created": &o.CreatedAt, "paid": o.PaidAt, "redeemed": o.RedeemedAt, "closed": o.ClosedAt}[of]
					title := map[string]string{tea.ID: "tea", cake.ID: "cake"}[o.VoucherID]
					if at == nil || at.Before(q.Span.From) || !q.Span.To.IsZero() && !at.Before(q.Span.To) ||
						q.VoucherID != "" && o.VoucherID != q.VoucherID || q.UserID != "" && o.UserID != q.UserID ||
						q.Status != "" && o.Status != q.Status || q.Words != "" && q.Words != title && q.Words != o.UserID {
						continue
					}
					want = append(want, o.ID)
				}
				span := model.Span{Of: of}
				slices.SortFunc(want, func(a, b string) int {
					return cmp.Or(span.At(all[b].Order).Compare(span.At(all[a].Order)), cmp.Compare(b, a))
				})
				return want
			}
			everything := model.OrderQuery{Span: model.Span{Of: of}}
			for _, id := range in(everything) {
				instants = append(instants, everything.Span.At(all[id].Order))
			}
			from, to := instants[len(instants)-1], instants[0] // the first is in it, the last is not
			for _, q := range []model.OrderQuery{
				{},
				{VoucherID: tea.ID},
				{UserID: "ann0-regrets"},
				{UserID: "ann0-regrets", VoucherID: tea.ID},
				{UserID: "ann1-uses", VoucherID: tea.ID},
				{Words: "tea"},
				{Words: "ann2-late"},
				{Words: "nobody"},
				{Status: model.OrderRefunded},
				{Status: model.OrderRedeemed, VoucherID: cake.ID},
			} {
				for _, span := range []model.Span{{Of: of}, {Of: of, From: from, To: to}, {Of: of, From: from}, {Of: of, To: from}, {Of: of, From: to.Add(time.Hour)}} {
					q.Span, q.Cursor, q.Limit = span, "", 2
					want := in(q)
					check.Equal(t, fmt.Sprintf("the export of %+v", q), fmt.Sprint(books(q)), fmt.Sprint(want))
					var got []string
					for more := true; more; more = q.Cursor != "" {
						page := check.Value(l.orders.List(t.Context(), q))(t)
						for _, o := range page.Items {
							got = append(got, o.ID)
						}
						q.Cursor = page.NextCursor
					}
					check.Equal(t, fmt.Sprintf("the list of %+v", q), fmt.Sprint(got), fmt.Sprint(want))
				}
			}
		}
	})
}
