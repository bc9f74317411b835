package model

import "time"

// StockIntent announces that a voucher's stock is about to shrink: the hot copy
// is lowered first, and if the process dies in between, the intent tells that
// the copy must be put right.
type StockIntent struct {
	VoucherID string
	// Stock is what it is to become.
	Stock int64
	// Revision is that of the voucher when it was intended; at another one the
	// intent is void.
	Revision  int64
	CreatedAt time.Time `gorm:"autoCreateTime:false"`
}
