package handler

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/rs/cors"
)

// preflightAge is how long a browser may remember what is allowed. Each preflight is a
// round trip in front of a purchase, and Chrome remembers none longer. An origin that is
// no longer allowed loses the answers at once.
const preflightAge = 2 * time.Hour

// crossOrigin tells browsers which origins may call the API and read its answers (the
// Fetch Standard, https://fetch.spec.whatwg.org/#http-cors-protocol). It stands in front
// of the limits, so that a page can read a 429, too. It ends no request: a preflight
// goes on to noMethod, which answers it, and counts like any other request.
//
// Credentials in the sense of the standard are cookies, of which the API has none. A page
// has to hold the token itself, and no other page has it: so there is nothing that a
// foreign page could do in a user's name, and no reason to refuse a header. Tracing in
// browsers adds some of its own (traceparent, baggage, sentry-trace) to every request.
func crossOrigin(origins []string) gin.HandlerFunc {
	allowed := cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		},
		AllowedHeaders: []string{"*"}, // whatever is asked for; it is named in the answer, Authorization included
		ExposedHeaders: []string{
			"Location", "Retry-After", "ETag", requestIDHeader, "RateLimit", "RateLimit-Policy", "WWW-Authenticate",
			"Content-Disposition", "Allow",
		},
		MaxAge: int(preflightAge.Seconds()),
	})
	return func(c *gin.Context) { allowed.HandlerFunc(c.Writer, c.Request) }
}
