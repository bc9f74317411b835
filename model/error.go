package model

import (
	"errors"
	"fmt"
	"time"
)

// Code is the word that programs switch on, `code` of a problem document. The contract fixes the set.
type Code string

// The codes of the contract, in its order.
const (
	CodeValidation           Code = "VALIDATION"
	CodeUnauthenticated      Code = "UNAUTHENTICATED"
	CodeForbidden            Code = "FORBIDDEN"
	CodeNotFound             Code = "NOT_FOUND"
	CodeMethodNotAllowed     Code = "METHOD_NOT_ALLOWED"
	CodePayloadTooLarge      Code = "PAYLOAD_TOO_LARGE"
	CodeUnsupportedMediaType Code = "UNSUPPORTED_MEDIA_TYPE"
	CodeNotEligible          Code = "NOT_ELIGIBLE"
	CodeEnded                Code = "ENDED"
	CodePaused               Code = "PAUSED"
	CodeNotStarted           Code = "NOT_STARTED"
	CodeAlreadyOrdered       Code = "ALREADY_ORDERED"
	CodeCoolingDown          Code = "COOLING_DOWN"
	CodeSoldOut              Code = "SOLD_OUT"
	CodeConflict             Code = "CONFLICT"
	CodePreconditionFailed   Code = "PRECONDITION_FAILED"
	CodeIllegalState         Code = "ILLEGAL_STATE"
	CodeAlreadyPaid          Code = "ALREADY_PAID"
	CodeWithdrawalOver       Code = "WITHDRAWAL_OVER"
	CodeNotYetValid          Code = "CODE_NOT_YET_VALID"
	CodeExpired              Code = "CODE_EXPIRED"
	CodeLockBusy             Code = "LOCK_BUSY"
	CodeRateLimited          Code = "RATE_LIMITED"
	CodeUnavailable          Code = "UNAVAILABLE"
	CodeInternal             Code = "INTERNAL"
)

// Codes lists every code.
func Codes() []Code {
	return []Code{
		CodeValidation, CodeUnauthenticated, CodeForbidden, CodeNotFound, CodeMethodNotAllowed, CodePayloadTooLarge,
		CodeUnsupportedMediaType, CodeNotEligible, CodeEnded, CodePaused, CodeNotStarted, CodeAlreadyOrdered,
		CodeCoolingDown, CodeSoldOut, CodeConflict, CodePreconditionFailed, CodeIllegalState, CodeAlreadyPaid,
		CodeWithdrawalOver, CodeNotYetValid, CodeExpired, CodeLockBusy, CodeRateLimited, CodeUnavailable, CodeInternal,
	}
}

// ErrUnknownOutcome marks an operation sent and not answered: only a repeat with the same ids decides; undo nothing.
var ErrUnknownOutcome = errors.New("outcome unknown")

// ErrDataRefused marks the database's refusal of an order's own data: alone it fails an accepted order for good.
var ErrDataRefused = errors.New("the database refused the data")

// HeldError says that a transaction did nothing, because it waited too long for a row that another one keeps locked.
type HeldError struct {
	VoucherID string // whose row it is; empty if that is not known
	Cause     error
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("a row of voucher %q is held: %v", e.VoucherID, e.Cause)
}

// Unwrap gives the cause.
func (e *HeldError) Unwrap() error { return e.Cause }

// ErrNotTried marks an accepted order that is left alone for now, because its voucher's could not be stored a moment ago.
var ErrNotTried = errors.New("not tried now")

// ErrOutage marks an accepted order that was not stored, for no fault of it or its voucher: isolating it is no help.
var ErrOutage = errors.New("nothing can be stored now")

// FieldError names one wrong field of a request: where it stands (`body.title`, `query.limit`), and why.
type FieldError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error is an answer of the domain instead of a result, born with its code. One switch of handler makes it HTTP.
type Error struct {
	Code       Code
	Detail     string        // for people; never internals of a server
	RetryAfter time.Duration // before a client asks again; zero when waiting is of no use

	OrderID     string       // ALREADY_ORDERED: the live order
	OrderIDs    []string     // CONFLICT: the orders in the way
	OrderStatus OrderStatus  // ALREADY_ORDERED, ILLEGAL_STATE
	BeginAt     time.Time    // NOT_STARTED
	RetryAt     time.Time    // COOLING_DOWN
	Reference   string       // ALREADY_PAID: of the payment made elsewhere
	Until       time.Time    // WITHDRAWAL_OVER; zero: there was no time for it
	Validity                 // CODE_NOT_YET_VALID, CODE_EXPIRED
	Fields      []FieldError // VALIDATION
	RedeemedAt  time.Time    // ILLEGAL_STATE of a code: when it was used
	RedeemedBy  string       // likewise: the username of who used it, or the id of who has no account
	Cause       error        // what went wrong underneath, for the log; clients never see it
}

func (e *Error) Error() string {
	text := string(e.Code)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Cause }

// CodeOf tells the code of an error; an error that is none of ours is a bug, hence INTERNAL.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// StillLive refuses to erase a user who has live orders.
func StillLive(orderIDs []string) *Error {
	return &Error{
		Code: CodeConflict, OrderIDs: orderIDs,
		Detail: "The user has live orders: they are to be used, canceled, refunded or expired first.",
	}
}

// Invalid is the VALIDATION error of one field.
func Invalid(location, format string, args ...any) *Error {
	message := fmt.Sprintf(format, args...)
	return &Error{
		Code:   CodeValidation,
		Detail: "The request is not valid.",
		Fields: []FieldError{{Location: location, Message: message}},
	}
}

// JoinInvalid makes one VALIDATION error of those that are not nil: nil when all are.
func JoinInvalid(errs ...error) error {
	var all *Error
	for _, err := range errs {
		one, ok := errors.AsType[*Error](err)
		switch {
		case !ok:
		case all == nil:
			all = one
		default:
			all.Fields = append(all.Fields, one.Fields...)
		}
	}
	if all == nil {
		return nil
	}
	return all
}

// NotFound says that there is no such thing, or that it is not the caller's.
func NotFound(what string) *Error {
	return &Error{Code: CodeNotFound, Detail: "There is no such " + what + "."}
}

// Conflict refuses a change that is impossible now.
func Conflict(detail string) *Error { return &Error{Code: CodeConflict, Detail: detail} }

// Unavailable says that the truth was not learnt in time. A second is the least that a restart needs.
func Unavailable(detail string, cause error) *Error {
	return &Error{Code: CodeUnavailable, Detail: detail, RetryAfter: time.Second, Cause: cause}
}
