package model

// Stats counts one voucher's units and orders at one instant.
type Stats struct {
	Stock          int64                 `json:"stock"`
	Remaining      int64                 `json:"remaining"`
	Reserved       int64                 `json:"reserved"`
	Sold           int64                 `json:"sold"`
	OrdersByStatus map[OrderStatus]int64 `json:"orders_by_status"`
}

// Audit is the conservation check of one voucher.
type Audit struct {
	VoucherID string         `json:"voucher_id"`
	Mode      OrderMode      `json:"mode"`
	Balanced  bool           `json:"balanced"`
	Database  AuditDatabase  `json:"database"`
	Redis     *AuditHotCopy  `json:"redis"` // nil in sync mode, and of a draw: there is no copy
	Queue     *AuditQueue    `json:"queue"` // nil likewise: there is no queue
	Drift     []DriftedOrder `json:"drift"`
	Draw      bool           `json:"-"` // the voucher is allocated by draw
}

// AuditDatabase is what the database says.
type AuditDatabase struct {
	Stock      int64 `json:"stock"`
	Remaining  int64 `json:"remaining"`
	LiveOrders int64 `json:"live_orders"`
	Waiting    int64 `json:"waiting,omitempty" doc:"How many wait for a unit, as the voucher says; while anybody does, nothing remains."`
}

// AuditHotCopy is what the copy that admits buyers says.
type AuditHotCopy struct {
	State     string `json:"state"` // open, closed or rebuilding
	Remaining int64  `json:"remaining"`
	Reserved  int64  `json:"reserved"`
	Buyers    int64  `json:"buyers"`
}

// AuditQueue is what waits to be persisted.
type AuditQueue struct {
	Pending     int64 `json:"pending"`
	OldestAgeMS int64 `json:"oldest_age_ms"`
}

// DriftedOrder names an order that does not add up, and what was found.
type DriftedOrder struct {
	OrderID string `json:"order_id"`
	Found   string `json:"found"`
}
