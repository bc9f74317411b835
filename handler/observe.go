package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
)

// Labels of requests without a route or status. Paths and methods are no labels: clients could make up any number.
const (
	unmatchedRoute = "unmatched"
	otherMethod    = "other"
	clientGone     = "499" // as nginx has it: the client was gone
	cutShort       = "aborted"
)

// requestDurations is the histogram of durations, in seconds: from an answer out of memory to the longest wait.
func requestDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "seckill_http_request_duration_seconds",
		Help:    "How long requests took, by method, route and status; streams of events are left out.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 6, 31},
	}, []string{"method", "route", "code"})
}

func (a *api) observe(c *gin.Context) {
	start := time.Now()
	finished := false
	defer func() {
		aborted := false
		if !finished {
			aborted = a.recovered(c, recover())
		}
		a.record(c, time.Since(start), aborted)
		if aborted {
			panic(http.ErrAbortHandler)
		}
	}()
	c.Next()
	finished = true
}

// recovered answers for a panic. It reports whether an answer had begun: the connection is then cut.
func (a *api) recovered(c *gin.Context, cause any) bool {
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return true
	}
	ctx := c.Request.Context()
	a.options.Log.LogAttrs(ctx, slog.LevelError, "panic",
		slog.String("request_id", callOf(ctx).id),
		slog.String("route", c.FullPath()),
		slog.Any("cause", cause),
		slog.String("stack", string(debug.Stack())))
	if c.Writer.Written() {
		return true
	}
	for _, name := range []string{"Location", "Content-Disposition", "Content-Length"} {
		c.Writer.Header().Del(name)
	}
	a.write(c, problemOf(fmt.Errorf("panic: %v", cause)))
	return false
}

func (a *api) record(c *gin.Context, took time.Duration, aborted bool) {
	ctx := c.Request.Context()
	status := c.Writer.Status()
	code := strconv.Itoa(status)
	switch {
	case errors.Is(ctx.Err(), context.Canceled) && (aborted || status >= http.StatusInternalServerError):
		code = clientGone // not our failure
	case aborted:
		code = cutShort
	}
	route := c.FullPath()
	if route == "" {
		route = unmatchedRoute
	}
	// How long server-sent events (HTML, 9.2) last says nothing.
	if !strings.HasPrefix(c.Writer.Header().Get("Content-Type"), "text/event-stream") {
		a.durations.WithLabelValues(methodLabel(c.Request.Method), route, code).Observe(took.Seconds())
	}
	if !a.options.Log.Enabled(ctx, slog.LevelDebug) {
		return // a flash sale has no time for a line per request
	}
	a.options.Log.LogAttrs(ctx, slog.LevelDebug, "request",
		slog.String("request_id", callOf(ctx).id),
		slog.String("method", c.Request.Method),
		slog.String("path", c.Request.URL.Path),
		slog.String("code", code),
		slog.Int("bytes", max(c.Writer.Size(), 0)),
		slog.Duration("took", took),
		slog.String("user_id", subject(ctx)),
		slog.String("address", callOf(ctx).address.String()))
}

func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch,
		http.MethodPut, http.MethodDelete, http.MethodOptions:
		return method
	default:
		return otherMethod
	}
}
