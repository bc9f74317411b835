package handler

import (
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"seckill/internal/version"
	"seckill/model"
)

const tagOperations = "Operations"

// Liveness is the answer of /livez.
type Liveness struct {
	Status string `json:"status" example:"ok"`
}

// Readiness is the answer of /readyz when all is well.
type Readiness struct {
	Status string            `json:"status" example:"ready"`
	Checks map[string]string `json:"checks" doc:"One line per dependency."`
	Build  version.Build     `json:"build"`
}

func (a *api) healthRoutes() {
	a.registerPlain(route{
		id: "livez", access: public, method: http.MethodGet, path: "/livez", tag: tagOperations,
		summary: "Is the process alive", description: "Asks no dependency.", status: http.StatusOK,
		response: map[string]any{"application/json": Liveness{}},
	}, func(c *gin.Context) {
		a.send(c, http.StatusOK, "application/json", Liveness{Status: "ok"})
	})
	a.registerPlain(route{
		id: "readyz", access: public, method: http.MethodGet, path: "/readyz", tag: tagOperations,
		summary: "Can this instance serve",
		description: "503 while nothing can be sold or the server is about to stop, with a line per check: what a sale reads can be read, " +
			"the database takes writes, and the queue has its leader. Order mode async sells on for a while without the database.",
		status: http.StatusOK, codes: []model.Code{model.CodeUnavailable},
		response: map[string]any{"application/json": Readiness{}},
	}, a.ready)
}

// ready answers with one line per check, so that it can be read with curl.
func (a *api) ready(c *gin.Context) {
	checks := map[string]string{}
	ready := true
	for _, check := range a.options.Health.Check(c.Request.Context()) {
		checks[check.Name] = cmp.Or(check.Note, "ok")
		if check.Err != nil {
			ready = false
			checks[check.Name] = a.complaint(c, check.Name, check.Err)
		}
	}
	status, contentType := http.StatusOK, "application/json"
	var document any = Readiness{Status: "ready", Checks: checks, Build: a.options.Build}
	if !ready {
		p := problemOf(model.Unavailable("This instance is not ready.", nil))
		p.Checks, p.Build = checks, &a.options.Build
		maps.Copy(c.Writer.Header(), p.GetHeaders())
		status, contentType, document = p.Status, problemType, p
	}
	lines, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		a.abort(c, err)
		return
	}
	c.Data(status, contentType, append(lines, '\n'))
}

// complaint is what a client may hear of a failed check: the detail of a domain error.
// The error itself, with its addresses, goes to the log.
func (a *api) complaint(c *gin.Context, name string, err error) string {
	ctx := c.Request.Context()
	if a.warnings.Allow() {
		a.options.Log.LogAttrs(ctx, slog.LevelWarn, "not ready",
			slog.String("request_id", callOf(ctx).id), slog.String("check", name), slog.Any("error", err))
	}
	if refusal, ok := errors.AsType[*model.Error](err); ok && refusal.Detail != "" {
		return refusal.Detail
	}
	return "cannot be reached"
}

// NewOperations makes the operations listener's handler: metrics and profiles.
// It has no authentication, which is why it has a listener of its own.
func NewOperations(gatherer prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
