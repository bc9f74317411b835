package config

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"seckill/internal/redact"
)

// standardPrefix opens the names of OpenTelemetry's own variables, whose meaning its specification fixes:
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
const standardPrefix = "OTEL_"

// Tracing is what the service decides by OpenTelemetry's variables. Where spans go, and with which headers, is read
// by the library itself.
type Tracing struct {
	On bool
	// Ratio of the requests that belong to no trace yet is traced, from 0 to 1.
	Ratio float64
	// ParentBased says that a request which is traced already, or is not to be, stays so.
	ParentBased bool
}

// usualRatio traces one request in a hundred: enough to see where the time of a sale goes, and too few to be felt.
const usualRatio = 0.01

const (
	tracesEndpoint   = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesSampler    = "OTEL_TRACES_SAMPLER"
	tracesSamplerArg = "OTEL_TRACES_SAMPLER_ARG"
)

// readTracing reads the variables that would otherwise be wrong without a word.
func (r *reader) readTracing() (t Tracing) {
	of := r.standard
	if of[tracesEndpoint] == "" || strings.EqualFold(of["OTEL_SDK_DISABLED"], "true") || of["OTEL_TRACES_EXPORTER"] == "none" {
		return Tracing{}
	}
	for _, variable := range []string{tracesEndpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		if u, err := url.Parse(of[variable]); of[variable] != "" &&
			(err != nil || u.Host == "" || u.User != nil || !slices.Contains([]string{"http", "https"}, u.Scheme)) {
			r.problem(variable, "is not http://host:port or https://host:port (credentials belong into OTEL_EXPORTER_OTLP_HEADERS)")
		}
	}
	for _, only := range []struct{ variable, value string }{
		{"OTEL_TRACES_EXPORTER", "otlp"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"},
	} {
		if value := of[only.variable]; value != "" && value != only.value {
			r.problem(only.variable, "is not "+only.value+", which is all that the service speaks")
		}
	}
	t = Tracing{On: true, Ratio: usualRatio, ParentBased: true}
	switch of[tracesSampler] {
	case "":
	case "always_on", "parentbased_always_on":
		t.Ratio = 1
	case "always_off", "parentbased_always_off":
		t.Ratio = 0
	case "parentbased_traceidratio":
		t.Ratio = r.tracesRatio()
	case "traceidratio":
		r.problem(tracesSampler, "is traceidratio, by which each client would choose, with its trace id, what is traced: set parentbased_traceidratio")
	default:
		r.problem(tracesSampler, "is not always_on, always_off, or one of these behind parentbased_, or parentbased_traceidratio")
	}
	t.ParentBased = !strings.HasPrefix(of[tracesSampler], "always_")
	return t
}

// tracesRatio is 1 where none is given, as the specification has it.
func (r *reader) tracesRatio() float64 {
	text := r.standard[tracesSamplerArg]
	if text == "" {
		return 1
	}
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		r.problem(tracesSamplerArg, "is not a ratio from 0 to 1")
	}
	return ratio
}

// tracingSecrets are those in the headers that go with every export, and in addresses.
func (r *reader) tracingSecrets() (found []string) {
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		text := r.standard[variable]
		found = append(found, text)
		for header := range strings.SplitSeq(text, ",") {
			_, value, _ := strings.Cut(header, "=")
			value = strings.TrimSpace(value)
			found = append(found, header, value)
			if meant, err := url.PathUnescape(value); err == nil {
				found = append(found, meant)
				if _, credentials, ok := strings.Cut(meant, " "); ok { // behind Basic or Bearer
					found = append(found, credentials)
				}
			}
		}
	}
	for _, variable := range []string{tracesEndpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		found = append(found, redact.OfURLs(r.standard[variable])...)
	}
	return found
}
