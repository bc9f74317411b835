package service

import (
	"testing"

	"seckill/model"
	"seckill/service/servicetest"
)

// An instance of another order mode than the database's changes nothing: it could not tell the hot copies.
func TestInstanceOfAnotherModeChangesNothing(t *testing.T) {
	t.Parallel()
	vouchers := NewVouchers(VoucherDeps{Selling: func() error { return model.Unavailable("another order mode", nil) }})
	title := "Tea"
	_, patched := vouchers.Patch(t.Context(), "v", model.VoucherPatch{Title: &title})
	_, stocked := vouchers.ChangeStock(t.Context(), "v", model.StockChange{Stock: new(int64)}, model.Idempotency{})
	servicetest.WantCode(t, patched, model.CodeUnavailable)
	servicetest.WantCode(t, stocked, model.CodeUnavailable)
}

func TestNothingIsRebuiltInSync(t *testing.T) {
	t.Parallel()
	vouchers := NewVouchers(VoucherDeps{Stock: SyncStock{}, Selling: func() error { return nil }})
	servicetest.WantCode(t, vouchers.Rebuild(t.Context(), "v1", "boss"), model.CodeConflict)
}
