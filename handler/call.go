package handler

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"

	"github.com/gin-gonic/gin"

	"seckill/internal/token"
)

// requestIDHeader names a request in answers, in our log, and in the logs of
// the proxies in front of us.
const requestIDHeader = "X-Request-Id"

// call is what is known of a request beside the request. One value in the
// context for all of it: each costs a look-up and an allocation.
type call struct {
	id     string
	claims *token.Claims // nil: anonymous
}

type callKey struct{}

// callOf finds the call of a request; outside of one it is an empty call.
func callOf(ctx context.Context) *call {
	if call, ok := ctx.Value(callKey{}).(*call); ok {
		return call
	}
	return &call{}
}

// identify gives every request its id, its sender's when that is well-formed:
// it goes into logs and headers, so nothing else may.
func (a *api) identify(c *gin.Context) {
	id := c.GetHeader(requestIDHeader)
	if !a.requestID.MatchString(id) {
		id = rand.Text()
	}
	header := c.Writer.Header()
	header[requestIDHeader] = []string{id}
	// Answers depend on the clock and on who asks; no cache may repeat one.
	header["Cache-Control"] = []string{"no-store"}
	header["X-Content-Type-Options"] = []string{"nosniff"}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), callKey{}, &call{id: id}))
}

// requestIDs is what a well-formed request id looks like.
func requestIDs() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
}

// connectionClose asks the client to come back on another connection.
func connectionClose(header http.Header) { header.Set("Connection", "close") }
