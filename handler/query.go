package handler

import (
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"seckill/model"
)

// maxParameters is how many parameters net/url reads; of a longer query it reads none.
const maxParameters = 10_000

// queryNames are the query parameters that a route knows.
func queryNames(op *huma.Operation) []string {
	var names []string
	for _, parameter := range op.Parameters {
		if parameter.In == "query" {
			names = append(names, parameter.Name)
		}
	}
	return names
}

// readableQuery refuses a query in which a parameter of the route cannot be read. net/url
// drops such a parameter without a word, and a client that asks for its paid orders would
// get all of them. An unknown parameter is ignored, whatever it looks like.
func readableQuery(raw string, names []string) error {
	if raw == "" || len(names) == 0 {
		return nil
	}
	if _, err := url.ParseQuery(raw); err == nil {
		return nil
	}
	if strings.Count(raw, "&") >= maxParameters {
		return model.Invalid("query", "has too many parameters")
	}
	for pair := range strings.SplitSeq(raw, "&") {
		if _, err := url.ParseQuery(pair); err == nil {
			continue
		}
		if name := knownName(pair, names); name != "" {
			return model.Invalid("query", "%s cannot be read: it has a semicolon, or a percent sign that escapes nothing", name)
		}
	}
	return nil
}

// knownName finds a parameter of the route in a pair that cannot be read; empty: there is
// none. It looks behind semicolons, too, because some clients separate parameters by them.
func knownName(pair string, names []string) string {
	for part := range strings.SplitSeq(pair, ";") {
		name, _, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(name); err == nil && slices.Contains(names, name) {
			return name
		}
	}
	return ""
}
