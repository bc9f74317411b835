package handler_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"seckill/model"
)

// padded is a valid registration of exactly size bytes.
func padded(size int) string {
	body := `{"username":"somebody","password":"long enough"}`
	return body + strings.Repeat(" ", size-len(body))
}

func TestBodies(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const good = `{"username":"somebody","password":"long enough"}`
	for name, test := range map[string]struct {
		body        string
		contentType string // empty: application/json, "-": none
		status      int
		code        model.Code
		location    string
	}{
		"good":              {body: good, status: http.StatusCreated},
		"charset":           {body: good, contentType: "application/json; charset=UTF-8", status: http.StatusCreated},
		"no type":           {body: good, contentType: "-", status: http.StatusCreated},
		"largest":           {body: padded(16 << 10), status: http.StatusCreated},
		"too large":         {body: padded(16<<10 + 1), status: http.StatusRequestEntityTooLarge, code: model.CodePayloadTooLarge},
		"large and text":    {body: padded(20 << 10), contentType: "text/plain", status: http.StatusRequestEntityTooLarge, code: model.CodePayloadTooLarge},
		"text":              {body: good, contentType: "text/plain", status: http.StatusUnsupportedMediaType, code: model.CodeUnsupportedMediaType},
		"form":              {body: "username=a", contentType: "application/x-www-form-urlencoded", status: http.StatusUnsupportedMediaType, code: model.CodeUnsupportedMediaType},
		"merge patch":       {body: good, contentType: "application/merge-patch+json", status: http.StatusUnsupportedMediaType, code: model.CodeUnsupportedMediaType},
		"other charset":     {body: good, contentType: "application/json; charset=gbk", status: http.StatusUnsupportedMediaType, code: model.CodeUnsupportedMediaType},
		"no type, no JSON":  {body: "username=a", contentType: "-", status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"empty":             {body: "", status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"blank":             {body: " \n", status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"cut off":           {body: good[:20], status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"two documents":     {body: good + good, status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"trailing garbage":  {body: good + "x", status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"byte order mark":   {body: "\ufeff" + good, status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"not UTF-8":         {body: `{"username":"some` + "\xff" + `body","password":"long enough"}`, status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"half a character":  {body: `{"username":"somebody","password":"long enough\ud800"}`, status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"the other half":    {body: `{"username":"somebody","password":"long enough\udc00"}`, status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"two first halves":  {body: `{"username":"somebody","password":"long enough\ud83d\ud83d"}`, status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"half and a letter": {body: `{"username":"somebody","password":"long enough\uD83D\u0061"}`, status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"half and a quote":  {body: `{"username":"somebody","password":"long enough\uD83D\"\\"}`, status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"half in a name":    {body: `{"username":"somebody","password":"long enough","\udfff":1}`, status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"both halves":       {body: `{"username":"somebody","password":"long enough\uD83D\ude00"}`, status: http.StatusCreated},
		"no half at all":    {body: `{"username":"somebody","password":"long enough\\ud800\\"}`, status: http.StatusCreated},
		"deep":              {body: strings.Repeat("[", 16<<10), status: http.StatusBadRequest, code: model.CodeValidation, location: "body"},
		"deep and closed":   {body: strings.Repeat("[", 8<<10) + strings.Repeat("]", 8<<10), status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body"},
		"null":              {body: "null", status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body"},
		"array":             {body: "[]", status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body"},
		"missing member":    {body: `{"username":"somebody"}`, status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body.password"},
		"null member":       {body: `{"username":"somebody","password":null}`, status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body.password"},
		"wrong type":        {body: `{"username":"somebody","password":1234567890}`, status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body.password"},
		"unknown member":    {body: `{"username":"somebody","password":"long enough","role":"admin"}`, status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body.role"},
		"member in capital": {body: `{"Username":"somebody","password":"long enough"}`, status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body.Username"},
		"member twice":      {body: `{"username":"somebody","password":"long enough","password":"another one"}`, status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body.password"},
		"name too short":    {body: `{"username":"ab","password":"long enough"}`, status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body.username"},
		"name with newline": {body: `{"username":"abc\n","password":"long enough"}`, status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body.username"},
		"password short":    {body: `{"username":"somebody","password":"9 letters"}`, status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body.password"},
		"password in runes": {body: `{"username":"somebody","password":"` + strings.Repeat("密", 128) + `"}`, status: http.StatusCreated},
		"password long":     {body: `{"username":"somebody","password":"` + strings.Repeat("密", 129) + `"}`, status: http.StatusUnprocessableEntity, code: model.CodeValidation, location: "body.password"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contentType := test.contentType
			switch contentType {
			case "":
				contentType = "application/json"
			case "-":
				contentType = ""
			}
			got := s.do(t, http.MethodPost, "/api/v1/auth/register", test.body, "Content-Type", contentType)
			if test.code == "" {
				got.is(t, test.status)
				return
			}
			p := wantProblem(t, got, test.status, test.code)
			if test.code == model.CodeValidation && !locates(p, test.location) {
				t.Errorf("no error at %s in %v", test.location, p.Errors)
			}
			if strings.Contains(got.body, "long enough") {
				t.Error("the answer repeats a password")
			}
		})
	}
}

func locates(p problem, location string) bool {
	for _, field := range p.Errors {
		if field.Location == location && field.Message != "" {
			return true
		}
	}
	return false
}

// TestEveryBody of the document is strict: one member that it does not know is refused, and so is a byte
// order mark, which RFC 8259, 8.1, lets no sender add. Where there is no body, null and an object without members are none.
func TestEveryBody(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var heard call
	heard.listen(s.fakes)
	s.fakes.limits = model.Limits{}
	doc, _ := readDocument(t, s)
	admin := s.as(t, "a", model.RoleAdmin)
	bodies := 0
	for template, methods := range doc.Paths {
		for method, op := range methods {
			documented := doc.resolve(t, op.RequestBody.Content["application/json"].Schema)
			if documented == nil && method == "post" { // it says everything in its path
				documented = &schema{nullable: true}
			}
			if documented == nil || op.OperationID == "payment-webhook" { // whose members its sender defines
				continue
			}
			bodies++
			send := func(body string) answer {
				return s.do(t, strings.ToUpper(method), concrete(template), body, admin...)
			}
			for location, body := range doc.withUnknown(t, documented, "body") {
				p := wantProblem(t, send(body), http.StatusUnprocessableEntity, model.CodeValidation)
				if !locates(p, location) {
					t.Errorf("%s %s: %s is not refused for its unknown member: %v", method, template, body, p.Errors)
				}
			}
			wantProblem(t, send("\ufeff{}"), http.StatusBadRequest, model.CodeValidation)
			if !documented.nullable { // the body is not optional
				wantProblem(t, send("null"), http.StatusUnprocessableEntity, model.CodeValidation)
				continue
			}
			without, null, empty := send(""), send(" null\n"), send("{}")
			if without.status != null.status || without.status != empty.status || without.status == http.StatusUnprocessableEntity {
				t.Errorf("%s %s: %d without a body, %d with null, %d with {}: %s", method, template, without.status, null.status, empty.status, null.body)
			}
		}
	}
	if bodies < 10 {
		t.Errorf("only %d bodies", bodies)
	}
}

// TestLargeStreams sends more than is allowed without saying how much.
func TestLargeStreams(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, path := range []string{"/api/v1/auth/register", "/api/v1/vouchers/v1/seckill", "/api/v1/admin/vouchers"} {
		// A reader of unknown length makes the client send chunks.
		body := io.MultiReader(bytes.NewReader(make([]byte, 64<<10)))
		got := s.send(t, http.MethodPost, path, body, s.as(t, "a", model.RoleAdmin)...)
		wantProblem(t, got, http.StatusRequestEntityTooLarge, model.CodePayloadTooLarge)
	}
	// What would be larger when it is unpacked is not unpacked.
	got := s.do(t, http.MethodPost, "/api/v1/auth/register", `{}`, "Content-Encoding", "gzip")
	wantProblem(t, got, http.StatusUnsupportedMediaType, model.CodeUnsupportedMediaType)
}

func TestManyErrorsAreCut(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var body strings.Builder
	body.WriteString(`{"username":"somebody","password":"long enough"`)
	for i := range 500 {
		body.WriteString(`,"x` + strings.Repeat("y", i%7) + string(rune('a'+i%26)) + strings.Repeat("z", i/26) + `":1`)
	}
	body.WriteString("}")
	p := wantProblem(t, s.do(t, http.MethodPost, "/api/v1/auth/register", body.String()),
		http.StatusUnprocessableEntity, model.CodeValidation)
	if len(p.Errors) != 20 {
		t.Errorf("%d errors", len(p.Errors))
	}
}
