package handler

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"

	"seckill/model"
)

// apiVersion is the version of the contract, not of the program.
const apiVersion = "1.0.0"

const apiDescription = `Flash sales of vouchers. Errors are problem documents (RFC 9457,
` + "`application/problem+json`" + `); programs switch on ` + "`code`" + `. Tolerate new members and new enum values. Unknown
paths answer ` + "`NOT_FOUND`" + `, methods that a path does not know ` + "`METHOD_NOT_ALLOWED`" + ` with the header ` + "`Allow`" + `.
Every GET route also knows HEAD. Times are RFC 3339 in UTC, amounts of money integers in minor units of ` + "`%s`" + `.`

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// humaConfig is huma without its own pages, links and $schema members.
func (a *api) humaConfig() huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       "Seckill API",
				Version:     apiVersion,
				Description: fmt.Sprintf(apiDescription, a.options.Currency),
			},
			Servers: []*huma.Server{{URL: "/"}},
			Tags: []*huma.Tag{
				{Name: tagAccounts},
				{Name: tagVouchers},
				{Name: tagOrders},
				{Name: tagAdmin, Description: "For tokens with the role admin."},
				{Name: tagOperations},
			},
			Components: &huma.Components{
				Schemas:   huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				Responses: map[string]*huma.Response{},
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

// documentRoutes serves the document and the page that shows it. It comes
// last, because the document tells of all routes, itself included.
func (a *api) documentRoutes() error {
	assets, err := docsAssets()
	if err != nil {
		return err
	}
	docs := route{
		id: "docs", access: public, method: http.MethodGet, path: basePath + "/docs", tag: tagOperations,
		summary: "A page that shows this document", status: http.StatusOK,
		response: map[string]any{"text/html; charset=utf-8": ""},
	}
	a.registerPlain(docs, a.serveDocs(assets))
	files := docs
	files.path = basePath + "/docs/*file"
	a.mount(files, a.serveDocs(assets))

	var document []byte
	a.registerPlain(route{
		id: "openapi", access: public, method: http.MethodGet, path: basePath + "/openapi.json", tag: tagOperations,
		summary: "This document", status: http.StatusOK,
		response: map[string]any{"application/json": map[string]any{}},
	}, func(c *gin.Context) {
		c.Writer.Header().Set("Cache-Control", "no-cache")
		c.Data(http.StatusOK, "application/json", document)
	})
	a.polish()
	document, err = json.Marshal(a.huma.OpenAPI())
	if err != nil {
		return fmt.Errorf("write the OpenAPI document: %w", err)
	}
	return nil
}

// polish tells what Go types cannot.
func (a *api) polish() {
	components := a.huma.OpenAPI().Components
	components.Responses["MethodNotAllowed"] = a.refusals(http.StatusMethodNotAllowed,
		[]model.Code{model.CodeMethodNotAllowed})
	schemas := components.Schemas.Map()
	requests := map[string]bool{
		"Registration": true, "Credentials": true, "VoucherDraft": true, "VoucherChange": true,
		"StockChange": true, "Nothing": true,
	}
	for name, schema := range schemas {
		if requests[name] {
			continue
		}
		schema.AdditionalProperties = nil // answers may grow
		for _, property := range schema.Properties {
			if property.Type == huma.TypeArray {
				property.Nullable = false
			}
		}
	}
	one := 1
	change := schemas["StockChange"]
	change.MinProperties, change.MaxProperties = &one, &one
	change.PrecomputeMessages()

	describe(schemas["Voucher"], "state", model.VoucherStates())
	describe(schemas["Voucher"], "phase", model.Phases())
	describe(schemas["Order"], "status", model.OrderStatuses())
	describe(schemas["OrderDetail"], "status", model.OrderStatuses())
	describe(schemas["Audit"], "mode", []model.OrderMode{model.ModeSync, model.ModeAsync})
	copies := []model.CopyState{model.CopyOpen, model.CopyClosed, model.CopyRebuilding}
	describe(schemas["AuditHotCopy"], "state", copies)
	for _, name := range []string{"redis", "queue"} {
		property := schemas["Audit"].Properties[name]
		schemas["Audit"].Properties[name] = &huma.Schema{
			AnyOf:       []*huma.Schema{property, {Type: "null"}},
			Description: "null in sync mode: there is none.",
		}
	}
}

// describe lists the values that a member of an answer has today. It makes no
// enum of them: clients are to tolerate new ones.
func describe[T ~string](schema *huma.Schema, member string, values []T) {
	words := make([]string, 0, len(values))
	for _, value := range values {
		words = append(words, "`"+string(value)+"`")
	}
	schema.Properties[member].Description = "Today one of " + strings.Join(words, ", ") + "."
}

// inflate unpacks a file for the rare client that does not know gzip.
func inflate(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("unpack a file: %w", err)
	}
	defer func() { _ = reader.Close() }()
	return io.ReadAll(reader)
}
