package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// What stands in a decoded document where JSON has something that no field of
// ours accepts. encoding/json alone would take both for an absent field or
// let the last one win, and two programs that read one request differently
// are how things go wrong.
type (
	nullValue      struct{}
	repeatedMember struct{}
)

// maxExactInteger is the largest integer that a float64 holds exactly; all
// amounts are bounded far below it.
const maxExactInteger = 1 << 53

// jsonFormat is how huma reads and writes bodies.
func jsonFormat() huma.Format {
	return huma.Format{Marshal: writeJSON, Unmarshal: readJSON}
}

// writeJSON fails when a value cannot be written as JSON, which is a bug. A client
// that is gone is no bug: such an error of w is dropped, because huma would make
// a panic of it.
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

// halfCharacter reports whether valid JSON escapes a surrogate without its
// other half. That is no character (RFC 8259, 8.2), and the decoder would put
// another one in its place.
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

// plainInteger rewrites 1e3 and 1000.0, which are integers in JSON and what
// some languages write for them, as the 1000 that Go decodes into an int64.
func plainInteger(number json.Number) json.Number {
	if !strings.ContainsAny(number.String(), ".eE") {
		return number
	}
	f, err := number.Float64()
	if err != nil || f < -maxExactInteger || f > maxExactInteger || f != float64(int64(f)) {
		return number
	}
	return json.Number(strconv.FormatInt(int64(f), 10))
}
