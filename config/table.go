package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	_ "embed" // README.md
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"seckill/internal/redact"
	"seckill/internal/redisurl"
	"seckill/model"
)

type setting struct {
	variable  string
	fallback  string // the default as it would be written, or nothing
	otherwise string // in words: what having no value means
	unit      string
	meaning   string
	secret    func(string) string // how to show it; nil: it is no secret
	read      func(string) error  // parses into the Config
}

// table is every setting, in the order of README.md. Parsers of secrets never repeat what they were given.
func table(c *Config) []setting {
	parsers := map[string]func(string) error{
		"SECKILL_HTTP_ADDR":       into(&c.HTTPAddr, address),
		"SECKILL_OPS_ADDR":        into(&c.OpsAddr, address),
		"SECKILL_TRUSTED_PROXIES": into(&c.TrustedProxies, list(proxyNetwork)),
		"SECKILL_DRAIN_GRACE":     into(&c.DrainGrace, durationFrom(0, "no grace is shorter than none")),
		"SECKILL_DATA_DIR":        into(&c.DataDir, anyText),
		"SECKILL_DATABASE_DSN":    into(&c.DatabaseDSN, dsn),
		"SECKILL_REDIS_URL":       into(&c.RedisURL, redisURLs),
		"SECKILL_REDIS_POOL_SIZE": into(&c.RedisLimits.PoolSize, wholeNumber(1, redisurl.MaxPoolSize)),
		"SECKILL_REDIS_TIMEOUT": into(&c.RedisLimits.Timeout,
			durationFrom(redisurl.MinTimeout, "an answer over a network needs as long on a bad day")),
		"SECKILL_ORDER_MODE":     into(&c.OrderMode, oneOf(model.ModeSync, model.ModeAsync)),
		"SECKILL_ROLE":           into(&c.Role, oneOf(RoleAll, RoleAPI, RoleWorker)),
		"SECKILL_NATS_URL":       into(&c.NATSURL, natsURLs),
		"SECKILL_NATS_REPLICAS":  into(&c.NATSReplicas, wholeNumber(1, 5)),
		"SECKILL_EVENTS":         into(&c.Events, streamName),
		"SECKILL_EVENTS_URLS":    into(&c.EventsURLs, list(receiverURL)),
		"SECKILL_EVENTS_SECRET":  into(&c.EventsSecret, webhookSecret),
		"SECKILL_EVENTS_PRIVATE": into(&c.EventsPrivate, boolean),
		"SECKILL_MIGRATE":        into(&c.Migrate, boolean),
		"SECKILL_BACKLOG_MAX_AGE": into(&c.BacklogMaxAge,
			durationFrom(time.Millisecond, "a shorter age refuses every order")),
		"SECKILL_LOCK_MODE": into(&c.LockMode,
			oneOf(model.LockRedis, model.LockMultilock, model.LockRedlock, model.LockSetNX, model.LockMySQL, model.LockNone)),
		"SECKILL_LOCK_REDIS_URLS": into(&c.LockRedisURLs, list(redisURL)),
		"SECKILL_LOCK_WAIT":       into(&c.LockWait, durationFrom(0, "no wait is shorter than none")),
		"SECKILL_LOCK_LEASE": into(&c.LockLease,
			durationFrom(100*time.Millisecond, "a lease must outlast several round trips and three renewals")),
		"SECKILL_LOCK_SYNCED": into(&c.LockSynced, replicas),
		"SECKILL_STOCK_STRATEGY": into(&c.StockStrategy,
			oneOf(model.StockConditional, model.StockPessimistic, model.StockOptimistic)),
		"SECKILL_PAYMENT_WINDOW":         into(&c.PaymentWindow, durationFrom(time.Second, "nobody pays faster")),
		"SECKILL_PAYMENT_SIMULATOR":      into(&c.PaymentSimulator, boolean),
		"SECKILL_PAYMENT_SIMULATOR_ADDR": into(&c.PaymentSimulatorAddr, address),
		"SECKILL_PAYMENT_URL":            into(&c.PaymentURL, providerURL),
		"SECKILL_PAYMENT_RETURN_URL":     into(&c.PaymentReturnURL, returnURL),
		"SECKILL_WEBHOOK_SECRETS":        into(&c.WebhookSecrets, list(webhookSecret)),
		"SECKILL_CODE_KEY":               into(&c.CodeKey, strongSecret),
		"SECKILL_CURRENCY":               into(&c.Currency, currency),
		"SECKILL_JWT_SECRET":             into(&c.JWTKeys, keys),
		"SECKILL_JWT_ISSUER":             into(&c.JWTIssuer, anyText),
		"SECKILL_JWT_AUDIENCE":           into(&c.JWTAudience, anyText),
		"SECKILL_JWT_JWKS_URL":           into(&c.JWTIssuers, issuers),
		"SECKILL_RATE_USER":              into(&c.RateUser, model.ParseRate),
		"SECKILL_RATE_ADDR":              into(&c.RateAddr, model.ParseRate),
		"SECKILL_CORS_ORIGINS":           into(&c.CORSOrigins, list(pageOrigin)),
		"SECKILL_CONSOLE":                into(&c.Console, boolean),
		"SECKILL_LOG_LEVEL":              into(&c.LogLevel, level),
		"SECKILL_LOG_FORMAT":             into(&c.LogFormat, oneOf(LogText, LogJSON)),

		"SECKILL_NATS_CREDENTIALS": into(&c.NATSCredentials, fileName),
		"SECKILL_NATS_NKEY":        into(&c.NATSNKey, fileName),
	}
	for prefix, tls := range tlsOf(c) {
		parsers[prefix+"CA"], parsers[prefix+"CERT"] = into(&tls.CA, fileName), into(&tls.Cert, fileName)
		parsers[prefix+"KEY"] = into(&tls.Key, fileName)
		parsers[prefix+"SERVER_NAME"] = into(&tls.ServerName, anyText)
	}
	secrets := map[string]func(string) string{
		"SECKILL_DATABASE_DSN":    redact.DSN,
		"SECKILL_REDIS_URL":       redact.Addresses,
		"SECKILL_NATS_URL":        redact.Addresses,
		"SECKILL_LOCK_REDIS_URLS": redact.Addresses,
		"SECKILL_WEBHOOK_SECRETS": hide,
		"SECKILL_CODE_KEY":        hide,
		"SECKILL_EVENTS_SECRET":   hide,
		"SECKILL_JWT_SECRET":      showKeys,
	}
	all := documented()
	for i, s := range all {
		all[i].read, all[i].secret = parsers[s.variable], secrets[s.variable]
	}
	if len(all) != len(parsers) || slices.ContainsFunc(all, func(s setting) bool { return s.read == nil }) {
		panic("README.md lists other settings than there are")
	}
	return all
}

//go:embed README.md
var readme string

// Markdown is the table of settings for documents, of README.md.
func Markdown() string {
	_, rest, _ := strings.Cut(readme, "<!-- settings: the service reads this table -->\n")
	text, _, _ := strings.Cut(rest, "<!-- end of settings -->")
	return text
}

// documented are the rows of the table, each with a variable, a default, a unit and a meaning.
func documented() (all []setting) {
	_, rows, _ := strings.Cut(Markdown(), "|---|---|---|---|\n")
	for row := range strings.Lines(rows) {
		cells := strings.Split(strings.Trim(row, "| \n"), " | ")
		s := setting{variable: strings.Split(cells[0], "`")[1], otherwise: cells[1], unit: cells[2], meaning: cells[3]}
		if value := strings.Trim(s.otherwise, "`"); s.otherwise == "`"+value+"`" && !strings.Contains(value, "`") {
			s.fallback, s.otherwise = value, ""
		}
		all = append(all, s)
	}
	return all
}

func into[T any](target *T, parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		value, err := parse(text)
		if err != nil {
			return err
		}
		*target = value
		return nil
	}
}

// refuseContradictions finds settings that are wrong together. One that could not be read counts as absent.
func (r *reader) refuseContradictions(c Config) {
	realDatabase := c.given("SECKILL_DATABASE_DSN") // even a broken one is meant
	verifies := c.Role != RoleWorker && !r.withoutTokens
	r.refuse(realDatabase && !c.given("SECKILL_JWT_SECRET") && verifies, "SECKILL_JWT_SECRET",
		"is required with a real database, for example from openssl rand -base64 32")
	for _, other := range c.JWTIssuers {
		r.refuse(other.Name == c.JWTIssuer, "SECKILL_JWT_JWKS_URL",
			fmt.Sprintf("names the issuer %q, which is SECKILL_JWT_ISSUER, the service itself", other.Name))
	}
	r.refuse(!realDatabase && c.StockStrategy == model.StockPessimistic, "SECKILL_STOCK_STRATEGY",
		"is pessimistic, and the embedded SQLite has no row locks: "+
			"choose conditional or optimistic, or set SECKILL_DATABASE_DSN")
	r.refuse(!realDatabase && c.LockMode == model.LockMySQL, "SECKILL_LOCK_MODE",
		"is mysql, which needs SECKILL_DATABASE_DSN")
	r.refuse(c.Async() && !c.given("SECKILL_NATS_URL") && c.NATSReplicas > 1, "SECKILL_NATS_REPLICAS",
		"asks for several servers, and the embedded queue is one: set SECKILL_NATS_URL")
	r.refuse(c.Events != "" && !c.given("SECKILL_NATS_URL"), "SECKILL_EVENTS",
		"names a stream of a NATS server: set SECKILL_NATS_URL")
	plain := slices.ContainsFunc(c.EventsURLs, func(url string) bool { return strings.HasPrefix(url, "http:") })
	r.refuse(plain && !c.EventsPrivate, "SECKILL_EVENTS_URLS",
		"has a URL of http: events go over https unless SECKILL_EVENTS_PRIVATE is on")
	receivers := slices.Compact(slices.Sorted(slices.Values(c.EventsURLs)))
	r.refuse(len(receivers) != len(c.EventsURLs), "SECKILL_EVENTS_URLS", "has a URL twice")
	r.refuse(len(receivers) > 0 && !c.given("SECKILL_EVENTS_SECRET") && !r.withoutTokens, "SECKILL_EVENTS_SECRET",
		"is required with SECKILL_EVENTS_URLS: receivers know by it that events are ours, "+
			"for example whsec_ and behind it openssl rand -base64 32")
	r.refuseQuorum(c)
	r.refuseLonelyRole(c)
	r.refusePayments(c, realDatabase)
	r.refuse(overlap(c.HTTPAddr, c.OpsAddr), "SECKILL_OPS_ADDR",
		"("+c.OpsAddr+") is the same listener as SECKILL_HTTP_ADDR ("+c.HTTPAddr+")")
}

func (r *reader) refusePayments(c Config, realDatabase bool) {
	r.refuse(realDatabase && c.Payments() && !c.given("SECKILL_CODE_KEY") && !r.withoutTokens, "SECKILL_CODE_KEY",
		"is required with a real database once payments are configured, "+
			"for example from openssl rand -base64 32: who pays gets a code, which it seals")
	r.refuse(c.PaymentURL != "" && c.PaymentSimulator, "SECKILL_PAYMENT_SIMULATOR",
		"is on, and SECKILL_PAYMENT_URL names another provider: there is one")
	r.refuse(c.PaymentURL != "" && !c.given("SECKILL_WEBHOOK_SECRETS"), "SECKILL_WEBHOOK_SECRETS",
		"is required with SECKILL_PAYMENT_URL: without it no payment would ever be heard of")
}

// refuseLonelyRole finds instances that share the work of async with others, and name nothing that they could share.
func (r *reader) refuseLonelyRole(c Config) {
	if !c.Async() || c.Role == RoleAll {
		return
	}
	for _, needed := range []struct{ variable, inside string }{
		{"SECKILL_DATABASE_DSN", "database"}, {"SECKILL_REDIS_URL", "Redis"}, {"SECKILL_NATS_URL", "queue"},
	} {
		r.refuse(!c.given(needed.variable), needed.variable, // even a broken one is meant
			"is required for the role "+string(c.Role)+" in async: an embedded "+needed.inside+
				" is inside one process, where no other instance reaches it")
	}
}

// refuseQuorum holds the locks that need several independent instances to the numbers for which their promises hold.
func (r *reader) refuseQuorum(c Config) {
	const variable = "SECKILL_LOCK_REDIS_URLS"
	if c.given(variable) && c.LockRedisURLs == nil {
		return // it could not be read
	}
	n := len(c.LockRedisURLs)
	r.refuse(c.LockMode == model.LockMultilock && n != 3, variable,
		"must name exactly three instances for the lock mode multilock")
	r.refuse(c.LockMode == model.LockRedlock && (n < 3 || n%2 == 0), variable,
		"must name an odd number of instances, at least three, for the lock mode redlock")
	different := slices.Compact(slices.Sorted(slices.Values(c.LockRedisURLs)))
	r.refuse(len(different) != n, variable, "names one instance twice: they must be independent")
}

func overlap(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || strings.Trim(portA, "0") == "" {
		return false
	}
	wildcard := func(host string) bool {
		ip := net.ParseIP(host)
		return host == "" || ip != nil && ip.IsUnspecified()
	}
	return hostA == hostB || wildcard(hostA) || wildcard(hostB)
}

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
