package handler

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"

	"github.com/gin-gonic/gin"

	"seckill/model"
)

// problemsPath is where the page of each code is; the type of a problem document is a
// reference to it (RFC 9457, 3.1.1).
const problemsPath = "/problems/"

// problemPath is the page of a code.
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

// kind is what a code always means on HTTP.
type kind struct {
	status int
	title  string
	means  string // in a sentence or two, for the people who write clients
	todo   string // what the client should do
}

// kindOf is the one place where a code of the domain becomes HTTP.
func kindOf(code model.Code) kind {
	switch code {
	case model.CodeValidation:
		return kind{
			http.StatusUnprocessableEntity, "Not valid",
			"Something in the request has a wrong form or value; errors names each place. The status is 400 when the body is not JSON.",
			"Correct what errors names. The same request will be refused again.",
		}
	case model.CodeUnauthenticated:
		return kind{
			http.StatusUnauthorized, "Not authenticated",
			"The request has no token, or one that is malformed, expired, revoked or not of this service; at a login, the username or the password is wrong.",
			"Get a new token and repeat the request with it.",
		}
	case model.CodeForbidden:
		return kind{
			http.StatusForbidden, "Forbidden",
			"The token is good, but its role may not do this.",
			"Use the token of an administrator.",
		}
	case model.CodeNotFound:
		return kind{
			http.StatusNotFound, "Not found",
			"There is nothing here, or it is not yours: the orders of others look as if they were not there.",
			"Check the path and the id.",
		}
	case model.CodeMethodNotAllowed:
		return kind{
			http.StatusMethodNotAllowed, "Method not allowed",
			"The path exists, but does not know this method.",
			"Use one of the methods in the header Allow.",
		}
	case model.CodePayloadTooLarge:
		return kind{
			http.StatusRequestEntityTooLarge, "Payload too large",
			"The body of the request is larger than 16 KiB.",
			"Send a smaller one. The connection is closed.",
		}
	case model.CodeUnsupportedMediaType:
		return kind{
			http.StatusUnsupportedMediaType, "Unsupported media type",
			"The body of the request is not application/json in UTF-8, or is compressed.",
			"Send plain JSON.",
		}
	case model.CodeEnded:
		return kind{
			http.StatusConflict, "Ended",
			"The sale is over.",
			"Do not repeat the request. An order that was made before the end is in GET /api/v1/orders.",
		}
	case model.CodePaused:
		return kind{
			http.StatusConflict, "Paused",
			"An administrator has paused the sale.",
			"Look at the voucher now and then; its phase tells when the sale goes on.",
		}
	case model.CodeNotStarted:
		return kind{
			http.StatusConflict, "Not started",
			"The sale begins at begin_at.",
			"Come back after the seconds in Retry-After. The server's clock decides, not yours.",
		}
	case model.CodeAlreadyOrdered:
		return kind{
			http.StatusConflict, "Already ordered",
			"You have an order for this voucher, which order_id names. Each user may get one.",
			"After a lost answer this is the good news: go on with that order.",
		}
	case model.CodeSoldOut:
		return kind{
			http.StatusConflict, "Sold out",
			"Nothing is left, and you have no order.",
			"Stop asking. Units come back when orders are canceled or expire; the voucher's phase is live again then.",
		}
	case model.CodeConflict:
		return kind{
			http.StatusConflict, "Conflict",
			"The change is impossible as things are: the stock would be below what is sold, the username is taken, the Idempotency-Key was used for something else.",
			"Read the detail, and ask for something that is possible.",
		}
	case model.CodePreconditionFailed:
		return kind{
			http.StatusPreconditionFailed, "Precondition failed",
			"The voucher is not what the tag in If-Match stands for: an administrator has changed it since you read it. Nothing was changed by this request.",
			"Read the voucher again, decide again, and send the change with its new ETag.",
		}
	case model.CodeIllegalState:
		return kind{
			http.StatusConflict, "Illegal state",
			"The order cannot make this move from where it stands, which order_status tells.",
			"Read the order, and offer only what its status allows.",
		}
	case model.CodeLockBusy:
		return kind{
			http.StatusTooManyRequests, "Lock busy",
			"Another request of yours is being worked on. This one has changed nothing.",
			"Repeat it after the seconds in Retry-After.",
		}
	case model.CodeRateLimited:
		return kind{
			http.StatusTooManyRequests, "Rate limited",
			"Too many requests of this user or from this address; RateLimit-Policy tells the limit.",
			"Repeat the request after the seconds in Retry-After, and ask less often.",
		}
	case model.CodeUnavailable:
		return kind{
			http.StatusServiceUnavailable, "Unavailable",
			"The answer could not be learnt in time: something that the service depends on is away, or this server is about to stop. " +
				"A purchase may have happened all the same.",
			"Repeat the same request after the seconds in Retry-After. It is answered with the order, or with ALREADY_ORDERED and its order_id.",
		}
	case model.CodeInternal:
	}
	return kind{
		http.StatusInternalServerError, "Internal error",
		"Something went wrong on our side.",
		"Repeat the request once. If it fails again, tell us the X-Request-Id of the answer: it finds the cause in our log.",
	}
}

// problemPolicy lets the page load nothing, not even a script of its own.
const problemPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// problemRoutes serves one page for each code.
func (a *api) problemRoutes() error {
	pages, err := problemPages()
	if err != nil {
		return err
	}
	a.registerPlain(route{
		id: "problem", access: public, method: http.MethodGet, path: problemsPath + "{code}", tag: tagOperations,
		summary: "What a problem means", description: "The page to which the type of a problem document leads.",
		status: http.StatusOK, codes: []model.Code{model.CodeNotFound},
		response: map[string]any{"text/html; charset=utf-8": ""},
	}, func(c *gin.Context) {
		page, ok := pages[problemsPath+c.Param("code")]
		if !ok {
			a.noRoute(c)
			return
		}
		header := c.Writer.Header()
		header.Set("Content-Security-Policy", problemPolicy)
		header.Set("Cache-Control", "max-age=3600") // an upgrade shows within the hour
		c.Data(http.StatusOK, "text/html; charset=utf-8", page)
	})
	return nil
}

// problemPages makes the pages, by path.
func problemPages() (map[string][]byte, error) {
	form, err := template.ParseFS(docsPage, "docs/problem.html")
	if err != nil {
		return nil, fmt.Errorf("read the page of problems: %w", err)
	}
	pages := map[string][]byte{}
	for _, code := range model.Codes() {
		kind := kindOf(code)
		var page bytes.Buffer
		err := form.Execute(&page, map[string]any{
			"Code": code, "Status": kind.status, "Title": kind.title, "Means": kind.means, "ToDo": kind.todo,
		})
		if err != nil {
			return nil, fmt.Errorf("make the page of %s: %w", code, err)
		}
		pages[problemPath(code)] = page.Bytes()
	}
	return pages, nil
}
