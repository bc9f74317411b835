package config_test

import (
	"errors"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/redact"
	"seckill/internal/workshop/check"
)

func TestTracing(t *testing.T) {
	t.Parallel()
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	usual := config.Tracing{On: true, Ratio: 0.01, ParentBased: true}
	with := func(ratio float64) config.Tracing { return config.Tracing{On: true, Ratio: ratio, ParentBased: true} }
	for name, test := range map[string]struct {
		environ []string
		want    config.Tracing
		wrong   string // the variable
	}{
		"nothing":            {nil, config.Tracing{}, ""},
		"off, whatever else": {[]string{"OTEL_TRACES_SAMPLER=odd", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT="}, config.Tracing{}, ""},
		"usual":              {[]string{endpoint}, usual, ""},
		"disabled":           {[]string{endpoint, "OTEL_SDK_DISABLED=TRUE"}, config.Tracing{}, ""},
		"no exporter":        {[]string{endpoint, "OTEL_TRACES_EXPORTER=none"}, config.Tracing{}, ""},
		"another exporter":   {[]string{endpoint, "OTEL_TRACES_EXPORTER=zipkin"}, config.Tracing{}, "OTEL_TRACES_EXPORTER"},
		"protobuf":           {[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"}, usual, ""},
		"gRPC":               {[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, config.Tracing{}, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		"all":                {[]string{endpoint, "OTEL_TRACES_SAMPLER=always_on"}, config.Tracing{On: true, Ratio: 1}, ""},
		"none":               {[]string{endpoint, "OTEL_TRACES_SAMPLER=parentbased_always_off"}, with(0), ""},
		"a tenth":            {[]string{endpoint, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG= 0.1 "}, with(0.1), ""},
		"the standard's":     {[]string{endpoint, "OTEL_TRACES_SAMPLER=parentbased_traceidratio"}, with(1), ""},
		"more than all":      {[]string{endpoint, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=1.1"}, config.Tracing{}, "OTEL_TRACES_SAMPLER_ARG"},
		"no number":          {[]string{endpoint, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=NaN"}, config.Tracing{}, "OTEL_TRACES_SAMPLER_ARG"},
		"as a client likes":  {[]string{endpoint, "OTEL_TRACES_SAMPLER=traceidratio"}, config.Tracing{}, "OTEL_TRACES_SAMPLER"},
		"unknown":            {[]string{endpoint, "OTEL_TRACES_SAMPLER=odd"}, config.Tracing{}, "OTEL_TRACES_SAMPLER"},
		"no URL":             {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:4318"}, config.Tracing{}, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		"a password":         {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://app:hunter22@a:4318"}, config.Tracing{}, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		"another address":    {[]string{endpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=a"}, config.Tracing{}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
	} {
		c, err := config.Load(test.environ)
		if test.wrong == "" {
			check.Must(t, err)
			check.Equal(t, name, c.Tracing, test.want)
			continue
		}
		wrong, ok := errors.AsType[*config.Error](err)
		if !ok || len(wrong.Problems) != 1 || wrong.Problems[0].Variable != test.wrong || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %v, want a problem with %s", name, err, test.wrong)
		}
	}
}

func TestHeadersOfExportsAreSecret(t *testing.T) {
	t.Parallel()
	secrets := redact.New(config.Secrets([]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318",
		"OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20YXBwOmh1bnRlcjI%3D, x-key=hunter2-of-one,odd-hunter2",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS=x-other=hunter2%2Fof%2Fothers",
	})...)
	for _, text := range []string{"YXBwOmh1bnRlcjI=", "Basic YXBwOmh1bnRlcjI=", "hunter2-of-one", "odd-hunter2", "hunter2/of/others", "hunter2%2Fof%2Fothers"} {
		if got := secrets.Text(text); got != redact.Mark {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
	check.Equal(t, "the collector's address", secrets.Text("http://collector:4318/v1/traces"), "http://collector:4318/v1/traces")
}
