// Package wire is what API and console share of HTTP: what a code of the domain means there, and orders as CSV.
package wire

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"seckill/model"
)

// Kind is what a code always means on HTTP.
type Kind struct {
	Status int
	Title  string
	Means  string // in a sentence or two, for the people who write clients
	ToDo   string // what the client should do
}

func kind(status int, title, means, toDo string) Kind { return Kind{status, title, means, toDo} }

// kinds is the one place where a code of the domain becomes HTTP.
var kinds = map[model.Code]Kind{ //nolint:gochecknoglobals // constant
	model.CodeValidation: kind(http.StatusUnprocessableEntity, "Not valid",
		"Something in the request has a wrong form or value; errors names each place. The status is 400 when the body is not JSON.",
		"Correct what errors names. The same request will be refused again."),
	model.CodeUnauthenticated: kind(http.StatusUnauthorized, "Not authenticated",
		"The request has no token, or one that is malformed, expired, revoked or not of this service; at a login, the username or the password is wrong.",
		"Get a new token and repeat the request with it. Where the token is its issuer's, the detail names the claim that is wrong."),
	model.CodeForbidden: kind(http.StatusForbidden, "Forbidden", "The token is good, but its role may not do this.",
		"Use the token of an administrator."),
	model.CodeNotFound: kind(http.StatusNotFound, "Not found",
		"There is nothing here, or it is not yours: the orders of others look as if they were not there.",
		"Check the path and the id."),
	model.CodeMethodNotAllowed: kind(http.StatusMethodNotAllowed, "Method not allowed",
		"The path exists, but does not know this method.", "Use one of the methods in the header Allow."),
	model.CodePayloadTooLarge: kind(http.StatusRequestEntityTooLarge, "Payload too large",
		"The body of the request is larger than 16 KiB.", "Send a smaller one. The connection is closed."),
	model.CodeUnsupportedMediaType: kind(http.StatusUnsupportedMediaType, "Unsupported media type",
		"The body of the request is not application/json in UTF-8, or is compressed.", "Send plain JSON."),
	model.CodeNotEligible: kind(http.StatusForbidden, "Not eligible",
		"The voucher is for groups of users, and your token names none of them.",
		"Do not repeat the request. Who was put into a group meanwhile gets a new token first."),
	model.CodeEnded: kind(http.StatusConflict, "Ended", "The sale is over.",
		"Do not repeat the request. An order that was made before the end is in GET /api/v1/orders."),
	model.CodePaused: kind(http.StatusConflict, "Paused", "An administrator has paused the sale.",
		"Look at the voucher now and then; its phase tells when the sale goes on."),
	model.CodeNotStarted: kind(http.StatusConflict, "Not started", "The sale begins at begin_at.",
		"Come back after the seconds in Retry-After. The server's clock decides, not yours."),
	model.CodeAlreadyOrdered: kind(http.StatusConflict, "Already ordered",
		"You have an order for this voucher, which order_id names. Each user may get one.",
		"After a lost answer this is the good news: go on with that order."),
	model.CodeCoolingDown: kind(http.StatusConflict, "Cooling down",
		"Your last order for this voucher was canceled or expired. You may buy again from retry_at on.",
		"Come back after the seconds in Retry-After. Each further order that ends unpaid makes the wait twice as long."),
	model.CodeSoldOut: kind(http.StatusConflict, "Sold out", "Nothing is left, and you have no order.",
		"Stop asking. Units come back when orders are canceled or expire; the voucher's phase is live again then."),
	model.CodeConflict: kind(http.StatusConflict, "Conflict",
		"The change is impossible as things are: the stock would be below what is sold, the username is taken, the Idempotency-Key was used for something else.",
		"Read the detail, and ask for something that is possible."),
	model.CodePreconditionFailed: kind(http.StatusPreconditionFailed, "Precondition failed",
		"The voucher is not what the tag in If-Match stands for: an administrator has changed it since you read it. Nothing was changed by this request.",
		"Read the voucher again, decide again, and send the change with its new ETag."),
	model.CodeIllegalState: kind(http.StatusConflict, "Illegal state",
		"The order cannot make this move from where it stands, which order_status tells.",
		"Read the order, and offer only what its status allows."),
	model.CodeAlreadyPaid: kind(http.StatusConflict, "Already paid",
		"The order was paid elsewhere, with the reference that reference names. Nothing was changed.",
		"Compare the references: if both payments were made, one of them has to be paid back."),
	model.CodeWithdrawalOver: kind(http.StatusConflict, "Withdrawal over",
		"The time in which a buyer may give the order back has passed at until, or the voucher has no such time.",
		"Do not repeat the request. The shop may still refund the order."),
	model.CodeNotYetValid: kind(http.StatusConflict, "Code not yet valid", "The code cannot be used before valid_from.",
		"Come back then."),
	model.CodeExpired: kind(http.StatusConflict, "Code expired", "The time of the code ended at valid_until.",
		"Do not repeat the request. The shop may make the time of the voucher longer."),
	model.CodeLockBusy: kind(http.StatusTooManyRequests, "Lock busy",
		"Another request of yours is being worked on. This one has changed nothing.",
		"Repeat it after the seconds in Retry-After."),
	model.CodeRateLimited: kind(http.StatusTooManyRequests, "Rate limited",
		"Too many requests of this user or from this address; RateLimit-Policy tells the limit.",
		"Repeat the request after the seconds in Retry-After, and ask less often."),
	model.CodeUnavailable: kind(http.StatusServiceUnavailable, "Unavailable",
		"The answer could not be learnt in time: something that the service depends on is away, or this server is about to stop. "+
			"A purchase may have happened all the same.",
		"Repeat the same request after the seconds in Retry-After. It is answered with the order, or with ALREADY_ORDERED and its order_id."),
	model.CodeInternal: kind(http.StatusInternalServerError, "Internal error", "Something went wrong on our side.",
		"Repeat the request once. If it fails again, tell us the X-Request-Id of the answer: it finds the cause in our log."),
}

// KindOf is what a code is on HTTP. One that nobody knows is a bug, as INTERNAL.
func KindOf(code model.Code) Kind {
	if kind, known := kinds[code]; known {
		return kind
	}
	return kinds[model.CodeInternal]
}

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
	Colleagues    = "colleagues"
	SignOut       = "sign-out"
)

// LeastLevel is the level that an operation of the API or of the console needs. Handlers refuse to start without one.
func LeastLevel(operation string) (level model.Level, decided bool) {
	switch operation {
	case "admin-list-vouchers", "admin-get-voucher", "voucher-stats", "voucher-audit", "voucher-report", "voucher-orders",
		"admin-get-order", "search-orders", "list-refunds", "admin-log", "get-limits", "list-receivers", SeeLetters,
		SeeSystem, SeeAccount, SignOut:
		return model.LevelViewer, true
	case "redeem-code", "unredeem-order", "pay-elsewhere", SeeCode:
		return model.LevelCashier, true
	case "create-voucher", "patch-voucher", "change-stock", "set-groups", "refund-order", "replay-events", "enter-beacon",
		"refund-paid-back", OrderForBuyer:
		return model.LevelOperator, true
	case "rebuild-voucher", "patch-limits", "user-data", "erase-user", RepairVoucher, ReplayLetter, DropLetter, Colleagues:
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

// RetryAfter is a wait in whole seconds (RFC 9110, 10.2.3), at least one, rounded up: who is early is refused.
func RetryAfter(wait time.Duration) string {
	seconds := int64(math.Ceil(wait.Seconds()))
	return strconv.FormatInt(max(seconds, 1), 10)
}
