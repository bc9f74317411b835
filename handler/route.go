package handler

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"seckill/model"
)

// basePath is where the API is; the probes are beside it.
const basePath = "/api/v1"

// route says of a route what its documentation and the checks in front of it
// are made from.
type route struct {
	id          string
	method      string
	path        string // with {parameters}
	tag         string
	summary     string
	description string
	access      access
	status      int             // of success
	otherwise   int             // the other status of success, with the same document, where there are two
	headers     []string        // of success, beside X-Request-Id
	codes       []model.Code    // beside those that access and method bring along
	response    map[string]any  // of success, where no typed output tells: media type → example of the Go type
	request     *huma.MediaType // of a plain handler
}

// routeKey finds the route in an operation's metadata.
const routeKey = "route"

// register adds a typed route.
func register[I, O any](a *api, r route, handle func(context.Context, *I) (*O, error)) {
	huma.Register(a.huma, a.operation(r), func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.fail(ctx, err)
		}
		return out, nil
	})
}

// registerPlain adds a route that Gin serves alone and huma only documents.
func (a *api) registerPlain(r route, handle gin.HandlerFunc) {
	op := a.operation(r)
	a.huma.OpenAPI().AddOperation(&op)
	a.mount(r, handle)
}

// registerBare adds a route whose request says everything in its path: a body
// may be missing or an empty object, as for a purchase.
func (a *api) registerBare(r route, handle func(*gin.Context) (document any, err error)) {
	r.request = &huma.MediaType{Schema: a.schema(typeOf[Nothing]())}
	a.registerPlain(r, func(c *gin.Context) {
		if err := possible(r.path, c.Param("id")); err != nil {
			a.abort(c, err)
			return
		}
		if p := emptyBody(c.Request); p != nil {
			a.write(c, p)
			return
		}
		document, err := handle(c)
		if err != nil {
			a.abort(c, err)
			return
		}
		a.send(c, r.status, "application/json", document)
	})
}

// adapter mounts huma's routes behind the same checks as the plain ones.
type adapter struct {
	http.Handler
	api *api
}

// Handle implements huma.Adapter.
func (d *adapter) Handle(op *huma.Operation, handle func(huma.Context)) {
	r, _ := op.Metadata[routeKey].(route)
	d.api.mount(r, func(c *gin.Context) {
		if err := possible(r.path, c.Param("id")); err != nil {
			d.api.abort(c, err)
			return
		}
		// There is one representation of everything. Without this, huma would
		// label it with whatever name of its formats a client asks for.
		c.Request.Header.Del("Accept")
		handle(humagin.NewContext(op, c))
	})
}

// possible refuses the id of a path that cannot exist, before huma looks at
// the request: whatever else is wrong with it, such an id is not found.
// (Seckill is no route of huma's; there the contract has the 422 first.)
func possible(path, id string) error {
	switch {
	case strings.Contains(path, "/vouchers/{id}"):
		if !model.ValidID(id) {
			return model.NotFound("voucher")
		}
	case strings.Contains(path, "/orders/{id}"):
		if _, ok := model.VoucherOf(id); !ok {
			return model.NotFound("order")
		}
	}
	return nil
}

// mount puts a route behind its checks, in the order in which the contract
// lists the refusals. GET brings HEAD along (RFC 9110, 9.1: both must be
// supported); net/http leaves the body out.
func (a *api) mount(r route, handle gin.HandlerFunc) {
	chain := []gin.HandlerFunc{a.wholePath}
	if strings.HasPrefix(r.path, basePath) {
		chain = append(chain, a.drain)
	}
	if r.access != public {
		chain = append(chain, a.authenticate(r.access))
	}
	chain = append(chain, a.readBody, handle)
	path := strings.NewReplacer("{", ":", "}", "").Replace(r.path)
	a.engine.Handle(r.method, path, chain...)
	if r.method == http.MethodGet {
		a.engine.Handle(http.MethodHead, path, chain...)
	}
}

// wholePath refuses paths with an empty segment where an id belongs; Gin takes
// it for an empty id.
func (a *api) wholePath(c *gin.Context) {
	for _, param := range c.Params {
		if param.Value == "" {
			a.noRoute(c)
			return
		}
	}
}

// drain sends clients elsewhere once this instance is about to stop. Reads are
// still served: a buyer wants to see the order that was just made.
func (a *api) drain(c *gin.Context) {
	if !a.options.Health.Draining() {
		return
	}
	connectionClose(c.Writer.Header())
	if c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead {
		return
	}
	a.abort(c, model.Unavailable("This server is about to stop; another one will answer.", nil))
}
