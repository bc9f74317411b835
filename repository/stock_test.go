package repository_test

import (
	"testing"
	"time"

	"seckill/repository"
)

// TestPessimisticNeedsRowLocks: SQLite has none.
func TestPessimisticNeedsRowLocks(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		_, err := repository.NewOrders(f.db, repository.OrderOptions{Strategy: repository.StockPessimistic, PaymentWindow: time.Minute})
		if (err != nil) != (f.store.dialect == "sqlite") {
			t.Errorf("error %v", err)
		}
		for _, options := range []repository.OrderOptions{{Strategy: "hopeful", PaymentWindow: time.Minute}, {}} {
			if _, err := repository.NewOrders(f.db, options); err == nil {
				t.Errorf("%+v was accepted", options)
			}
		}
	})
}
