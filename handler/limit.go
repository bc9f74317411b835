package handler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"seckill/handler/wire"
	"seckill/internal/conns"
	"seckill/internal/ratelimit"
	"seckill/model"
)

// spread is how long the return of a crowd that is refused for one reason is drawn
// out, at random: some thousand clients that came back in the same second would be
// refused again.
const spread = 4 * time.Second

// probeRate bounds the health checks of one address, separately from its other requests: a
// proxy that floods must not make this instance look dead, nor a flood of checks ask
// the dependencies thousands of times a second. Every orchestrator needs fewer.
const (
	probeRate = 100
	probePer  = time.Second
)

// limits is what the routes of limits need of service.Limits.
type limits interface {
	InForce() model.Limits
	Change(ctx context.Context, patch model.LimitsPatch) (model.Limits, error)
}

// probePath tells the health checks from everything else on the main listener.
func probePath(path string) bool { return path == "/livez" || path == "/readyz" }

// newProbeLimits limits health checks on this instance alone.
func newProbeLimits() (*ratelimit.Addresses, error) {
	probes := ratelimit.NewAddresses(nil)
	return probes, probes.Set(model.Rate{Events: probeRate, Per: probePer}, "")
}

// limitAddress counts every request of a client address, found or not, and refuses
// those over the limit before anything is looked at. A purchase goes on to be refused
// in the contract's order: see place. An administrator can always mend a limit that was
// set too low.
func (a *api) limitAddress(c *gin.Context) {
	limit := a.options.ByAddress
	rate := limit.Rate()
	if rate.Off() {
		return
	}
	probe := probePath(c.Request.URL.Path)
	if probe {
		limit, rate = a.probes, a.probes.Rate()
	}
	call := callOf(c.Request.Context())
	wait := limit.Take(c.Request.Context(), call.address)
	switch {
	case wait == 0:
	case c.FullPath() == placePath && c.Request.Method == http.MethodPost:
		call.overLimit = wait
	case c.FullPath() == limitsPath && a.fromAdministrator(c):
	default:
		a.refuseAddress(c, rate, wait)
	}
}

func (a *api) fromAdministrator(c *gin.Context) bool {
	claims, err := a.claims(c.Request.Context(), c.Request.Header)
	return err == nil && claims.Role == model.RoleAdmin
}

// refuseAddress spreads the return: there may be a crowd behind one address.
func (a *api) refuseAddress(c *gin.Context, rate model.Rate, wait time.Duration) {
	a.refuseRate(c, "addr", rate, wait+rand.N(spread), "Too many requests from this address.") //nolint:gosec // spreads the load, guards nothing
}

// refuseRate answers RATE_LIMITED with the fields of draft-ietf-httpapi-ratelimit-headers-10:
// which policy it was, that nothing of it remains, and for how many seconds.
// Other answers go without, because they would cost the many who are within their limits.
// An address that goes on all the same is answered a second later.
func (a *api) refuseRate(c *gin.Context, policy string, rate model.Rate, wait time.Duration, detail string) {
	ctx := c.Request.Context()
	wait = max(wait-a.brake.Hold(ctx, callOf(ctx).address), time.Millisecond)
	header := c.Writer.Header()
	header["Ratelimit-Policy"] = []string{fmt.Sprintf(`"%s";q=%d;w=%d`, policy, rate.Events, int64(rate.Per.Seconds()))}
	header["Ratelimit"] = []string{`"` + policy + `";r=0;t=` + wire.RetryAfter(wait)}
	a.abort(c, &model.Error{Code: model.CodeRateLimited, Detail: detail, RetryAfter: wait})
}

// turnAway answers one request on each connection beyond the bound. A health check gets
// its true answer, so that a load balancer learns of the crowd; everything else gets 503.
func (a *api) turnAway(c *gin.Context) {
	ctx := c.Request.Context()
	if conns.Crowded(ctx) {
		connectionClose(c.Writer.Header()) // others wait for its place
	}
	if !conns.Beyond(ctx) {
		return
	}
	connectionClose(c.Writer.Header())
	if !probePath(c.Request.URL.Path) {
		a.abort(c, model.Unavailable("Too many connections are open here.", nil))
	}
}

// handOver leaves a request to another instance while this one is not ready, where a proxy can do that: it has no health checks of
// its own. Nothing was done for the request yet.
func (a *api) handOver(c *gin.Context) {
	call := callOf(c.Request.Context())
	if call.elsewhere == "" || probePath(c.Request.URL.Path) || a.options.Health.Ready() {
		return
	}
	c.Writer.Header().Set(xAccelRedirect, call.elsewhere)
	a.abort(c, model.Unavailable("This instance is not ready.", nil))
}

// LimitsChange sets the limits that it has.
type LimitsChange struct {
	User *string `json:"user,omitempty" pattern:"^(0|[0-9]{1,9}/[smh])$" example:"20/s" doc:"What one user writes (purchases, cancellations, places, payments): a number per s, m or h, or 0 for no limit."`
	Addr *string `json:"addr,omitempty" pattern:"^(0|[0-9]{1,9}/[smh])$" example:"1000/s" doc:"All requests of one client address (of IPv6: a /64), likewise."`
}

// RateLimits are the limits in force.
type RateLimits struct {
	User string `json:"user" example:"20/s" doc:"What one user writes; 0 is no limit."`
	Addr string `json:"addr" example:"1000/s" doc:"All requests of one client address (of IPv6: a /64); 0 is no limit."`
}

func rateLimits(l model.Limits) *output[RateLimits] {
	return &output[RateLimits]{Body: RateLimits{User: l.User.String(), Addr: l.Addr.String()}}
}

type patchLimitsInput struct{ Body LimitsChange }

// limitsPath is where administrators set the limits.
const limitsPath = basePath + "/admin/settings/limits"

func (a *api) limitRoutes() {
	register(a, route{
		id: "get-limits", method: http.MethodGet, path: limitsPath, tag: tagAdmin,
		summary:     "Get the rate limits in force",
		description: "Those of this instance, which are the same on all of them within a second of a change.", access: administrators, status: http.StatusOK,
	}, func(context.Context, *struct{}) (*output[RateLimits], error) {
		return rateLimits(a.options.Limits.InForce()), nil
	})
	register(a, route{
		id: "patch-limits", method: http.MethodPatch, path: limitsPath, tag: tagAdmin,
		summary: "Change the rate limits of all instances",
		description: "Every instance obeys within a second. What is set here wins over the settings of the instances, " +
			"also after a restart.",
		access: administrators, status: http.StatusOK,
		codes: []model.Code{model.CodeUnavailable},
	}, func(ctx context.Context, in *patchLimitsInput) (*output[RateLimits], error) {
		user, userErr := changedRate("body.user", in.Body.User)
		addr, addrErr := changedRate("body.addr", in.Body.Addr)
		if err := model.JoinInvalid(userErr, addrErr); err != nil {
			return nil, err
		}
		changed, err := a.options.Limits.Change(ctx, model.LimitsPatch{User: user, Addr: addr, By: subject(ctx)})
		return rateLimits(changed), err
	})
}

func changedRate(location string, text *string) (*model.Rate, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // it stays as it is
	}
	rate, err := model.ParseRate(*text)
	if err != nil {
		return nil, model.Invalid(location, "%s", err.Error())
	}
	return &rate, nil
}
