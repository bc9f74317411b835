package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"seckill/internal/ids"
	"seckill/model"
	"seckill/repository"
)

// stock is one of the product's own strategies to sell: orders made by the
// repository, in the product's own tables. The account is the number of orders.
func stock(how repository.StockStrategy, on backing, why string) strategy {
	return strategy{
		name: "stock: " + string(how), group: groupStock, on: on, why: why,
		attacks: []attack{heldRow()},
		open: func(_ context.Context, s setup) (performer, error) {
			orders, err := repository.NewOrders(s.db, repository.OrderOptions{Strategy: how, PaymentWindow: saleWindow})
			if err != nil {
				return nil, err
			}
			return &seller{orders: orders, voucher: s.Name}, nil
		},
		ledger: func(_ context.Context, s setup) (ledger, error) {
			return sale{vouchers: repository.NewVouchers(s.db, "CNY"), voucher: s.Name}, nil
		},
	}
}

// saleWindow is how long the lab's vouchers are on sale: longer than any run.
const saleWindow = time.Hour

type seller struct {
	orders  *repository.Orders
	voucher string
}

// perform sells one unit to a user of its own.
func (w *seller) perform(ctx context.Context) (outcome, error) {
	unique, err := ids.New()
	if err != nil {
		return outcome{}, err
	}
	began := time.Now()
	outcomes, err := w.orders.CreateOrders(ctx, []model.Order{{
		ID: model.OrderID(unique, w.voucher), VoucherID: w.voucher, UserID: unique,
	}})
	if err != nil {
		return outcome{}, fmt.Errorf("sell a unit: %w", err)
	}
	waited := time.Since(began)
	if refusal, ok := errors.AsType[*model.Error](outcomes[0].Err); ok && refusal.Code == model.CodeSoldOut {
		return outcome{Result: resultSoldOut, Waited: waited}, nil
	}
	if outcomes[0].Err != nil {
		return outcome{}, fmt.Errorf("sell a unit: %w", outcomes[0].Err)
	}
	return outcome{Result: resultDone, Sold: true, Waited: waited}, nil
}

func (*seller) close() error { return nil }

// sale is the voucher of a free run or an attack.
type sale struct {
	vouchers *repository.Vouchers
	voucher  string
}

func (l sale) open(ctx context.Context, stock int64) error {
	now := time.Now()
	_, err := l.vouchers.Create(ctx, l.voucher, model.NewVoucher{
		Title: "lab", Stock: stock, BeginAt: now.Add(-saleWindow), EndAt: now.Add(saleWindow),
	}, model.Idempotency{})
	return err
}

func (l sale) read(ctx context.Context) (figures, error) {
	stats, err := l.vouchers.Stats(ctx, l.voucher)
	if err != nil {
		return figures{}, err
	}
	var orders int64
	for _, n := range stats.OrdersByStatus {
		orders += n
	}
	return figures{Balance: orders, Remaining: stats.Remaining}, nil
}

func (sale) close() error { return nil }
