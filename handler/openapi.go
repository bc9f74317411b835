package handler

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
	"github.com/swaggest/swgui/v5/static"

	"seckill/handler/wire"
	"seckill/model"
)

const apiVersion = "1.0.0" // of the contract, not of the program

const apiDescription = `Flash sales of vouchers. Errors are problem documents (RFC 9457,
` + "`application/problem+json`" + `); programs switch on ` + "`code`" + `. Tolerate new members and new enum values. Unknown
paths answer ` + "`NOT_FOUND`" + `, methods that a path does not know ` + "`METHOD_NOT_ALLOWED`" + ` with the header ` + "`Allow`" + `.
Every GET route also knows HEAD. Too many requests of one address get ` + "`RATE_LIMITED`" + ` anywhere; such answers carry
` + "`RateLimit-Policy`" + ` and ` + "`RateLimit`" + ` (draft-ietf-httpapi-ratelimit-headers). Times are RFC 3339 in UTC, amounts of money integers in minor units of ` + "`%s`" + `.`

// humaConfig is huma without its own pages, links and $schema members.
func (a *api) humaConfig() huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       "Seckill API",
				Version:     apiVersion,
				Description: fmt.Sprintf(apiDescription, a.options.Currency),
				Contact:     &huma.Contact{Name: "The seckill authors"},
				License:     &huma.License{Name: "MIT", Identifier: "MIT"},
			},
			Servers: []*huma.Server{{URL: "/"}},
			Tags: []*huma.Tag{
				{Name: tagAccounts, Description: "Registering, logging in, and who the token is."},
				{Name: tagVouchers, Description: "What is on sale, for everybody."},
				{Name: tagOrders, Description: "Buying, and what becomes of an order, for its buyer."},
				{Name: tagPayments, Description: "Paying an order, and hearing from the payment provider."},
				{Name: tagAdmin, Description: "For tokens with the role admin."},
				{Name: tagOperations, Description: "The health of an instance, and this document."},
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					bearer: {Type: "http", Scheme: "bearer", BearerFormat: "JWT"},
				},
			},
		},
		// "json" is how huma looks up application/problem+json.
		Formats:       map[string]huma.Format{"application/json": jsonFormat(), "json": jsonFormat()},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{a.translate},
	}
}

// documentRoutes serves the document and its page. It runs last, because the document lists all routes.
func (a *api) documentRoutes() error {
	assets, err := docsAssets()
	if err != nil {
		return err
	}
	docs := route{
		id: "docs", call: "GET /docs", tag: tagOperations, access: public,
		summary: "A page that shows this document", description: "It loads nothing from elsewhere.",
		response: map[string]any{"text/html; charset=utf-8": ""},
	}
	a.registerPlain(docs, a.serveDocs(assets))
	files := docs
	files.call = "GET /docs/*file"
	a.mount(files, a.serveDocs(assets))

	// Only who asks for it needs it: to write it takes longer than all else of a start.
	document := sync.OnceValues(func() ([]byte, error) { return json.Marshal(a.huma.OpenAPI()) })
	a.registerPlain(route{
		id: "openapi", call: "GET /openapi.json", tag: tagOperations, access: public, large: true,
		summary: "This document", description: "OpenAPI 3.1, made of the routes themselves.",
		response: map[string]any{"application/json": map[string]any{}},
	}, func(c *gin.Context) {
		text, err := document()
		if err != nil {
			panic(fmt.Errorf("write the OpenAPI document: %w", err))
		}
		c.Writer.Header().Set("Cache-Control", "no-cache")
		c.Writer.Header().Set("Content-Length", strconv.Itoa(len(text)))
		c.Data(http.StatusOK, "application/json", text)
	})
	a.polish()
	return nil
}

func (a *api) polish() {
	schemas := a.huma.OpenAPI().Components.Schemas.Map()
	a.standardWords()
	strict := a.strictBodies()
	for _, schema := range schemas {
		if strict[schema] {
			continue
		}
		schema.AdditionalProperties = nil // answers may grow
		for _, property := range schema.Properties {
			if property.Type == huma.TypeArray {
				property.Nullable = false
			}
		}
	}
	change := schemas["StockChange"]
	change.MinProperties, change.MaxProperties = new(1), new(1)
	change.PrecomputeMessages()

	describe(schemas["Voucher"], "state", model.VoucherStates())
	describe(schemas["Voucher"], "phase", model.Phases())
	describe(schemas["Order"], "status", model.OrderStatuses())
	describe(schemas["OrderDetail"], "status", model.OrderStatuses())
	describe(schemas["Entry"], "status", model.EntryStatuses())
	placed := model.OrderStatuses()
	for _, status := range model.EntryStatuses() {
		placed = append(placed, model.OrderStatus(status))
	}
	describe(schemas["Placed"], "status", placed)
	describe(schemas["Refund"], "status", model.RefundStatuses())
	describe(schemas["Audit"], "mode", []model.OrderMode{model.ModeSync, model.ModeAsync})
	describe(schemas["AuditHotCopy"], "state",
		[]model.CopyState{model.CopyOpen, model.CopyClosed, model.CopyRebuilding})
	for _, name := range []string{"redis", "queue"} {
		property := schemas["Audit"].Properties[name]
		schemas["Audit"].Properties[name] = &huma.Schema{
			AnyOf:       []*huma.Schema{property, {Type: "null"}},
			Description: "null in sync mode, and of a draw: there is none.",
		}
	}
}

func (a *api) operations(yield func(*huma.Operation) bool) {
	for _, item := range a.huma.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil && !yield(op) {
				return
			}
		}
	}
}

// standardWords removes what only huma understands, and says that an empty query parameter is an absent one.
func (a *api) standardWords() {
	for _, schema := range a.huma.OpenAPI().Components.Schemas.Map() {
		for _, property := range schema.Properties {
			property.PatternDescription = ""
		}
	}
	for op := range a.operations {
		for _, parameter := range op.Parameters {
			parameter.Schema.PatternDescription = ""
			parameter.AllowEmptyValue = parameter.In == "query"
		}
	}
}

// strictBodies finds what bodies are made of. Unknown members are refused: a misspelt one must not pass.
func (a *api) strictBodies() map[*huma.Schema]bool {
	strict := map[*huma.Schema]bool{}
	var walk func(*huma.Schema)
	walk = func(schema *huma.Schema) {
		if schema != nil && schema.Ref != "" {
			schema = a.huma.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
		}
		if schema == nil || strict[schema] {
			return
		}
		strict[schema] = true
		walk(schema.Items)
		for _, part := range slices.Concat(schema.AnyOf, schema.OneOf, schema.AllOf, slices.Collect(maps.Values(schema.Properties))) {
			walk(part)
		}
	}
	for op := range a.operations {
		if r, _ := op.Metadata[routeKey].(route); op.RequestBody != nil && !r.tolerant {
			for _, body := range op.RequestBody.Content {
				walk(body.Schema)
			}
		}
	}
	return strict
}

// describe lists the values of a member today. It makes no enum, because clients must tolerate new ones.
func describe[T ~string](schema *huma.Schema, member string, values []T) {
	words := make([]string, 0, len(values))
	for _, value := range values {
		words = append(words, "`"+string(value)+"`")
	}
	schema.Properties[member].Description = "Today one of " + strings.Join(words, ", ") + "."
}

const bearer = "bearer" // the security scheme

func (a *api) operation(r route) huma.Operation {
	op := huma.Operation{
		OperationID:   r.id,
		Method:        r.method(),
		Path:          r.path(),
		Tags:          []string{r.tag},
		Summary:       r.summary,
		Description:   r.description,
		DefaultStatus: cmp.Or(r.status, http.StatusOK),
		MaxBodyBytes:  maxBody + 1, // readBody has refused larger ones; huma's limit excludes itself
		Metadata:      map[string]any{routeKey: r},
		Responses:     map[string]*huma.Response{},
	}
	for _, status := range []int{op.DefaultStatus, cmp.Or(r.otherwise, op.DefaultStatus)} {
		op.Responses[strconv.Itoa(status)] = a.success(r, status)
	}
	switch r.access {
	case undecided:
		panic("route " + r.id + " does not say who may call it")
	case public:
		op.Security = []map[string][]string{{}} // none, said aloud
	case recognised:
		op.Security = []map[string][]string{{}, {bearer: {}}}
	case users:
		op.Security = []map[string][]string{{bearer: {}}}
	case administrators:
		op.Security = []map[string][]string{{bearer: {}}}
		least, decided := wire.LeastLevel(r.id)
		if !decided {
			panic("route " + r.id + " does not say which administrators may call it")
		}
		op.Description = strings.TrimSpace(op.Description + " For administrators from the level " + string(least) +
			" on.")
		op.Extensions = map[string]any{"x-least-level": least}
	}
	if r.request != nil {
		op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": r.request}}
	}
	for status, codes := range r.problems() {
		op.Responses[strconv.Itoa(status)] = a.refusals(status, codes)
	}
	if r.response != nil { // no typed function describes the route
		for _, name := range pathParams(r.path()) {
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString},
			})
		}
	}
	return op
}

func (r route) problems() map[int][]model.Code {
	codes := slices.Clone(r.codes)
	if possible(r.path(), "") != nil {
		codes = append(codes, model.CodeNotFound)
	}
	if r.access == users || r.access == administrators {
		codes = append(codes, model.CodeUnauthenticated, model.CodeUnavailable) // 503: the keys of its issuer are away
	}
	if r.access == administrators {
		codes = append(codes, model.CodeForbidden)
	}
	if takesBody(r.method()) {
		codes = append(codes, model.CodeUnsupportedMediaType, model.CodeValidation)
	}
	codes = append(codes, model.CodePayloadTooLarge, model.CodeRateLimited, model.CodeInternal)
	byStatus := map[int][]model.Code{}
	for _, code := range codes {
		status := wire.KindOf(code).Status
		if !slices.Contains(byStatus[status], code) {
			byStatus[status] = append(byStatus[status], code)
		}
	}
	if takesBody(r.method()) {
		byStatus[http.StatusBadRequest] = []model.Code{model.CodeValidation}
	}
	return byStatus
}

func (a *api) success(r route, status int) *huma.Response {
	response := &huma.Response{Description: http.StatusText(status), Headers: a.headers(r.headers...)}
	for mediaType, example := range r.response {
		if response.Content == nil {
			response.Content = map[string]*huma.MediaType{}
		}
		response.Content[mediaType] = &huma.MediaType{}
		if example != nil { // else it is binary
			response.Content[mediaType].Schema = a.schema(reflect.TypeOf(example))
		}
	}
	return response
}

// schema is the schema of a type: a reference for structs.
func (a *api) schema(t reflect.Type) *huma.Schema {
	return a.huma.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

func (a *api) refusals(status int, codes []model.Code) *huma.Response {
	var headers []string
	words := make([]string, 0, len(codes))
	examples := map[string]*huma.Example{}
	for _, code := range codes {
		example := exampleOf(code)
		example.Status = status
		for name := range example.GetHeaders() {
			if name == "Www-Authenticate" {
				name = "WWW-Authenticate" // Go spells it otherwise
			}
			headers = append(headers, name)
		}
		words = append(words, "`"+string(code)+"`")
		examples[string(code)] = &huma.Example{Value: example}
	}
	return &huma.Response{
		Description: http.StatusText(status) + ": " + strings.Join(words, ", "),
		Headers:     a.headers(headers...),
		Content: map[string]*huma.MediaType{
			problemType: {Schema: a.schema(reflect.TypeFor[Problem]()), Examples: examples},
		},
	}
}

func exampleOf(code model.Code) *Problem {
	example := map[model.Code]model.Error{ //nolint:exhaustive // the others come with none
		model.CodeValidation:     {Fields: []model.FieldError{{Location: "body.title", Message: "is required"}}},
		model.CodeNotStarted:     {BeginAt: time.Date(2030, time.November, 11, 0, 0, 0, 0, time.UTC)},
		model.CodeCoolingDown:    {RetryAt: time.Date(2030, time.November, 11, 0, 10, 0, 0, time.UTC)},
		model.CodeAlreadyPaid:    {Reference: "till 7, receipt 42"},
		model.CodeWithdrawalOver: {Until: time.Date(2030, time.November, 25, 0, 0, 0, 0, time.UTC)},
		model.CodeNotYetValid:    {Validity: model.Validity{ValidFrom: new(time.Date(2030, time.December, 1, 0, 0, 0, 0, time.UTC))}},
		model.CodeExpired:        {Validity: model.Validity{ValidUntil: new(time.Date(2030, time.December, 31, 0, 0, 0, 0, time.UTC))}},
		model.CodeAlreadyOrdered: {OrderID: "01jcexample.01jcvoucher", OrderStatus: model.OrderUnpaid},
		model.CodeIllegalState:   {OrderStatus: model.OrderCanceled},
	}[code]
	example.Code = code
	return problemOf(&example)
}

// headers documents headers by name; every answer has its request id.
func (a *api) headers(names ...string) map[string]*huma.Param {
	described := map[string]*huma.Param{}
	for _, name := range append(names, requestIDHeader) {
		described[name] = headerOf(name)
	}
	return described
}

func headerOf(name string) *huma.Param {
	header := &huma.Param{Schema: &huma.Schema{Type: huma.TypeString}, Description: map[string]string{
		requestIDHeader:       "The request's id: its own when it brought one of [A-Za-z0-9._-]{1,128}.",
		"Location":            "Where the new thing is.",
		"Retry-After":         "Seconds after which to try again.",
		"WWW-Authenticate":    "Bearer, with the error of RFC 6750, 3.1, when there was a token.",
		"ETag":                "The tag of this answer, for If-None-Match.",
		"Content-Disposition": "A name for the file, of an export.",
	}[name]}
	if name == "Retry-After" {
		header.Schema = &huma.Schema{Type: huma.TypeInteger, Minimum: new(1.0)}
	}
	return header
}

func pathParams(path string) (names []string) {
	for segment := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(segment, "{") {
			names = append(names, strings.Trim(segment, "{}"))
		}
	}
	return names
}

func pattern(path string) string {
	for _, name := range pathParams(path) {
		path = strings.ReplaceAll(path, "{"+name+"}", "*")
	}
	return path
}

// docsPolicy lets the page load this server's files only. Swagger UI sets styles by script and draws icons as data.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed docs
var docsPage embed.FS

type asset struct {
	contentType string
	gzipped     bool
	data        []byte
}

// docsAssets loads the page: two files of its own, and those of Swagger UI, which are compressed.
func docsAssets() (map[string]asset, error) {
	const script = "text/javascript; charset=utf-8"
	assets := map[string]asset{}
	for _, file := range []struct {
		files             fs.FS
		file, name, media string
	}{
		{docsPage, "docs/index.html", "", "text/html; charset=utf-8"},
		{docsPage, "docs/start.js", "start.js", script},
		{static.FS, "swagger-ui-bundle.js.gz", "swagger-ui-bundle.js", script},
		{static.FS, "swagger-ui.css.gz", "swagger-ui.css", "text/css; charset=utf-8"},
		{static.FS, "favicon-32x32.png", "favicon-32x32.png", "image/png"},
	} {
		data, err := fs.ReadFile(file.files, file.file)
		if err != nil {
			return nil, fmt.Errorf("load the documentation page: %w", err)
		}
		assets[file.name] = asset{contentType: file.media, gzipped: strings.HasSuffix(file.file, ".gz"), data: data}
	}
	return assets, nil
}

func (a *api) serveDocs(assets map[string]asset) gin.HandlerFunc {
	return func(c *gin.Context) {
		file, ok := assets[strings.TrimPrefix(c.Param("file"), "/")]
		if !ok {
			a.noRoute(c)
			return
		}
		if file.gzipped {
			c.Writer.Header().Add("Vary", "Accept-Encoding")
		}
		if file.gzipped && strings.Contains(c.GetHeader("Accept-Encoding"), "gzip") {
			c.Writer.Header().Set("Content-Encoding", "gzip")
		} else if file.gzipped {
			packed, err := gzip.NewReader(bytes.NewReader(file.data))
			if err == nil {
				file.data, err = io.ReadAll(packed)
			}
			if err != nil {
				a.abort(c, fmt.Errorf("unpack a file: %w", err))
				return
			}
		}
		a.page(c, docsPolicy, file.contentType, file.data)
	}
}
