package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"seckill/internal/redact"
)

const maxCertificates = 1 << 20 // bytes: several times those of every public authority

// TLS says how the servers of one kind are spoken to over TLS, and as whom. The zero TLS leaves that to their URLs.
type TLS struct {
	CA         string // file with the authorities' certificates, PEM; empty: the system's
	Cert, Key  string // files with the certificate that this service shows and its key, PEM; empty: none
	ServerName string // in the servers' certificates; empty: the host of each address

	client *tls.Config
}

// Client is what a client is made with, or nil of the zero TLS. Renewed certificates need no restart.
func (t TLS) Client() *tls.Config { return t.client }

func (t TLS) given() bool { return t != TLS{} }

// tlsOf are the settings of TLS, by how their variables begin.
func tlsOf(c *Config) map[string]*TLS {
	return map[string]*TLS{
		"SECKILL_DATABASE_TLS_": &c.DatabaseTLS, "SECKILL_REDIS_TLS_": &c.RedisTLS, "SECKILL_NATS_TLS_": &c.NATSTLS,
	}
}

// fileName refuses the content of a file in the place of its name.
func fileName(text string) (string, error) {
	if strings.ContainsAny(text, "\r\n") || strings.Contains(text, "-----") {
		return "", errors.New("is not the name of a file")
	}
	return anyText(text)
}

// readTLS makes the clients' configurations, and finds what is wrong about them.
func (r *reader) readTLS(c *Config) {
	for prefix, tls := range tlsOf(c) {
		r.buildTLS(prefix, tls)
	}
	for variable, name := range map[string]string{
		"SECKILL_NATS_CREDENTIALS": c.NATSCredentials, "SECKILL_NATS_NKEY": c.NATSNKey,
	} {
		text, err := readAtMost(name, maxFile)
		if name != "" && (err != nil || len(text) == 0) {
			r.problem(variable, cmp.Or(err, errors.New(name+" is empty")).Error())
		}
	}
	r.refuseTLS(*c)
}

func (r *reader) buildTLS(prefix string, t *TLS) {
	if !t.given() {
		return
	}
	client := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		client.RootCAs = x509.NewCertPool()
		if text, err := readAtMost(t.CA, maxCertificates); err != nil {
			r.problem(prefix+"CA", err.Error())
		} else if !client.RootCAs.AppendCertsFromPEM(text) {
			r.problem(prefix+"CA", "names a file without a certificate in PEM")
		}
	}
	r.refuse(t.Cert != "" && t.Key == "", prefix+"CERT", "is set without "+prefix+"KEY")
	r.refuse(t.Cert == "" && t.Key != "", prefix+"KEY", "is set without "+prefix+"CERT")
	if t.Cert != "" && t.Key != "" {
		files := *t
		client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return files.pair() }
		if _, err := t.pair(); err != nil {
			r.problem(prefix+"CERT", "and "+prefix+"KEY cannot be used together: "+err.Error())
		}
	}
	t.client = client
}

func (t TLS) pair() (*tls.Certificate, error) {
	cert, err := readAtMost(t.Cert, maxCertificates)
	if err != nil {
		return nil, err
	}
	key, err := readAtMost(t.Key, maxCertificates)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	return &pair, err
}

// secretFiles are the lines of the files that hold keys, and a name that is no file's: it may be the secret itself.
func (r *reader) secretFiles() []string {
	const least = 20 // bytes, shorter than any line of a key but its last one
	var found []string
	for _, variable := range []string{
		"SECKILL_DATABASE_TLS_KEY", "SECKILL_REDIS_TLS_KEY", "SECKILL_NATS_TLS_KEY", "SECKILL_NATS_CREDENTIALS",
		"SECKILL_NATS_NKEY",
	} {
		name := r.environment[variable]
		if name == "" {
			continue
		}
		text, err := readAtMost(name, maxCertificates)
		if err != nil && !filepath.IsAbs(name) {
			found = append(found, name)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); len(line) >= least && !strings.HasPrefix(line, "---") {
				found = append(found, line)
			}
		}
	}
	return found
}

// refuseTLS finds identities that no server would see, and URLs that contradict. Unreadable URLs count as absent.
func (r *reader) refuseTLS(c Config) {
	if c.DatabaseTLS.given() {
		mode := dsnOption(c.DatabaseDSN, "tls")
		r.refuse(!c.given("SECKILL_DATABASE_DSN"), "SECKILL_DATABASE_DSN",
			"is required with SECKILL_DATABASE_TLS_…: the embedded database has no server")
		r.refuse(mode != "" && mode != "true", "SECKILL_DATABASE_DSN",
			"has the option tls="+mode+", and SECKILL_DATABASE_TLS_… asks for TLS that is verified")
	}
	if c.RedisTLS.given() {
		r.refuse(!c.given("SECKILL_REDIS_URL") && !c.given("SECKILL_LOCK_REDIS_URLS"), "SECKILL_REDIS_URL",
			"is required with SECKILL_REDIS_TLS_…: the embedded Redis has no listener")
		r.refusePlainRedis("SECKILL_REDIS_URL", []string{c.RedisURL}) // the URLs of a list agree
		r.refusePlainRedis("SECKILL_LOCK_REDIS_URLS", c.LockRedisURLs)
	}
	identity := c.NATSCredentials != "" || c.NATSNKey != ""
	r.refuse((c.NATSTLS.given() || identity) && !c.given("SECKILL_NATS_URL"), "SECKILL_NATS_URL",
		"is required with SECKILL_NATS_TLS_…, SECKILL_NATS_CREDENTIALS and SECKILL_NATS_NKEY: "+
			"the embedded queue has no listener")
	r.refuse(c.NATSCredentials != "" && c.NATSNKey != "", "SECKILL_NATS_NKEY",
		"is set, and SECKILL_NATS_CREDENTIALS too: set one of them")
	r.refuse(identity && strings.Contains(c.NATSURL, "@"), "SECKILL_NATS_URL",
		"names a user or a token, and SECKILL_NATS_CREDENTIALS or SECKILL_NATS_NKEY another one: set one of them")
}

// refusePlainRedis finds URLs that would make the settings of TLS do nothing.
func (r *reader) refusePlainRedis(variable string, urls []string) {
	for _, text := range urls {
		secured := text == "" || strings.HasPrefix(strings.TrimSpace(text), "rediss")
		r.refuse(!secured, variable,
			"names a server in plain text (redis://), and SECKILL_REDIS_TLS_… is set: write rediss://")
		r.refuse(secured && strings.Contains(text, "skip_verify"), variable,
			"has the option skip_verify, and SECKILL_REDIS_TLS_… asks for TLS that is verified")
	}
}

// sessionVariable is the name of a server's variable; the server refuses an unknown one at the connection.
var sessionVariable = regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)+$`)

// dsnOptionsKnown are the options of go-sql-driver and the values that a DSN may give them: any where there is none.
// The service sets what has one value or "-". Old ways to send a password are asked for by name.
func dsnOptionsKnown() map[string]string {
	return map[string]string{
		"tls":                     "true false skip-verify preferred",
		"allowCleartextPasswords": "", "allowFallbackToPlaintext": "", "allowNativePasswords": "",
		"allowOldPasswords": "", "compress": "", "connectionAttributes": "", "maxAllowedPacket": "",
		"allowAllFiles": "false 0", "checkConnLiveness": "true 1", "clientFoundRows": "true 1",
		"interpolateParams": "true 1", "multiStatements": "false 0", "parseTime": "true 1", "rejectReadOnly": "true 1",
		"charset": "utf8mb4", "collation": "utf8mb4_bin", "loc": "UTC",
		"readTimeout": "-", "timeout": "-", "timeTruncate": "-", "writeTimeout": "-", "innodb_lock_wait_timeout": "-",
		"idle_readonly_transaction_timeout": "-", "idle_write_transaction_timeout": "-", "sql_mode": "-",
		"time_zone": "-", "transaction_isolation": "-", "tx_isolation": "-",
	}
}

// dsnOptions refuses an option that does nothing: unknown or decided here. It shows known names: others may be secret.
func dsnOptions(text string) error {
	known := dsnOptionsKnown()
	for n, option := range dsnParts(text) {
		name, value, _ := strings.Cut(option, "=")
		allowed, is := known[name]
		switch {
		case !is && !sessionVariable.MatchString(name), allowed == "" && value == "":
			return errors.New("has an option that is not known: number " + strconv.Itoa(n+1) + " behind the ?")
		case allowed == "-":
			return errors.New("has the option " + name + ", which the service decides")
		case allowed != "" && !slices.Contains(strings.Fields(strings.ToLower(allowed)), strings.ToLower(value)):
			return errors.New("has the option " + name + ", which must be one of: " + allowed)
		}
	}
	return nil
}

// dsnOption is the value of an option in a DSN, or nothing.
func dsnOption(text, name string) string {
	for _, option := range dsnParts(text) {
		if value, found := strings.CutPrefix(option, name+"="); found {
			return value
		}
	}
	return ""
}

func dsnParts(text string) []string {
	_, options, has := strings.Cut(text[strings.LastIndexByte(text, '/')+1:], "?")
	if !has {
		return nil
	}
	return strings.Split(options, "&")
}

const standardPrefix = "OTEL_" // https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/

// Tracing is what the service decides by OpenTelemetry's variables; the library itself reads where spans go.
type Tracing struct {
	On          bool
	Ratio       float64 // the share of requests that belong to no trace yet which is traced, from 0 to 1
	ParentBased bool    // a request which is traced already, or is not to be, stays so
}

const usualRatio = 0.01 // one request in a hundred: enough to see where the time of a sale goes, and too few to be felt

const (
	tracesEndpoint   = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesSampler    = "OTEL_TRACES_SAMPLER"
	tracesSamplerArg = "OTEL_TRACES_SAMPLER_ARG"
)

// readTracing reads the variables that would otherwise be wrong without a word.
func (r *reader) readTracing() (t Tracing) {
	of := r.standard
	if of[tracesEndpoint] == "" || strings.EqualFold(of["OTEL_SDK_DISABLED"], "true") ||
		of["OTEL_TRACES_EXPORTER"] == "none" {
		return Tracing{}
	}
	for _, variable := range []string{tracesEndpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		_, ok := webURL(of[variable])
		r.refuse(of[variable] != "" && !ok, variable,
			"is not http://host:port or https://host:port (credentials belong into OTEL_EXPORTER_OTLP_HEADERS)")
	}
	for _, only := range []struct{ variable, value string }{
		{"OTEL_TRACES_EXPORTER", "otlp"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"},
	} {
		r.refuse(of[only.variable] != "" && of[only.variable] != only.value, only.variable,
			"is not "+only.value+", which is all that the service speaks")
	}
	t = Tracing{On: true, Ratio: usualRatio, ParentBased: true}
	sampler := of[tracesSampler]
	simple, based := strings.CutPrefix(sampler, "parentbased_")
	switch {
	case sampler == "":
		return t
	case simple == "always_on":
		t.Ratio = 1
	case simple == "always_off":
		t.Ratio = 0
	case simple == "traceidratio" && based: // alone, each client would choose, with its trace id, what is traced
		var err error
		t.Ratio, err = strconv.ParseFloat(cmp.Or(of[tracesSamplerArg], "1"), 64) // 1 as the specification has it
		if err != nil || !(t.Ratio >= 0 && t.Ratio <= 1) {
			r.problem(tracesSamplerArg, "is not a ratio from 0 to 1")
		}
	default:
		r.problem(tracesSampler,
			"is not always_on, always_off, or one of these behind parentbased_, or parentbased_traceidratio")
	}
	t.ParentBased = based
	return t
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
