package repository_test

import (
	"errors"
	"testing"
	"time"

	"seckill/model"
)

func TestOneOrder(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 2)
		asked := order(t, v.ID, "alice")
		got := f.place(t, asked)
		must(t, got.Err)
		o := got.Order
		if !got.Created || o.ID != asked.ID || o.Status != model.OrderUnpaid || o.Price != 1000 || o.Currency != "CNY" ||
			o.UserID != "alice" || o.VoucherID != v.ID {
			t.Errorf("outcome %+v", got)
		}
		if o.ExpiresAt == nil || !o.ExpiresAt.Equal(o.CreatedAt.Add(paymentWindow)) || time.Since(o.CreatedAt).Abs() > time.Minute {
			t.Errorf("created %s, expires %v", o.CreatedAt, o.ExpiresAt)
		}
		read, err := f.orders.Get(t.Context(), o.ID)
		must(t, err)
		if !read.CreatedAt.Equal(o.CreatedAt) || !read.ExpiresAt.Equal(*o.ExpiresAt) || read.Price != o.Price || read.Status != o.Status {
			t.Errorf("read %+v, want %+v", read, o)
		}
		f.balanced(t, v.ID, 1)

		// The same id again is the same row, also once it is closed.
		again := f.place(t, asked)
		if again.Err != nil || again.Created || again.Order.ID != o.ID || !again.Order.CreatedAt.Equal(o.CreatedAt) {
			t.Errorf("again: %+v", again)
		}
		// Another id of the same user is refused, and told which order.
		other := f.place(t, order(t, v.ID, "alice"))
		wantCode(t, other.Err, model.CodeAlreadyOrdered)
		if e, ok := errors.AsType[*model.Error](other.Err); !ok || e.OrderID != o.ID || e.OrderStatus != model.OrderUnpaid {
			t.Errorf("refusal %+v", other.Err)
		}
		f.exec(t, "UPDATE orders SET status = 'canceled' WHERE id = ?", o.ID)
		f.exec(t, "UPDATE vouchers SET remaining = remaining + 1, version = version + 1 WHERE id = ?", v.ID)
		closed := f.place(t, asked)
		if closed.Err != nil || closed.Created || closed.Order.Status != model.OrderCanceled {
			t.Errorf("a closed order came back as %+v", closed)
		}
		// Closed orders are no obstacle to a new one.
		fresh := f.place(t, order(t, v.ID, "alice"))
		must(t, fresh.Err)
		f.balanced(t, v.ID, 1)
	})
}
