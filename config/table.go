package config

import (
	_ "embed" // README.md
	"fmt"
	"net"
	"slices"
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
		"SECKILL_ORDER_MODE":    into(&c.OrderMode, oneOf(model.ModeSync, model.ModeAsync)),
		"SECKILL_ROLE":          into(&c.Role, oneOf(RoleAll, RoleAPI, RoleWorker)),
		"SECKILL_NATS_URL":      into(&c.NATSURL, natsURLs),
		"SECKILL_NATS_REPLICAS": into(&c.NATSReplicas, wholeNumber(1, 5)),
		"SECKILL_EVENTS":        into(&c.Events, streamName),
		"SECKILL_MIGRATE":       into(&c.Migrate, boolean),
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
