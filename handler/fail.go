package handler

import (
	"context"
	"log/slog"
	"maps"
	"net/http"

	"github.com/gin-gonic/gin"
)

// fail translates an error and logs what the client must not see of it.
func (a *api) fail(ctx context.Context, err error) *Problem {
	p := problemOf(err)
	level := slog.LevelDebug
	switch {
	case p.Status == http.StatusInternalServerError:
		level = slog.LevelError
	case p.Status >= http.StatusInternalServerError && ctx.Err() == nil && a.warnings.Allow():
		// A dependency that is down fails every request: some are enough.
		level = slog.LevelWarn
	}
	if !a.options.Log.Enabled(ctx, level) {
		return p // most answers of a flash sale come by here
	}
	a.options.Log.LogAttrs(ctx, level, "request refused",
		slog.String("request_id", callOf(ctx).id), slog.String("code", string(p.Code)), slog.Any("error", err))
	return p
}

// abort answers with an error and ends the chain of a route.
func (a *api) abort(c *gin.Context, err error) {
	a.write(c, a.fail(c.Request.Context(), err))
}

// write sends a problem document, unless an answer has begun already.
func (a *api) write(c *gin.Context, p *Problem) {
	c.Abort()
	if c.Writer.Written() {
		return
	}
	maps.Copy(c.Writer.Header(), p.GetHeaders())
	a.send(c, p.Status, problemType, p)
}

// send writes one document.
func (a *api) send(c *gin.Context, status int, contentType string, document any) {
	c.Writer.Header()["Content-Type"] = []string{contentType}
	c.Status(status)
	if err := writeJSON(c.Writer, document); err != nil {
		panic(err) // nothing is written yet: the client gets a 500
	}
}
