package handler

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"seckill/model"
)

// problemType is the media type of RFC 9457.
const problemType = "application/problem+json"

// Problem is an RFC 9457 problem document. Code is what programs switch on.
type Problem struct { //nolint:errname // a document, which huma takes for an error
	Type        string             `json:"type" example:"/problems/sold-out" doc:"The kind of problem: /problems/ and the code in kebab case."`
	Title       string             `json:"title" example:"Sold out" doc:"The kind of problem, for people."`
	Status      int                `json:"status" example:"409" doc:"The HTTP status."`
	Detail      string             `json:"detail" doc:"What happened this time, for people."`
	Code        model.Code         `json:"code" example:"SOLD_OUT" doc:"The word programs switch on."`
	OrderID     string             `json:"order_id,omitempty" doc:"ALREADY_ORDERED: the live order."`
	OrderStatus model.OrderStatus  `json:"order_status,omitempty" doc:"ALREADY_ORDERED and ILLEGAL_STATE: where that order stands."`
	BeginAt     *time.Time         `json:"begin_at,omitempty" doc:"NOT_STARTED: when the sale begins."`
	Errors      []model.FieldError `json:"errors,omitempty" nullable:"false" doc:"VALIDATION: every field that is wrong."`

	// Checks are the lines of /readyz.
	Checks map[string]string `json:"checks,omitempty" doc:"Of /readyz: one line per dependency."`

	retryAfter time.Duration
}

// kind is what a code always means on HTTP.
type kind struct {
	status int
	title  string
}

// kindOf is the one place where a code of the domain becomes HTTP.
func kindOf(code model.Code) kind {
	switch code {
	case model.CodeValidation:
		return kind{http.StatusUnprocessableEntity, "Not valid"}
	case model.CodeUnauthenticated:
		return kind{http.StatusUnauthorized, "Not authenticated"}
	case model.CodeForbidden:
		return kind{http.StatusForbidden, "Forbidden"}
	case model.CodeNotFound:
		return kind{http.StatusNotFound, "Not found"}
	case model.CodeMethodNotAllowed:
		return kind{http.StatusMethodNotAllowed, "Method not allowed"}
	case model.CodePayloadTooLarge:
		return kind{http.StatusRequestEntityTooLarge, "Payload too large"}
	case model.CodeUnsupportedMediaType:
		return kind{http.StatusUnsupportedMediaType, "Unsupported media type"}
	case model.CodeEnded:
		return kind{http.StatusConflict, "Ended"}
	case model.CodePaused:
		return kind{http.StatusConflict, "Paused"}
	case model.CodeNotStarted:
		return kind{http.StatusConflict, "Not started"}
	case model.CodeAlreadyOrdered:
		return kind{http.StatusConflict, "Already ordered"}
	case model.CodeSoldOut:
		return kind{http.StatusConflict, "Sold out"}
	case model.CodeConflict:
		return kind{http.StatusConflict, "Conflict"}
	case model.CodeIllegalState:
		return kind{http.StatusConflict, "Illegal state"}
	case model.CodeLockBusy:
		return kind{http.StatusTooManyRequests, "Lock busy"}
	case model.CodeRateLimited:
		return kind{http.StatusTooManyRequests, "Rate limited"}
	case model.CodeUnavailable:
		return kind{http.StatusServiceUnavailable, "Unavailable"}
	case model.CodeInternal:
		return kind{http.StatusInternalServerError, "Internal error"}
	}
	return kind{http.StatusInternalServerError, "Internal error"}
}

// problemOf translates any error. An error that the domain does not know
// is a bug, unless a deadline has passed: then the truth was not learnt in time,
// which is UNAVAILABLE.
func problemOf(err error) *Problem {
	refusal, ok := errors.AsType[*model.Error](err)
	switch {
	case ok:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		refusal = model.Unavailable("The answer was not known in time.", err)
	default:
		refusal = &model.Error{Code: model.CodeInternal}
	}
	kind := kindOf(refusal.Code)
	p := &Problem{
		Type:        "/problems/" + strings.ToLower(strings.ReplaceAll(string(refusal.Code), "_", "-")),
		Title:       kind.title,
		Status:      kind.status,
		Detail:      refusal.Detail,
		Code:        refusal.Code,
		OrderID:     refusal.OrderID,
		OrderStatus: refusal.OrderStatus,
		Errors:      refusal.Fields,
		retryAfter:  refusal.RetryAfter,
	}
	if kind.status == http.StatusInternalServerError {
		// Whatever the error says was not written for strangers.
		p.Code, p.Type = model.CodeInternal, "/problems/internal"
		p.Detail = "Something went wrong on our side. The request id finds it in our log."
	}
	if p.Detail == "" {
		p.Detail = p.Title + "."
	}
	if p.Code == model.CodeValidation && len(p.Errors) == 0 {
		p.Errors = []model.FieldError{{Location: "request", Message: p.Detail}}
	}
	if !refusal.BeginAt.IsZero() {
		begin := refusal.BeginAt.UTC()
		p.BeginAt = &begin
	}
	return p
}

// Error implements error.
func (p *Problem) Error() string { return string(p.Code) + ": " + p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

// GetHeaders implements huma.HeadersError: the headers a code comes with.
func (p *Problem) GetHeaders() http.Header {
	header := http.Header{}
	switch p.Code {
	case model.CodeUnauthenticated:
		header.Set("WWW-Authenticate", "Bearer")
	case model.CodeNotStarted, model.CodeLockBusy, model.CodeRateLimited, model.CodeUnavailable:
		header.Set("Retry-After", retryAfter(p.retryAfter))
	case model.CodeValidation, model.CodeForbidden, model.CodeNotFound, model.CodeMethodNotAllowed,
		model.CodePayloadTooLarge, model.CodeUnsupportedMediaType, model.CodeEnded, model.CodePaused,
		model.CodeAlreadyOrdered, model.CodeSoldOut, model.CodeConflict, model.CodeIllegalState, model.CodeInternal:
	}
	return header
}

// retryAfter renders a wait in whole seconds. It rounds up, because a client
// that comes back early is refused again, and never says 0, which would be an
// invitation to hammer.
func retryAfter(wait time.Duration) string {
	seconds := int64(math.Ceil(wait.Seconds()))
	return strconv.FormatInt(max(seconds, 1), 10)
}
