package handler_test

import (
	"cmp"
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

// withUnknown makes bodies of a schema, by the place of one unknown member: in the object, or in an object inside.
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
	check.Need(t, got.status == http.StatusOK && got.header.Get("Content-Type") == "application/json",
		"%d %v", got.status, got.header)
	var doc document
	check.Must(t, json.Unmarshal([]byte(got.body), &doc))
	return doc, []byte(got.body)
}

// The document fits the OpenAPI Initiative's schema for 3.1, and its schemas fit JSON Schema 2020-12.
func TestOpenAPIIsValid(t *testing.T) {
	t.Parallel()
	doc, text := readDocument(t, setup(t))
	check.That(t, doc.OpenAPI == "3.1.0", "openapi = %q", doc.OpenAPI)
	file := check.Value(os.Open("testdata/openapi-3.1.schema.json"))(t)
	defer file.Close()
	published := check.Value(jsonschema.UnmarshalJSON(file))(t)
	compiler := jsonschema.NewCompiler()
	check.Must(t, compiler.AddResource("published.json", published))
	schema := check.Value(compiler.Compile("published.json"))(t)
	instance := check.Value(jsonschema.UnmarshalJSON(strings.NewReader(string(text))))(t)
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

func TestOpenAPITellsAll(t *testing.T) {
	t.Parallel()
	s := setup(t)
	doc, _ := readDocument(t, s)
	router, _ := s.handler.(interface{ Routes() gin.RoutesInfo })
	parameter := regexp.MustCompile(`:(\w+)`)
	var routes, documented []string
	for _, route := range router.Routes() {
		if route.Method != http.MethodHead && !strings.Contains(route.Path, "*") {
			routes = append(routes, strings.ToLower(route.Method)+" "+parameter.ReplaceAllString(route.Path, "{$1}"))
		}
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(documented)
	check.Equal(t, "what is documented", strings.Join(documented, "\n"), strings.Join(routes, "\n"))
}

func TestOpenAPIErrors(t *testing.T) {
	t.Parallel()
	doc, _ := readDocument(t, setup(t))
	codes := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			where := method + " " + path
			for status, r := range op.Responses {
				problem, ok := r.Content["application/problem+json"]
				check.Equal(t, where+" "+status+" is a problem", ok, status >= "400")
				check.That(t, status != "default", "%s has a vague default", where)
				for code := range problem.Examples {
					codes[code] = true
				}
				headers := map[string]string{"401": "WWW-Authenticate", "429": "Retry-After", "503": "Retry-After"}
				want := cmp.Or(headers[status], "X-Request-Id")
				if strings.HasSuffix(path, "/seckill") && status < "400" {
					want = "Location" // of both answers to a purchase: which one it is depends on the mode
				}
				check.That(t, r.Headers[want] != nil && r.Headers["X-Request-Id"] != nil, "%s %s has the headers %v",
					where, status, r.Headers)
			}
			_, unauthenticated := op.Responses["401"]
			_, forbidden := op.Responses["403"]
			check.That(t, unauthenticated || len(op.Security) == 0 || len(op.Security[0]) == 0,
				"%s is protected but never 401", where)
			check.That(t, forbidden || !strings.Contains(path, "/admin/"), "%s is never 403", where)
		}
	}
	purchase := doc.Paths["/api/v1/vouchers/{id}/seckill"]["post"].Responses
	for _, status := range []string{"201", "202"} {
		placed := doc.resolve(t, purchase[status].Content["application/json"].Schema)
		for _, member := range []string{"id", "voucher_id", "price", "status", "nonce", "leaf"} {
			check.That(t, placed != nil && placed.Properties[member] != nil, "%s has no %s: %+v", status, member,
				purchase[status])
		}
	}
	for _, code := range model.Codes() {
		// An operation never answers that its method is not allowed: only the description can say so.
		check.That(t, codes[string(code)] || strings.Contains(doc.Info.Description, "`"+string(code)+"`"),
			"%s is nowhere in the document", code)
	}
}

// What generators and linters ask beyond the standard (make lint-api), as that every pattern means the same elsewhere.
func TestOpenAPIIsForGenerators(t *testing.T) {
	t.Parallel()
	doc, text := readDocument(t, setup(t))
	for path, methods := range doc.Paths {
		for method, op := range methods {
			check.That(t, op.Security != nil && op.Description != "",
				"%s %s: security %v, description %q", method, path, op.Security, op.Description)
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
		check.That(t, !strings.Contains(string(text), word), "%s is of no standard", word)
	}
	got := setup(t).do(t, http.MethodPost, "/api/v1/auth/register", `{"username":"?","password":"long enough"}`)
	check.That(t, strings.Contains(got.body, "3 to 32 of A-Z a-z 0-9 . _ -"),
		"the message lost its words: %s", got.body)
}

func TestEnumsAreTheModels(t *testing.T) {
	t.Parallel()
	doc, _ := readDocument(t, setup(t))
	want := map[string]string{
		"status": fmt.Sprint(model.OrderStatuses()), "phase": fmt.Sprint(model.Phases()), "format": "[json csv xlsx]",
		"refunds": fmt.Sprint(model.RefundStatuses()), "of": fmt.Sprint(model.OrderInstants()),
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			for _, parameter := range op.Parameters {
				legal := cmp.Or(want[parameter.Name], "[]")
				if parameter.Name == "status" && strings.HasSuffix(path, "/refunds") {
					legal = want["refunds"]
				}
				check.Equal(t, method+" "+path+" "+parameter.Name, fmt.Sprint(parameter.Schema.Enum), legal)
			}
		}
	}
	for _, name := range []string{"VoucherDraft", "VoucherChange"} {
		var schema struct {
			Properties struct{ State struct{ Enum []string } }
		}
		check.Must(t, json.Unmarshal(doc.Components.Schemas[name], &schema))
		check.Equal(t, name, fmt.Sprint(schema.Properties.State.Enum), fmt.Sprint(model.VoucherStates()))
	}
}

func TestDocsNeedNoInternet(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, path := range []string{"/api/v1/docs", "/api/v1/docs/"} {
		page := s.do(t, http.MethodGet, path, "")
		page.is(t, http.StatusOK)
		check.Equal(t, "the type", page.header.Get("Content-Type"), "text/html; charset=utf-8")
		check.That(t, strings.HasPrefix(page.header.Get("Content-Security-Policy"), "default-src 'none'"), "%v",
			page.header)
		references := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.body, -1)
		check.That(t, len(references) >= 5, "only %d references", len(references))
		for _, reference := range references {
			check.Need(t, strings.HasPrefix(reference[1], "/api/v1/"), "%s is not ours", reference[1])
			for _, coding := range []string{"gzip", "identity"} {
				file := s.do(t, http.MethodGet, reference[1], "", "Accept-Encoding", coding)
				file.is(t, http.StatusOK)
				compressed := strings.HasPrefix(file.body, "\x1f\x8b")
				check.That(t, file.body != "" && (!compressed || coding == "gzip"), "%s as %s", reference[1], coding)
				check.Equal(t, reference[1]+" is compressed", compressed, file.header.Get("Content-Encoding") == "gzip")
			}
		}
	}
	for _, path := range []string{"/api/v1/docs/no-such-file", "/api/v1/docs/../index.html"} {
		wantProblem(t, s.do(t, http.MethodGet, path, ""), http.StatusNotFound, model.CodeNotFound)
	}
}
