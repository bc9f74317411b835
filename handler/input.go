package handler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"seckill/internal/budget"
	"seckill/model"
)

// Paging is the query parameters of every list. One that is repeated counts the first time, an empty one is absent.
type Paging struct {
	Cursor string `query:"cursor" maxLength:"512" doc:"next_cursor of the page before; empty: the first page. A page may be short, or empty, though more follow."`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"20" doc:"The most items of a page."`
}

// InPath is the id in a path, which possible has checked. (huma does not look into embedded structs that are private.)
type InPath struct {
	ID string `path:"id"`
}

// The inputs of calls that have a body, and nothing else but: the id in their path, or where they come from.
type (
	sent[T any] struct{ Body T }

	sentAbout[T any] struct {
		InPath
		Body T
	}
	sentFrom[T any] struct {
		Sender
		Body T
	}
)

const maxWait = budget.Settled // for an order: proxies cut connections that are silent for a minute

// parseWait reads how long to wait. A longer wait than maxWait is no mistake, and becomes maxWait.
func parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 {
		return 0, model.Invalid("query.wait", "must be a duration like 10s, and not negative")
	}
	return min(wait, maxWait), nil
}

// parseTime reads an RFC 3339 time, with the microseconds and years that databases hold (MySQL 8 manual, 13.2.2).
func parseTime(location, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !strictTime(text) {
		return time.Time{}, model.Invalid(location, "must be an RFC 3339 time like 2030-11-11T20:00:00+08:00")
	}
	at = at.UTC().Truncate(time.Microsecond)
	if at.Year() < 1000 || at.Year() > 9999 {
		return time.Time{}, model.Invalid(location, "must be in the years 1000 to 9999")
	}
	return at, nil
}

// strictTime refuses what time.Parse lets pass beyond RFC 3339 (https://go.dev/issue/54580).
func strictTime(text string) bool {
	if len(text) < len("2006-01-02T15:04:05Z") || text[len("2006-01-02T15")] != ':' || strings.Contains(text, ",") {
		return false
	}
	offset := text[len(text)-len("+15:04"):]
	return strings.HasSuffix(text, "Z") || offset[1:3] < "24" && offset[4:] < "60"
}

const idempotencyHeader = "Idempotency-Key"

// Idempotent is the input of a call that can be made to happen once.
type Idempotent struct {
	Key string `header:"Idempotency-Key" maxLength:"255" pattern:"^[ -~]+$" patternDescription:"printable ASCII" doc:"The same key with the same body gets the first answer again; with another body it is a CONFLICT."`
}

// Resolve implements huma.Resolver. huma takes an empty header for none; its sender must hear that it does not count.
func (i *Idempotent) Resolve(ctx huma.Context) []error {
	values := humagin.Unwrap(ctx).Request.Header.Values(idempotencyHeader)
	if len(values) == 0 || len(values) == 1 && values[0] != "" {
		return nil
	}
	return []error{&huma.ErrorDetail{
		Location: "header." + idempotencyHeader,
		Message:  "must be given once and have 1 to 255 characters",
	}}
}

// once describes the call. Its fingerprint is of the decoded request: spaces and the order of members do not count.
func (i *Idempotent) once(ctx context.Context, method, path, id string, asked any) (model.Idempotency, error) {
	if i.Key == "" {
		return model.Idempotency{}, nil
	}
	canonical, err := json.Marshal(asked)
	if err != nil {
		return model.Idempotency{}, fmt.Errorf("fingerprint a call of %s: %w", path, err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", method, path, id, canonical))
	return model.Idempotency{
		Scope:       subject(ctx) + " " + method + " " + path,
		Key:         i.Key,
		Fingerprint: hex.EncodeToString(sum[:]),
	}, nil
}

const maxBody = 16 << 10 // of a request, in bytes: the contract's 16 KiB

// readBody reads after the token's check: no memory for strangers. A body must be JSON, also without Content-Type.
func (a *api) readBody(c *gin.Context) {
	if c.Request.ContentLength == 0 || c.Request.Body == nil || c.Request.Body == http.NoBody {
		return
	}
	if c.Request.ContentLength > maxBody {
		a.tooLarge(c)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			a.tooLarge(c)
			return
		}
		a.write(c, unreadable("The body did not arrive whole."))
		return
	}
	if len(body) > 0 && takesBody(c.Request.Method) && !isJSON(c.Request.Header) {
		a.abort(c, &model.Error{
			Code:   model.CodeUnsupportedMediaType,
			Detail: "The body must be application/json in UTF-8, without a content coding.",
		})
		return
	}
	c.Request.Body = io.NopCloser(bytes.NewReader(body))
	c.Request.ContentLength = int64(len(body))
}

func takesBody(method string) bool {
	return method == http.MethodPost || method == http.MethodPatch || method == http.MethodPut
}

// tooLarge also ends the connection, so that the rest of the body is not read.
func (a *api) tooLarge(c *gin.Context) {
	connectionClose(c.Writer.Header())
	a.abort(c, &model.Error{Code: model.CodePayloadTooLarge, Detail: "The body may have at most 16 KiB."})
}

func isJSON(header http.Header) bool {
	if coding := header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return false
	}
	contentType := header.Get("Content-Type")
	if contentType == "" {
		return true
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "application/json" {
		return false
	}
	charset, given := params["charset"]
	return !given || strings.EqualFold(charset, "utf-8")
}

// Marks that no field accepts: encoding/json takes null for absent, and the last of two members; huma rounds numbers.
type (
	nullValue      struct{}
	repeatedMember struct{}
	fractionValue  struct{}
)

func jsonFormat() huma.Format { return huma.Format{Marshal: writeJSON, Unmarshal: readJSON} }

// writeJSON fails for a value that is no JSON, a bug. It drops a client's error, of which huma would make a panic.
func writeJSON(w io.Writer, v any) error {
	var document bytes.Buffer
	encoder := json.NewEncoder(&document)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, _ = w.Write(document.Bytes())
	return nil
}

// readJSON decodes one document: into a pointer to any with the marks above, for huma; otherwise into the typed value.
func readJSON(data []byte, v any) error {
	document, err := parseJSON(data)
	if err != nil {
		return err
	}
	if target, ok := v.(*any); ok {
		*target = document
		return nil
	}
	canonical, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("write the body again: %w", err)
	}
	return json.Unmarshal(canonical, v)
}

// parseJSON reads exactly one document of valid UTF-8 and whole characters.
func parseJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("The body is not valid UTF-8.") //nolint:revive,staticcheck // shown to clients as it is
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	document, err := parseValue(decoder)
	if err == nil {
		_, err = decoder.Token()
		switch {
		case errors.Is(err, io.EOF) && !halfCharacter(data):
			return document, nil
		case errors.Is(err, io.EOF):
			err = errors.New("it escapes half of a surrogate pair")
		default:
			err = errors.New("something follows the document")
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("The body is not one JSON document: %w.", err) //nolint:revive,staticcheck // shown to clients as it is
}

var escapes = regexp.MustCompile(`\\(?i:ud[89ab]..\\ud[c-f]..|ud[89a-f]..|.)`)

// halfCharacter reports whether JSON escapes half a surrogate pair (RFC 8259, 8.2), which the decoder would replace.
func halfCharacter(document []byte) bool {
	for _, escape := range escapes.FindAll(document, -1) {
		if len(escape) == len(`\ud800`) {
			return true
		}
	}
	return false
}

func parseValue(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		return parseInside(decoder, token)
	case json.Number:
		return plainInteger(token), nil
	case nil:
		return nullValue{}, nil
	default:
		return token, nil
	}
}

func parseInside(decoder *json.Decoder, begin json.Delim) (any, error) {
	object, array := map[string]any{}, []any{}
	for decoder.More() {
		name := ""
		if begin == '{' {
			token, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			name, _ = token.(string) // the decoder lets nothing else be a name
		}
		value, err := parseValue(decoder)
		if err != nil {
			return nil, err
		}
		array = append(array, value)
		if _, there := object[name]; there {
			value = repeatedMember{}
		}
		object[name] = value
	}
	_, err := decoder.Token()
	if begin == '{' {
		return object, err
	}
	return array, err
}

const maxDigits = 18 // of an integer that plainInteger writes out: 18 fit into an int64, and any amount in them

// plainInteger makes 1000 of 1e3 or 1000.0, as some languages send it, by the digits: a float64 rounds
// 1000.00000000000001. A fraction becomes a fractionValue. More than maxDigits digits stay, and huma names the bound.
func plainInteger(number json.Number) any {
	text := number.String()
	if !strings.ContainsAny(text, ".eE") {
		return number
	}
	unsigned, negative := strings.CutPrefix(text, "-")
	mantissa, exponent := cutExponent(unsigned)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction // the number is these digits, times 10 to the power of exponent - len(fraction)
	digits := strings.TrimRight(all, "0")
	zeros := exponent - len(fraction) + len(all) - len(digits)
	digits = strings.TrimLeft(digits, "0")
	switch {
	case digits == "":
		return json.Number("0")
	case zeros < 0:
		return fractionValue{}
	case len(digits)+zeros > maxDigits:
		return number
	case negative:
		digits = "-" + digits
	}
	return json.Number(digits + strings.Repeat("0", zeros))
}

const exponentBits = 31 // of an exponent: its sum with the length of a body is an int on every machine

// cutExponent splits an unsigned number; exponents out of bounds become the nearest: no body's mantissa outweighs it.
func cutExponent(unsigned string) (mantissa string, exponent int) {
	at := strings.IndexAny(unsigned, "eE")
	if at < 0 {
		return unsigned, 0
	}
	bounded, _ := strconv.ParseInt(unsigned[at+1:], 10, exponentBits) // with its error it returns the bound
	return unsigned[:at], int(bounded)
}

const maxParameters = 10_000 // as net/url: of a longer query it reads none

func queryNames(op *huma.Operation) []string {
	var names []string
	for _, parameter := range op.Parameters {
		if parameter.In == "query" {
			names = append(names, parameter.Name)
		}
	}
	return names
}

// readableQuery refuses a query in which net/url drops one of these names: a filter is meant. Others are ignored.
func readableQuery(raw string, names []string) error {
	if _, err := url.ParseQuery(raw); err == nil || len(names) == 0 {
		return nil
	}
	if strings.Count(raw, "&") >= maxParameters {
		return model.Invalid("query", "has too many parameters")
	}
	for pair := range strings.SplitSeq(raw, "&") {
		if _, err := url.ParseQuery(pair); err == nil {
			continue
		}
		for part := range strings.SplitSeq(pair, ";") {
			name, _, _ := strings.Cut(part, "=")
			if name, err := url.QueryUnescape(name); err == nil && slices.Contains(names, name) {
				return model.Invalid("query",
					"%s cannot be read: it has a semicolon, or a percent sign that escapes nothing", name)
			}
		}
	}
	return nil
}
