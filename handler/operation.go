package handler

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"seckill/model"
)

// bearer names the security scheme.
const bearer = "bearer"

// operation documents a route.
func (a *api) operation(r route) huma.Operation {
	op := huma.Operation{
		OperationID:   r.id,
		Method:        r.method,
		Path:          r.path,
		Tags:          []string{r.tag},
		Summary:       r.summary,
		Description:   r.description,
		DefaultStatus: r.status,
		MaxBodyBytes:  maxBody + 1, // readBody has refused larger ones; huma's limit excludes itself
		Metadata:      map[string]any{routeKey: r},
		Responses:     map[string]*huma.Response{strconv.Itoa(r.status): a.success(r, r.status)},
	}
	if r.otherwise != 0 {
		op.Responses[strconv.Itoa(r.otherwise)] = a.success(r, r.otherwise)
	}
	switch r.access {
	case undecided:
		panic("route " + r.id + " does not say who may call it")
	case public:
	case recognised:
		op.Security = []map[string][]string{{}, {bearer: {}}}
	case users, administrators:
		op.Security = []map[string][]string{{bearer: {}}}
	}
	if r.request != nil {
		op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{"application/json": r.request}}
	}
	for status, codes := range r.problems() {
		op.Responses[strconv.Itoa(status)] = a.refusals(status, codes)
	}
	for name := range pathParams(r.path) {
		if r.plain() {
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString},
			})
		}
	}
	return op
}

// plain reports whether no typed function describes the route.
func (r route) plain() bool { return r.response != nil }

// problems lists the codes that a route answers with, by status.
func (r route) problems() map[int][]model.Code {
	codes := slices.Clone(r.codes)
	if r.access == users || r.access == administrators {
		codes = append(codes, model.CodeUnauthenticated)
	}
	if r.access == administrators {
		codes = append(codes, model.CodeForbidden)
	}
	if takesBody(r.method) {
		codes = append(codes, model.CodeUnsupportedMediaType, model.CodeValidation)
	}
	codes = append(codes, model.CodePayloadTooLarge, model.CodeInternal)
	byStatus := map[int][]model.Code{}
	for _, code := range codes {
		status := kindOf(code).status
		if !slices.Contains(byStatus[status], code) {
			byStatus[status] = append(byStatus[status], code)
		}
	}
	if takesBody(r.method) {
		byStatus[http.StatusBadRequest] = []model.Code{model.CodeValidation}
	}
	return byStatus
}

// success documents an answer that a route is there for.
func (a *api) success(r route, status int) *huma.Response {
	response := &huma.Response{Description: http.StatusText(status), Headers: a.headers(r.headers...)}
	for mediaType, example := range r.response {
		if response.Content == nil {
			response.Content = map[string]*huma.MediaType{}
		}
		response.Content[mediaType] = &huma.MediaType{Schema: a.schema(reflect.TypeOf(example))}
	}
	return response
}

// schema is the schema of a type: a reference for structs.
func (a *api) schema(t reflect.Type) *huma.Schema {
	return a.huma.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// refusals documents the problems of one status.
func (a *api) refusals(status int, codes []model.Code) *huma.Response {
	var headers []string
	words := make([]string, 0, len(codes))
	examples := map[string]*huma.Example{}
	for _, code := range codes {
		example := exampleOf(code)
		example.Status = status
		for name := range example.GetHeaders() {
			if name == "Www-Authenticate" {
				name = "WWW-Authenticate" // Go's spelling is not the one that people know
			}
			headers = append(headers, name)
		}
		words = append(words, "`"+string(code)+"`")
		examples[string(code)] = &huma.Example{Value: example}
	}
	if status == http.StatusMethodNotAllowed {
		headers = append(headers, "Allow")
	}
	return &huma.Response{
		Description: http.StatusText(status) + ": " + strings.Join(words, ", "),
		Headers:     a.headers(headers...),
		Content: map[string]*huma.MediaType{
			problemType: {Schema: a.schema(reflect.TypeFor[Problem]()), Examples: examples},
		},
	}
}

// exampleOf shows a code's document with the members that it comes with.
func exampleOf(code model.Code) *Problem {
	example := &model.Error{Code: code, Detail: "What happened, in a sentence."}
	switch code {
	case model.CodeValidation:
		example.Fields = []model.FieldError{{Location: "body", Message: "What is wrong with it."}}
	case model.CodeNotStarted:
		example.BeginAt = time.Date(2030, time.November, 11, 0, 0, 0, 0, time.UTC)
	case model.CodeAlreadyOrdered:
		example.OrderID, example.OrderStatus = "01jcexample.01jcvoucher", model.OrderUnpaid
	case model.CodeIllegalState:
		example.OrderStatus = model.OrderCanceled
	case model.CodeUnauthenticated, model.CodeForbidden, model.CodeNotFound, model.CodeMethodNotAllowed,
		model.CodePayloadTooLarge, model.CodeUnsupportedMediaType, model.CodeEnded, model.CodePaused,
		model.CodeSoldOut, model.CodeConflict, model.CodeLockBusy, model.CodeRateLimited,
		model.CodeUnavailable, model.CodeInternal:
	}
	return problemOf(example)
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
	text := &huma.Schema{Type: huma.TypeString}
	switch name {
	case requestIDHeader:
		return &huma.Param{Description: "The request's id: its own when it brought one of [A-Za-z0-9._-]{1,128}.", Schema: text}
	case "Location":
		return &huma.Param{Description: "Where the new thing is.", Schema: text}
	case "Retry-After":
		one := 1.0
		return &huma.Param{
			Description: "Seconds after which to try again.",
			Schema:      &huma.Schema{Type: huma.TypeInteger, Minimum: &one},
		}
	case "WWW-Authenticate":
		return &huma.Param{Description: "Bearer.", Schema: text}
	case "Allow":
		return &huma.Param{Description: "The methods that the path knows.", Schema: text}
	case "Content-Disposition":
		return &huma.Param{Description: "A name for the file, of CSV.", Schema: text}
	default:
		return &huma.Param{Schema: text}
	}
}

// pathParams lists the names in a path's braces.
func pathParams(path string) map[string]struct{} {
	names := map[string]struct{}{}
	for segment := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			names[strings.TrimSuffix(name, "}")] = struct{}{}
		}
	}
	return names
}
