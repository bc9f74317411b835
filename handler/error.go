package handler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"

	"seckill/handler/wire"
	"seckill/internal/budget"
	"seckill/internal/version"
	"seckill/internal/words"
	"seckill/model"
)

const problemType = "application/problem+json" // RFC 9457

// Problem is an RFC 9457 problem document. Code is what programs switch on.
type Problem struct { //nolint:errname // a document, which huma takes for an error
	Type        string             `json:"type" example:"/problems/sold-out" doc:"The kind of problem: /problems/ and the code in kebab case."`
	Title       string             `json:"title" example:"Sold out" doc:"The kind of problem, for people."`
	Status      int                `json:"status" example:"409" doc:"The HTTP status."`
	Detail      string             `json:"detail" doc:"What happened this time, for people."`
	Code        model.Code         `json:"code" example:"SOLD_OUT" doc:"The word programs switch on."`
	OrderID     string             `json:"order_id,omitempty" doc:"ALREADY_ORDERED: the live order."`
	OrderIDs    []string           `json:"order_ids,omitempty" nullable:"false" doc:"CONFLICT: the live orders of a user who is to be erased."`
	OrderStatus model.OrderStatus  `json:"order_status,omitempty" doc:"ALREADY_ORDERED and ILLEGAL_STATE: where that order stands."`
	BeginAt     *time.Time         `json:"begin_at,omitempty" doc:"NOT_STARTED: when the sale begins."`
	RetryAt     *time.Time         `json:"retry_at,omitempty" doc:"COOLING_DOWN: from when on you may buy again."`
	Reference   string             `json:"reference,omitempty" doc:"ALREADY_PAID: of the payment made elsewhere."`
	Until       *time.Time         `json:"until,omitempty" doc:"WITHDRAWAL_OVER: until when the order could be given back; absent: there was no such time."`
	ValidFrom   *time.Time         `json:"valid_from,omitempty" doc:"CODE_NOT_YET_VALID and CODE_EXPIRED: from when on the code can be used."`
	ValidUntil  *time.Time         `json:"valid_until,omitempty" doc:"CODE_NOT_YET_VALID and CODE_EXPIRED: until when."`
	RedeemedAt  *time.Time         `json:"redeemed_at,omitempty" doc:"ILLEGAL_STATE of a code: when it was used."`
	RedeemedBy  string             `json:"redeemed_by,omitempty" doc:"ILLEGAL_STATE of a code: who used it, a username or a user's id."`
	Errors      []model.FieldError `json:"errors,omitempty" nullable:"false" doc:"VALIDATION: every field that is wrong."`
	Checks      map[string]string  `json:"checks,omitempty" doc:"Of /readyz: one line per dependency."`
	Build       *version.Build     `json:"build,omitempty" doc:"Of /readyz: what runs there."`

	retryAfter time.Duration
	language   *words.Language // of what people read in it; nil: it is not chosen yet
	challenge  string          // UNAUTHENTICATED: what WWW-Authenticate says; empty: bearerChallenge
}

const bearerChallenge = "Bearer" // the scheme by which callers prove who they are (RFC 6750)

// problemOf translates any error. One that is no *model.Error is a bug, unless a deadline has passed: UNAVAILABLE.
func problemOf(err error) *Problem {
	refusal, ok := errors.AsType[*model.Error](err)
	switch {
	case ok:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		refusal = model.Unavailable("The answer was not known in time.", err)
	default:
		refusal = &model.Error{Code: model.CodeInternal}
	}
	kind := wire.KindOf(refusal.Code)
	p := &Problem{
		Type: problemPath(refusal.Code), Title: kind.Title, Status: kind.Status, Detail: refusal.Detail,
		Code: refusal.Code, OrderID: refusal.OrderID, OrderIDs: refusal.OrderIDs, OrderStatus: refusal.OrderStatus,
		BeginAt: shown(refusal.BeginAt), RetryAt: shown(refusal.RetryAt), Until: shown(refusal.Until),
		RedeemedAt: shown(refusal.RedeemedAt), RedeemedBy: refusal.RedeemedBy, Reference: refusal.Reference,
		ValidFrom: refusal.ValidFrom, ValidUntil: refusal.ValidUntil, Errors: refusal.Fields,
		retryAfter: refusal.RetryAfter,
	}
	if kind.Status == http.StatusInternalServerError {
		// The text of the error was not written for clients.
		p.Code, p.Type = model.CodeInternal, problemPath(model.CodeInternal)
		p.Detail = "Something went wrong on our side. The request id finds it in our log."
	}
	if p.Detail == "" {
		p.Detail = kind.Means
	}
	if p.Code == model.CodeValidation && len(p.Errors) == 0 {
		p.Errors = []model.FieldError{{Location: "request", Message: p.Detail}}
	}
	return p
}

func shown(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return new(at.UTC())
}

func (p *Problem) Error() string { return string(p.Code) + ": " + p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

// GetHeaders implements huma.HeadersError: the headers a code comes with.
func (p *Problem) GetHeaders() http.Header {
	header := http.Header{}
	p.setHeaders(header)
	return header
}

func (p *Problem) setHeaders(header http.Header) {
	if p.language != nil {
		p.language.Label(header)
	}
	switch p.Code {
	case model.CodeUnauthenticated:
		header.Set("WWW-Authenticate", cmp.Or(p.challenge, bearerChallenge))
	case model.CodeForbidden:
		header.Set("WWW-Authenticate", bearerChallenge+` error="insufficient_scope"`)
	case model.CodeNotStarted, model.CodeCoolingDown, model.CodeLockBusy, model.CodeRateLimited:
		header.Set("Retry-After", wire.RetryAfter(p.retryAfter))
	case model.CodeUnavailable: // to everybody at once
		header.Set("Retry-After", wire.RetryAfter(p.retryAfter+rand.N(budget.Work))) //nolint:gosec // spreads the load, guards nothing
	case model.CodeValidation, model.CodeNotFound, model.CodeMethodNotAllowed, model.CodePayloadTooLarge,
		model.CodeUnsupportedMediaType, model.CodeNotEligible, model.CodeEnded, model.CodePaused,
		model.CodeAlreadyOrdered, model.CodeSoldOut, model.CodeConflict, model.CodePreconditionFailed,
		model.CodeIllegalState, model.CodeAlreadyPaid, model.CodeWithdrawalOver, model.CodeNotYetValid, model.CodeExpired,
		model.CodeInternal:
	}
}

// fail translates an error, and logs it with what the client must not see.
func (a *api) fail(ctx context.Context, err error) *Problem {
	p := a.speak(ctx, problemOf(err))
	level := slog.LevelDebug
	switch {
	case p.Status == http.StatusInternalServerError:
		level = slog.LevelError
	case p.Status >= http.StatusInternalServerError && ctx.Err() == nil && a.warnings.Allow():
		level = slog.LevelWarn // a dependency that is down fails every request; some of them are logged
	}
	if !a.options.Log.Enabled(ctx, level) {
		return p // most answers of a flash sale come by here
	}
	a.options.Log.LogAttrs(ctx, level, "request refused",
		slog.String("request_id", callOf(ctx).id), slog.String("code", string(p.Code)), slog.Any("error", err))
	return p
}

func (a *api) abort(c *gin.Context, err error) { a.write(c, a.fail(c.Request.Context(), err)) }

// write sends a problem document, unless an answer has begun already.
func (a *api) write(c *gin.Context, p *Problem) {
	c.Abort()
	if c.Writer.Written() {
		return
	}
	a.speak(c.Request.Context(), p).setHeaders(c.Writer.Header())
	a.send(c, p.Status, problemType, p)
}

func (a *api) send(c *gin.Context, status int, contentType string, document any) {
	c.Writer.Header()["Content-Type"] = []string{contentType}
	c.Status(status)
	if err := writeJSON(c.Writer, document); err != nil {
		panic(err) // nothing is written yet: the client gets a 500
	}
}

const maxFieldErrors = 20 // of one answer, which must not be much larger than its request

// translate makes huma's errors ours, for this API: huma.NewError is the process's, and cannot name a missing field.
func (a *api) translate(ctx huma.Context, _ string, body any) (any, error) {
	theirs, ok := body.(*huma.ErrorModel)
	if !ok {
		return body, nil
	}
	p := a.speak(ctx.Context(), a.refusal(ctx.Context(), theirs))
	ctx.SetHeader("Content-Language", p.language.Tag) // huma has set the headers of a problem already
	ctx.AppendHeader("Vary", "Accept-Language")
	return p, nil
}

func (a *api) refusal(ctx context.Context, theirs *huma.ErrorModel) *Problem {
	if theirs.Status != http.StatusBadRequest && theirs.Status != http.StatusUnprocessableEntity {
		return a.fail(ctx, theirs)
	}
	p := invalid(theirs)
	p.Status = theirs.Status // 400 where JSON does not parse
	return p
}

func invalid(theirs *huma.ErrorModel) *Problem {
	return problemOf(&model.Error{
		Code: model.CodeValidation, Detail: "The request is not valid.", Fields: fieldErrors(theirs),
	})
}

func unreadable(why string) *Problem {
	p := problemOf(model.Invalid("body", "%s", why))
	p.Status = http.StatusBadRequest
	return p
}

// fieldErrors lists the wrong fields, sorted, because huma walks through maps.
func fieldErrors(theirs *huma.ErrorModel) []model.FieldError {
	fields := make([]model.FieldError, 0, len(theirs.Errors))
	for _, detail := range theirs.Errors {
		if detail != nil {
			fields = append(fields, fieldError(detail))
		}
	}
	if len(fields) == 0 {
		fields = append(fields, model.FieldError{Location: "body", Message: theirs.Detail})
	}
	slices.SortFunc(fields, func(a, b model.FieldError) int {
		return cmp.Or(strings.Compare(a.Location, b.Location), strings.Compare(a.Message, b.Message))
	})
	return fields[:min(len(fields), maxFieldErrors)]
}

// fieldError takes over the place and the words, but never the value, which may be a password.
func fieldError(detail *huma.ErrorDetail) model.FieldError {
	field := model.FieldError{Location: detail.Location, Message: detail.Message}
	switch detail.Value.(type) {
	case nullValue:
		field.Message = "must not be null"
		return field
	case repeatedMember:
		field.Message = "is given more than once"
		return field
	}
	// For a missing member huma names the object as the place.
	if rest, ok := strings.CutPrefix(field.Message, "expected required property "); ok {
		if name, ok := strings.CutSuffix(rest, " to be present"); ok {
			field.Location += "." + name
			field.Message = "is required"
		}
	}
	return field
}

const problemsPath = "/problems/" // a page for each code: the type of a problem document (RFC 9457, 3.1.1)

func problemPath(code model.Code) string {
	path := make([]byte, 0, 64) //nolint:mnd // longer than any, so that it stays on the stack
	path = append(path, problemsPath...)
	for i := range len(code) {
		switch c := code[i]; {
		case c == '_':
			path = append(path, '-')
		case 'A' <= c && c <= 'Z':
			path = append(path, c-'A'+'a')
		default:
			path = append(path, c)
		}
	}
	return string(path)
}

// problemPolicy lets the page load nothing, not even a script of its own.
const problemPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (a *api) problemRoutes() error {
	form, err := template.ParseFS(docsPage, "docs/problem.html")
	if err != nil {
		return fmt.Errorf("read the page of problems: %w", err)
	}
	pages := map[string][]byte{}
	for _, code := range model.Codes() {
		kind, page := wire.KindOf(code), bytes.Buffer{}
		err := form.Execute(&page, map[string]any{
			"Code": code, "Status": kind.Status, "Title": kind.Title, "Means": kind.Means, "ToDo": kind.ToDo,
		})
		if err != nil {
			return fmt.Errorf("make the page of %s: %w", code, err)
		}
		pages[problemPath(code)] = page.Bytes()
	}
	a.registerPlain(route{
		id: "problem", call: "GET " + problemsPath + "{code}", beside: true, tag: tagOperations, access: public,
		summary: "What a problem means", description: "The page to which the type of a problem document leads.",
		codes: []model.Code{model.CodeNotFound}, response: map[string]any{"text/html; charset=utf-8": ""},
	}, func(c *gin.Context) {
		page, ok := pages[problemsPath+c.Param("code")]
		if !ok {
			a.noRoute(c)
			return
		}
		a.page(c, problemPolicy, "text/html; charset=utf-8", page)
	})
	return nil
}

// page sends a file of ours, which an upgrade changes within the hour.
func (a *api) page(c *gin.Context, policy, contentType string, data []byte) {
	header := c.Writer.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Cache-Control", "max-age=3600")
	c.Data(http.StatusOK, contentType, data)
}

// speak says a problem's title in a language of Accept-Language. Detail and fields stay English: programmers read them.
func (a *api) speak(ctx context.Context, p *Problem) *Problem {
	if p.language == nil {
		p.language = a.words.Asked(callOf(ctx).accepts)
		p.Title = p.language.Text(p.Title)
	}
	return p
}
