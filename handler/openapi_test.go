package handler_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// document is what the tests read of the OpenAPI document.
type document struct {
	OpenAPI    string
	Info       struct{ Description string }
	Paths      map[string]map[string]operation
	Components struct {
		Schemas map[string]json.RawMessage
	}
}

type operation struct {
	OperationID string
	LeastLevel  model.Level `json:"x-least-level"`
	Description string
	Parameters  []struct {
		Name, In        string
		AllowEmptyValue bool
		Schema          struct{ Enum []string }
	}
	RequestBody struct {
		Content map[string]struct{ Schema *schema }
	}
	Responses map[string]response
	Security  []map[string][]string
}

// schema is what the tests read of one.
type schema struct {
	Ref        string `json:"$ref"`
	Properties map[string]*schema
	Items      *schema
	AnyOf      []*schema
	Type       any

	nullable bool // it is the other part of an anyOf with null
}

// resolve follows references, and takes an object or null for the object; nil is nil.
func (d *document) resolve(t *testing.T, s *schema) *schema {
	t.Helper()
	switch {
	case s == nil:
	case s.Ref != "":
		found := &schema{}
		check.Must(t, json.Unmarshal(d.Components.Schemas[path.Base(s.Ref)], found))
		return found
	case len(s.AnyOf) == 2 && s.AnyOf[1].Type == "null":
		found := d.resolve(t, s.AnyOf[0])
		found.nullable = true
		return found
	}
	return s
}

// withUnknown makes bodies of a schema, by the place of the one member in each that it does not know: in
// the object itself, and in every object inside.
func (d *document) withUnknown(t *testing.T, s *schema, location string) map[string]string {
	t.Helper()
	bodies := map[string]string{location + ".surprise": `{"surprise":1}`}
	for name, property := range s.Properties {
		form, inside := `{"%s":%s}`, d.resolve(t, property)
		if inside.Items != nil {
			form, inside, name = `{"%s":[%s]}`, d.resolve(t, inside.Items), name+"[0]"
		}
		if inside.Properties == nil {
			continue
		}
		for place, body := range d.withUnknown(t, inside, location+"."+name) {
			bodies[place] = fmt.Sprintf(form, strings.TrimSuffix(name, "[0]"), body)
		}
	}
	return bodies
}

type response struct {
	Headers map[string]any
	Content map[string]struct {
		Schema   *schema
		Examples map[string]any
	}
}

func readDocument(t *testing.T, s *server) (document, []byte) {
	t.Helper()
	got := s.do(t, http.MethodGet, "/api/v1/openapi.json", "")
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v", got.status, got.header)
	}
	var doc document
	check.Must(t, json.Unmarshal([]byte(got.body), &doc))
	return doc, []byte(got.body)
}

// TestOpenAPIIsValid checks the document against the schema that the OpenAPI
// Initiative publishes for 3.1, and its schemas as JSON Schema 2020-12.
func TestOpenAPIIsValid(t *testing.T) {
	t.Parallel()
	doc, text := readDocument(t, setup(t))
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("openapi = %q", doc.OpenAPI)
	}
	file, err := os.Open("testdata/openapi-3.1.schema.json")
	check.Must(t, err)
	defer file.Close()
	published, err := jsonschema.UnmarshalJSON(file)
	check.Must(t, err)
	compiler := jsonschema.NewCompiler()
	check.Must(t, compiler.AddResource("published.json", published))
	schema, err := compiler.Compile("published.json")
	check.Must(t, err)
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	check.Must(t, err)
	if err := schema.Validate(instance); err != nil {
		t.Errorf("%v", err)
	}
	check.Must(t, compiler.AddResource("api.json", instance))
	for name := range doc.Components.Schemas {
		if _, err := compiler.Compile("api.json#/components/schemas/" + name); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	references := regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`).FindAllSubmatch(text, -1)
	for _, reference := range references {
		if _, ok := doc.Components.Schemas[string(reference[1])]; !ok {
			t.Errorf("%s leads nowhere", reference[0])
		}
	}
}

// TestOpenAPITellsAll compares the document with the router.
func TestOpenAPITellsAll(t *testing.T) {
	t.Parallel()
	s := setup(t)
	doc, _ := readDocument(t, s)
	router, ok := s.handler.(interface{ Routes() gin.RoutesInfo })
	if !ok {
		t.Fatal("the handler is no Gin engine")
	}
	parameter := regexp.MustCompile(`:(\w+)`)
	routes := 0
	for _, route := range router.Routes() {
		if route.Method == http.MethodHead || strings.Contains(route.Path, "*") {
			continue
		}
		routes++
		path := parameter.ReplaceAllString(route.Path, "{$1}")
		if _, ok := doc.Paths[path][strings.ToLower(route.Method)]; !ok {
			t.Errorf("%s %s is not documented", route.Method, path)
		}
	}
	documented := 0
	for _, methods := range doc.Paths {
		documented += len(methods)
	}
	if documented != routes {
		t.Errorf("%d operations are documented, %d routes exist", documented, routes)
	}
}

func TestOpenAPIErrors(t *testing.T) {
	t.Parallel()
	doc, _ := readDocument(t, setup(t))
	var codes []string
	count := func(r response) {
		for mediaType, content := range r.Content {
			if mediaType == "application/problem+json" {
				for code := range content.Examples {
					codes = append(codes, code)
				}
			}
		}
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			where := method + " " + path
			if _, ok := op.Responses["default"]; ok {
				t.Errorf("%s has a vague default", where)
			}
			for status, r := range op.Responses {
				count(r)
				_, problem := r.Content["application/problem+json"]
				if problem != (status >= "400") {
					t.Errorf("%s %s: %v", where, status, r.Content)
				}
				want := map[string]string{
					"201": "", "401": "WWW-Authenticate", "429": "Retry-After", "503": "Retry-After",
				}[status]
				if strings.HasSuffix(path, "/seckill") && status < "400" {
					want = "Location" // of both answers to a purchase: which one it is depends on the mode
				}
				if want != "" && r.Headers[want] == nil {
					t.Errorf("%s %s lacks the header %s", where, status, want)
				}
				if r.Headers["X-Request-Id"] == nil {
					t.Errorf("%s %s lacks X-Request-Id", where, status)
				}
			}
			if len(op.Security) > 0 && len(op.Security[0]) > 0 {
				if _, ok := op.Responses["401"]; !ok {
					t.Errorf("%s is protected but never 401", where)
				}
			}
			if strings.Contains(path, "/admin/") {
				if _, ok := op.Responses["403"]; !ok {
					t.Errorf("%s is never 403", where)
				}
			}
		}
	}
	purchase := doc.Paths["/api/v1/vouchers/{id}/seckill"]["post"].Responses
	for _, status := range []string{"201", "202"} {
		placed := doc.resolve(t, purchase[status].Content["application/json"].Schema)
		for _, member := range []string{"id", "voucher_id", "price", "status", "nonce", "leaf"} {
			if placed == nil || placed.Properties[member] == nil {
				t.Errorf("%s has no %s: %+v", status, member, purchase[status])
			}
		}
	}
	for _, code := range model.Codes() {
		// An operation never answers that its method is not allowed: only the description can say so.
		if !slices.Contains(codes, string(code)) && !strings.Contains(doc.Info.Description, "`"+string(code)+"`") {
			t.Errorf("%s is nowhere in the document", code)
		}
	}
}

// TestOpenAPIIsForGenerators: what generators of clients and their linters ask of a document beyond the standard (make
// lint-api asks two of them). Every operation says whom it admits and what it does, and every pattern means
// the same elsewhere.
func TestOpenAPIIsForGenerators(t *testing.T) {
	t.Parallel()
	doc, text := readDocument(t, setup(t))
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if op.Security == nil || op.Description == "" {
				t.Errorf("%s %s: security %v, description %q", method, path, op.Security, op.Description)
			}
			if body := doc.resolve(t, op.RequestBody.Content["application/json"].Schema); body != nil && body.nullable {
				t.Errorf("%s %s: its body may be null, which generated clients cannot leave out", method, path)
			}
			var read *schema // by a generated client, of whatever success
			for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
				answer := op.Responses[status].Content["application/json"].Schema
				if answer == nil || status >= "300" {
					continue
				}
				if read == nil {
					read = answer
				}
				if !reflect.DeepEqual(answer, read) {
					t.Errorf("%s %s: %s has another schema than the status before it, which generated clients take for it", method, path, status)
				}
			}
		}
	}
	for _, word := range []string{"patternDescription", `"$schema"`} {
		if strings.Contains(string(text), word) {
			t.Errorf("%s is of no standard", word)
		}
	}
	got := setup(t).do(t, http.MethodPost, "/api/v1/auth/register", `{"username":"?","password":"long enough"}`)
	if !strings.Contains(got.body, "3 to 32 of A-Z a-z 0-9 . _ -") {
		t.Errorf("the message lost its words: %s", got.body)
	}
}

// TestEnumsAreTheModels compares what tags say with what the model knows.
func TestEnumsAreTheModels(t *testing.T) {
	t.Parallel()
	doc, _ := readDocument(t, setup(t))
	words := func(n int, at func(int) string) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = at(i)
		}
		return list
	}
	states, statuses, phases, refunds := model.VoucherStates(), model.OrderStatuses(), model.Phases(), model.RefundStatuses()
	ofRefunds := words(len(refunds), func(i int) string { return string(refunds[i]) })
	want := map[string][]string{
		"status": words(len(statuses), func(i int) string { return string(statuses[i]) }),
		"phase":  words(len(phases), func(i int) string { return string(phases[i]) }),
		"format": {"json", "csv", "xlsx"},
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			for _, parameter := range op.Parameters {
				legal := want[parameter.Name]
				if parameter.Name == "status" && strings.HasSuffix(path, "/refunds") {
					legal = ofRefunds
				}
				if !slices.Equal(parameter.Schema.Enum, legal) {
					t.Errorf("%s %s: %s is one of %v, want %v", method, path, parameter.Name, parameter.Schema.Enum, legal)
				}
			}
		}
	}
	for _, name := range []string{"VoucherDraft", "VoucherChange"} {
		var schema struct {
			Properties struct{ State struct{ Enum []string } }
		}
		check.Must(t, json.Unmarshal(doc.Components.Schemas[name], &schema))
		if want := words(len(states), func(i int) string { return string(states[i]) }); !slices.Equal(schema.Properties.State.Enum, want) {
			t.Errorf("%s.state is one of %v, want %v", name, schema.Properties.State.Enum, want)
		}
	}
}

// TestDocsNeedNoInternet follows every reference of the page.
func TestDocsNeedNoInternet(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, path := range []string{"/api/v1/docs", "/api/v1/docs/"} {
		page := s.do(t, http.MethodGet, path, "")
		if page.status != http.StatusOK || page.header.Get("Content-Type") != "text/html; charset=utf-8" ||
			!strings.HasPrefix(page.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Fatalf("%d %v", page.status, page.header)
		}
		references := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.body, -1)
		if len(references) < 5 {
			t.Errorf("only %d references", len(references))
		}
		for _, reference := range references {
			if !strings.HasPrefix(reference[1], "/api/v1/") {
				t.Errorf("%s is not ours", reference[1])
				continue
			}
			for _, coding := range []string{"gzip", "identity"} {
				file := s.do(t, http.MethodGet, reference[1], "", "Accept-Encoding", coding)
				if file.status != http.StatusOK || file.body == "" {
					t.Errorf("%s: %d", reference[1], file.status)
				}
				if compressed := strings.HasPrefix(file.body, "\x1f\x8b"); compressed != (file.header.Get("Content-Encoding") == "gzip") || compressed && coding != "gzip" {
					t.Errorf("%s as %s: %v", reference[1], coding, file.header)
				}
			}
		}
	}
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/docs/no-such-file", ""), http.StatusNotFound, model.CodeNotFound)
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/docs/../index.html", ""), http.StatusNotFound, model.CodeNotFound)
}
