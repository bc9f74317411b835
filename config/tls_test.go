package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"seckill/config"
	"seckill/internal/redact"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

const realDatabase = "SECKILL_DATABASE_DSN=root:hunter2@tcp(db:3306)/shop"

func TestTLSIsReadFromFiles(t *testing.T) {
	t.Parallel()
	files := testserver.NewCertificates(t, "db.test")
	c := load(t, realDatabase, "SECKILL_JWT_SECRET="+secret,
		"SECKILL_DATABASE_TLS_CA="+files.CA, "SECKILL_DATABASE_TLS_CERT="+files.ClientCert,
		"SECKILL_DATABASE_TLS_KEY="+files.ClientKey,
		"SECKILL_DATABASE_TLS_SERVER_NAME=db.test")
	client := c.DatabaseTLS.Client()
	check.Need(t, client != nil && client.ServerName == "db.test" && client.RootCAs != nil,
		"the client has %+v", client)
	before := check.Value(client.GetClientCertificate(nil))(t)
	renewed := testserver.NewCertificates(t, "db.test")
	check.Must(t, os.Rename(renewed.ClientCert, files.ClientCert))
	check.Must(t, os.Rename(renewed.ClientKey, files.ClientKey))
	after := check.Value(client.GetClientCertificate(nil))(t)
	check.That(t, !slices.Equal(before.Certificate[0], after.Certificate[0]), "a renewed certificate is not shown")
	check.That(t, c.RedisTLS.Client() == nil && c.NATSTLS.Client() == nil,
		"settings of the database have changed how Redis or NATS is spoken to")
}

func TestWrongTLS(t *testing.T) {
	t.Parallel()
	files, other := testserver.NewCertificates(t, "a"), testserver.NewCertificates(t, "b")
	seed := filepath.Join(t.TempDir(), "seed")
	check.Must(t, os.WriteFile(seed, []byte("SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4\n"), 0o600))
	database := []string{realDatabase, "SECKILL_JWT_SECRET=" + secret}
	nats := []string{"SECKILL_NATS_URL=nats://a:4222"}
	for name, test := range map[string]struct {
		set  []string
		want string // the variable
		says string
	}{
		"no such file":           {append(database, "SECKILL_DATABASE_TLS_CA=/nowhere/ca.pem"), "SECKILL_DATABASE_TLS_CA", "/nowhere/ca.pem"},
		"no certificate":         {append(database, "SECKILL_DATABASE_TLS_CA="+files.Key), "SECKILL_DATABASE_TLS_CA", "without a certificate"},
		"no key":                 {append(database, "SECKILL_DATABASE_TLS_CERT="+files.ClientCert), "SECKILL_DATABASE_TLS_CERT", "without SECKILL_DATABASE_TLS_KEY"},
		"no certificate for it":  {append(nats, "SECKILL_NATS_TLS_KEY="+files.ClientKey), "SECKILL_NATS_TLS_KEY", "without"},
		"another's key":          {append(nats, "SECKILL_NATS_TLS_CERT="+files.ClientCert, "SECKILL_NATS_TLS_KEY="+other.ClientKey), "SECKILL_NATS_TLS_CERT", "does not match"},
		"the key itself":         {append(nats, "SECKILL_NATS_TLS_KEY=-----BEGIN PRIVATE KEY-----hunter2"), "SECKILL_NATS_TLS_KEY", "not the name of a file"},
		"the seed itself":        {append(nats, "SECKILL_NATS_NKEY=hunter2hunter2hunter2"), "SECKILL_NATS_NKEY", "is not shown"},
		"two identities":         {append(nats, "SECKILL_NATS_NKEY="+seed, "SECKILL_NATS_CREDENTIALS="+seed), "SECKILL_NATS_NKEY", "one of them"},
		"a user and an nkey":     {[]string{"SECKILL_NATS_URL=nats://u:hunter2@a:4222", "SECKILL_NATS_NKEY=" + seed}, "SECKILL_NATS_URL", "one of them"},
		"an embedded database":   {[]string{"SECKILL_DATABASE_TLS_CA=" + files.CA}, "SECKILL_DATABASE_DSN", "is required"},
		"an embedded Redis":      {[]string{"SECKILL_REDIS_TLS_CA=" + files.CA}, "SECKILL_REDIS_URL", "is required"},
		"an embedded queue":      {[]string{"SECKILL_NATS_TLS_CA=" + files.CA}, "SECKILL_NATS_URL", "is required"},
		"an nkey for nobody":     {[]string{"SECKILL_NATS_NKEY=" + seed}, "SECKILL_NATS_URL", "is required"},
		"Redis in plain text":    {[]string{"SECKILL_REDIS_TLS_CA=" + files.CA, "SECKILL_REDIS_URL=redis://a"}, "SECKILL_REDIS_URL", "rediss://"},
		"a lock in plain text":   {[]string{"SECKILL_REDIS_TLS_CA=" + files.CA, "SECKILL_LOCK_REDIS_URLS=rediss://a,redis://b"}, "SECKILL_LOCK_REDIS_URLS", "rediss://"},
		"Redis, not verified":    {[]string{"SECKILL_REDIS_TLS_CA=" + files.CA, "SECKILL_REDIS_URL=rediss://a?skip_verify=true"}, "SECKILL_REDIS_URL", "skip_verify"},
		"database, not verified": {append([]string{realDatabase + "?tls=preferred", "SECKILL_JWT_SECRET=" + secret}, "SECKILL_DATABASE_TLS_CA="+files.CA), "SECKILL_DATABASE_DSN", "tls=preferred"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			variables, message := refused(t, test.set...)
			check.That(t, slices.Equal(variables, []string{test.want}) && strings.Contains(message, test.says),
				"want %s with %q: %s", test.want, test.says, message)
			check.That(t, !strings.Contains(message, "hunter2"), "a secret is shown: %s", message)
		})
	}
}

// An option that is not known, or that the service decides, is refused and not dropped.
func TestNoOptionIsDropped(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{
		"DATABASE_DSN=u@tcp(a)/s?parsetime=true", "DATABASE_DSN=u@tcp(a)/s?readTimeout=9s",
		"DATABASE_DSN=u@tcp(a)/s?loc=Local",
		"DATABASE_DSN=u@tcp(a)/s?multiStatements=true", "DATABASE_DSN=u@tcp(a)/s?charset=latin1",
		"DATABASE_DSN=u@tcp(a)/s?time_zone=SYSTEM",
		"DATABASE_DSN=u@tcp(a)/s?compress", "DATABASE_DSN=u@tcp(a)/s?tls=custom", "DATABASE_DSN=u@tcp(a)/s?",
		"DATABASE_DSN=u@tcp(a)/s?parseTime=true&&tls=true",
		"REDIS_URL=redis://a:1?pools=9", "REDIS_URL=redis://a:1/0?db=3", "REDIS_URL=redis://a:1?skip_verify=true",
		"REDIS_URL=rediss://a:1?skip_verify=maybe",
		"REDIS_URL=redis://a:1#b", "REDIS_URL=redis://a:1?%zz", "LOCK_REDIS_URLS=redis://a?x=y",
		"LOCK_REDIS_URLS=rediss://a?skip_verify=true&skip_verify=false",
		"NATS_URL=nats://a:4222?tls=true", "NATS_URL=nats://a:4222/seckill", "NATS_URL=nats://a:4222#x",
	} {
		name, _, _ := strings.Cut(wrong, "=")
		variables, message := refused(t, "SECKILL_"+wrong, "SECKILL_JWT_SECRET="+secret)
		check.That(t, slices.Contains(variables, "SECKILL_"+name), "%s: %s", wrong, message)
	}
	for _, right := range []string{
		"DATABASE_DSN=u@tcp(a)/s?parseTime=true&charset=utf8mb4&loc=UTC&tls=true",
		"DATABASE_DSN=u@tcp(a)/s?tls=skip-verify&allowNativePasswords=false",
		"DATABASE_DSN=u@tcp(a)/s?wsrep_sync_wait=1&lock_wait_timeout=9",
		"DATABASE_DSN=u@tcp(a)/s?multiStatements=0&maxAllowedPacket=0",
		"REDIS_URL=rediss://a:1/0?skip_verify=true", "NATS_URL=tls://a:4222/",
	} {
		_, err := config.Load([]string{"SECKILL_" + right, "SECKILL_JWT_SECRET=" + secret})
		check.That(t, err == nil, "%s: %v", right, err)
	}
}

// What the files hold is a secret too, wherever a library would quote it.
func TestSecretsOfFiles(t *testing.T) {
	t.Parallel()
	files := testserver.NewCertificates(t, "a")
	content := string(check.Value(os.ReadFile(files.ClientKey))(t))
	line := strings.Split(content, "\n")[1]
	secrets := redact.New(config.Secrets([]string{
		"SECKILL_NATS_TLS_KEY=" + files.ClientKey,
		"SECKILL_NATS_NKEY=SUthisIsTheSeedItself",
	})...)
	text := secrets.Text("read " + content + " SUthisIsTheSeedItself")
	check.That(t, !strings.Contains(text, line) && !strings.Contains(text, "SUthis"), "a secret is left: %s", text)
}

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
		if !ok || len(wrong.Problems) != 1 || wrong.Problems[0].Variable != test.wrong ||
			strings.Contains(err.Error(), "hunter22") {
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
		got := secrets.Text(text)
		check.That(t, got == redact.Mark, "%q is shown as %q", text, got)
	}
	check.Equal(t, "the collector's address", secrets.Text("http://collector:4318/v1/traces"),
		"http://collector:4318/v1/traces")
}
