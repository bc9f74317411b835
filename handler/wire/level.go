package wire

import "seckill/model"

// What is no operation of the API.
const (
	SeeCode       = "see-code" // of an order: whoever has it can use it
	OrderForBuyer = "cancel-order-for-buyer"
	RepairVoucher = "repair-voucher"
	SeeLetters    = "list-letters"
	ReplayLetter  = "replay-letter"
	DropLetter    = "drop-letter"
	SeeSystem     = "see-system"
	SeeAccount    = "see-account"
	SignOut       = "sign-out"
)

// LeastLevel is the one place that says which administrators may do something: the least
// level, by the id of the API's operation or one of the console's above. Whoever may do
// what is not here is not decided, and the handlers refuse to start.
func LeastLevel(operation string) (level model.Level, decided bool) {
	switch operation {
	case "admin-list-vouchers", "admin-get-voucher", "voucher-stats", "voucher-audit", "voucher-report", "voucher-orders",
		"admin-get-order", "search-orders", "list-refunds", "admin-log", "get-limits", SeeLetters, SeeSystem, SeeAccount, SignOut:
		return model.LevelViewer, true
	case "redeem-code", SeeCode:
		return model.LevelCashier, true
	case "create-voucher", "patch-voucher", "change-stock", "set-groups", "refund-order", OrderForBuyer:
		return model.LevelOperator, true
	case "rebuild-voucher", "patch-limits", RepairVoucher, ReplayLetter, DropLetter:
		return model.LevelAdmin, true
	}
	return "", false
}

// Allow refuses an administrator whose level is not enough: FORBIDDEN.
func Allow(level model.Level, operation string) error {
	least, decided := LeastLevel(operation)
	if decided && level.Reaches(least) {
		return nil
	}
	if level == "" {
		return &model.Error{Code: model.CodeForbidden, Detail: "Only an administrator may do this."}
	}
	return &model.Error{Code: model.CodeForbidden, Detail: "Your role as an administrator is not enough for this."}
}
