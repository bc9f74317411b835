package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"

	"seckill/model"
)

// maxBody bounds a request's body, in bytes: the contract's 16 KiB.
const maxBody = 16 << 10

// readBody reads the body of a request. It runs after the token was checked, so that
// the bodies of strangers take no memory, and before the body is parsed: 413 comes
// before 415, and both before 422. On routes that take a body it must be JSON, also
// without a Content-Type.
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
		p := problemOf(model.Invalid("body", "The body did not arrive whole."))
		p.Status = http.StatusBadRequest
		a.write(c, p)
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

// Marks in a decoded document, in the place of a null, of a member that is given twice
// and of a number that is no integer. No field accepts them. encoding/json alone would
// take a null for an absent field, and the last of two members, where a proxy may take
// the first; huma would round the number.
type (
	nullValue      struct{}
	repeatedMember struct{}
	fractionValue  struct{}
)

// jsonFormat is how huma reads and writes bodies.
func jsonFormat() huma.Format {
	return huma.Format{Marshal: writeJSON, Unmarshal: readJSON}
}

// writeJSON fails when a value cannot be written as JSON, which is a bug. It drops
// the error of a client that is gone, because huma would make a panic of it.
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

// readJSON decodes one JSON document. A pointer to any gets it with the marks
// above for huma's validation; anything else gets its typed value.
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

// halfCharacter reports whether valid JSON escapes a surrogate without its other
// half. That is no character (RFC 8259, 8.2), and the decoder would replace it.
func halfCharacter(document []byte) bool {
	half := false // the escape just before was a first half
	for i := 0; i < len(document); {
		unit, length := escape(document[i:])
		second := 0xdc00 <= unit && unit <= 0xdfff
		if half != second {
			return true
		}
		half = 0xd800 <= unit && unit <= 0xdbff
		i += length
	}
	return false
}

// escape reads what valid JSON begins with: the UTF-16 code unit of a \u, or
// anything else, whose unit is 0.
func escape(document []byte) (unit uint64, length int) {
	switch {
	case document[0] != '\\':
		return 0, 1
	case document[1] != 'u':
		return 0, 2
	}
	unit, _ = strconv.ParseUint(string(document[2:6]), 16, 16) // the decoder has seen the digits
	return unit, 6
}

func parseValue(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return parseObject(decoder)
		}
		return parseArray(decoder)
	case json.Number:
		return plainInteger(token), nil
	case nil:
		return nullValue{}, nil
	default:
		return token, nil
	}
}

func parseObject(decoder *json.Decoder) (any, error) {
	object := map[string]any{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		value, err := parseValue(decoder)
		if err != nil {
			return nil, err
		}
		key, _ := name.(string) // the decoder lets nothing else be a name
		if _, there := object[key]; there {
			value = repeatedMember{}
		}
		object[key] = value
	}
	_, err := decoder.Token()
	return object, err
}

func parseArray(decoder *json.Decoder) (any, error) {
	array := []any{}
	for decoder.More() {
		value, err := parseValue(decoder)
		if err != nil {
			return nil, err
		}
		array = append(array, value)
	}
	_, err := decoder.Token()
	return array, err
}
