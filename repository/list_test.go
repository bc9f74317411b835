package repository_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

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
			must(t, f.place(t, o).Err)
			f.exec(t, "UPDATE orders SET status = 'canceled' WHERE id = ?", o.ID)
			want = append(want, o.ID)
		}
		slices.Reverse(want) // ids sort by time, too
		must(t, f.place(t, order(t, other.ID, "alice")).Err)
		must(t, f.place(t, order(t, v.ID, "bob")).Err)
		query := model.OrderQuery{UserID: "alice", VoucherID: v.ID, Status: model.OrderCanceled, Limit: 4}
		var got []string
		for {
			page, err := f.orders.List(t.Context(), query)
			must(t, err)
			for _, o := range page.Items {
				got = append(got, o.ID)
			}
			if query.Cursor = page.NextCursor; query.Cursor == "" {
				break
			}
			if len(page.Items) != query.Limit {
				t.Errorf("a page of %d", len(page.Items))
			}
			newer := order(t, v.ID, "alice") // what arrives meanwhile does not disturb
			must(t, f.place(t, newer).Err)
			f.exec(t, "UPDATE orders SET status = 'canceled' WHERE id = ?", newer.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %d rows %v, want %v", len(got), got, want)
		}
		var streamed int
		must(t, f.orders.Each(t.Context(), model.OrderQuery{VoucherID: v.ID, Limit: 1}, func(model.Order) error { streamed++; return nil }))
		if all := f.number(t, "SELECT COUNT(*) FROM orders WHERE voucher_id = ?", v.ID); int64(streamed) != all {
			t.Errorf("streamed %d, want %d", streamed, all)
		}
		stop := errors.New("enough")
		if err := f.orders.Each(t.Context(), model.OrderQuery{}, func(model.Order) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("error %v", err)
		}
		if err := f.orders.Each(t.Context(), model.OrderQuery{VoucherID: "absent"}, func(model.Order) error { return stop }); err != nil {
			t.Error(err)
		}
	})
}

// TestVoucherPages: the same for vouchers, with the default size.
func TestVoucherPages(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		var want []string
		for range 23 {
			want = append(want, f.onSale(t, 1).ID)
		}
		f.exec(t, "UPDATE vouchers SET created_at = (SELECT created_at FROM (SELECT MIN(created_at) AS created_at FROM vouchers) AS first)")
		slices.Reverse(want)
		var got []string
		query := model.VoucherQuery{}
		for pages := 1; ; pages++ {
			page, err := f.vouchers.List(t.Context(), query)
			must(t, err)
			for _, v := range page.Items {
				got = append(got, v.ID)
			}
			if query.Cursor = page.NextCursor; query.Cursor == "" {
				if pages != 2 {
					t.Errorf("%d pages", pages)
				}
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		empty, err := f.vouchers.List(t.Context(), model.VoucherQuery{Phase: model.PhaseEnded})
		if err != nil || empty.Items == nil || len(empty.Items) != 0 {
			t.Errorf("an empty list is %+v, %v", empty, err)
		}
	})
}

func TestBadCursors(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		encode := base64.RawURLEncoding.EncodeToString
		for _, cursor := range []string{
			"x", "!", encode([]byte("1")), encode([]byte(" ")), encode([]byte("1 a b")), encode([]byte("x 1.v")), encode([]byte("1 ")),
			encode([]byte("9223372036854775807 1.v")), encode([]byte("-9223372036854775808 1.v")), encode([]byte("+1 1.v")),
			encode([]byte("1 1.v")) + "=", encode([]byte("1 1.v")) + "\n", encode([]byte("1 '; DROP TABLE orders; --")),
		} {
			_, err := f.orders.List(t.Context(), model.OrderQuery{Cursor: cursor})
			wantCode(t, err, model.CodeValidation)
			if e, ok := errors.AsType[*model.Error](err); !ok || len(e.Fields) != 1 || e.Fields[0].Location != "query.cursor" {
				t.Errorf("%q: %+v", cursor, err)
			}
			_, err = f.vouchers.List(t.Context(), model.VoucherQuery{Cursor: cursor})
			wantCode(t, err, model.CodeValidation)
			wantCode(t, f.orders.Each(t.Context(), model.OrderQuery{Cursor: cursor}, nil), model.CodeValidation)
		}
	})
}

// TestBuyersAndStreams need more rows than are read at once.
func TestBuyersAndStreams(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		const rows = 1001
		v := f.onSale(t, rows)
		var batch []model.Order
		var want []string
		for i := range rows {
			batch = append(batch, order(t, v.ID, user(i)))
			want = append(want, user(i))
		}
		f.create(t, batch...)
		f.exec(t, "UPDATE orders SET status = 'expired' WHERE user_id = ?", user(0))
		var got []string
		must(t, f.orders.Buyers(t.Context(), v.ID, func(u string) error { got = append(got, u); return nil }))
		if !slices.Equal(got, want[1:]) {
			t.Errorf("%d buyers, want %d", len(got), rows-1)
		}
		seen := map[string]bool{}
		must(t, f.orders.Each(t.Context(), model.OrderQuery{VoucherID: v.ID}, func(o model.Order) error {
			seen[o.ID] = true
			return nil
		}))
		if len(seen) != rows {
			t.Errorf("%d streamed, want %d", len(seen), rows)
		}
		stop := errors.New("enough")
		if err := f.orders.Buyers(t.Context(), v.ID, func(string) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("error %v", err)
		}
	})
}

func TestDetail(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 1)
		o := f.place(t, order(t, v.ID, "alice")).Order
		detail, err := f.orders.Detail(t.Context(), o.ID)
		must(t, err)
		if detail.ID != o.ID || len(detail.History) != 1 {
			t.Fatalf("detail %+v", detail)
		}
		born := detail.History[0]
		if born.From != nil || born.To != model.OrderUnpaid || born.By != "alice" || !born.At.Equal(o.CreatedAt) {
			t.Errorf("history %+v", born)
		}
		_, err = f.orders.Detail(t.Context(), fmt.Sprint("1.", v.ID))
		wantCode(t, err, model.CodeNotFound)
	})
}

// TestImpossibleIDs reach no SQL, where they would be an error or match too much.
func TestImpossibleIDs(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 1)
		must(t, f.place(t, order(t, v.ID, "alice")).Err)
		for _, q := range []model.OrderQuery{{UserID: "Bób"}, {UserID: "alice "}, {VoucherID: "茶"}, {VoucherID: v.ID + " "}} {
			page, err := f.orders.List(t.Context(), q)
			if err != nil || len(page.Items) != 0 {
				t.Errorf("%+v: %+v, %v", q, page, err)
			}
		}
		_, err := f.orders.List(t.Context(), model.OrderQuery{Status: "é"})
		wantCode(t, err, model.CodeValidation)
		must(t, f.orders.Buyers(t.Context(), v.ID+" ", func(string) error { return errors.New("a buyer") }))
		many, err := f.vouchers.GetMany(t.Context(), []string{"é", v.ID + " ", v.ID})
		if err != nil || len(many) != 1 {
			t.Errorf("many: %+v, %v", many, err)
		}
		for _, id := range []string{"é", v.ID + " "} {
			_, err := f.vouchers.Get(t.Context(), id)
			wantCode(t, err, model.CodeNotFound)
			_, err = f.vouchers.Patch(t.Context(), id, model.VoucherPatch{})
			wantCode(t, err, model.CodeNotFound)
			_, err = f.vouchers.ChangeStock(t.Context(), id, model.StockChange{Stock: new(int64)}, model.Idempotency{})
			wantCode(t, err, model.CodeNotFound)
			_, err = f.vouchers.Stats(t.Context(), id)
			wantCode(t, err, model.CodeNotFound)
		}
	})
}
