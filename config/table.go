package config

import (
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

// table is every setting, in the order in which people see them. Parsers of secrets never repeat what they were given.
func table(c *Config) []setting {
	return append([]setting{
		{
			variable: "SECKILL_HTTP_ADDR", fallback: ":8080", unit: "host:port",
			meaning: "main listener: the API and the health checks",
			read:    into(&c.HTTPAddr, address),
		}, {
			variable: "SECKILL_OPS_ADDR", fallback: "127.0.0.1:8081", unit: "host:port",
			meaning: "operations listener: metrics and pprof, not for the public",
			read:    into(&c.OpsAddr, address),
		}, {
			variable: "SECKILL_TRUSTED_PROXIES", otherwise: "none", unit: "CIDRs, comma-separated",
			meaning: "proxies whose forwarding headers are believed",
			read:    into(&c.TrustedProxies, list(proxyNetwork)),
		}, {
			variable: "SECKILL_DRAIN_GRACE", otherwise: "`5s`, `0s` when embedded", unit: "duration",
			meaning: "how long an instance that is told to stop serves on, not ready and closing connections, so that load balancers notice: longer than their checks take to leave it out",
			read:    into(&c.DrainGrace, durationFrom(0, "no grace is shorter than none")),
		}, {
			variable: "SECKILL_DATA_DIR", fallback: "./data", unit: "path",
			meaning: "where embedded mode keeps its files",
			read:    into(&c.DataDir, anyText),
		}, {
			variable: "SECKILL_DATABASE_DSN", otherwise: "embedded SQLite", unit: "DSN of go-sql-driver",
			meaning: "MySQL 8 or MariaDB 10.6+: `user:password@tcp(host:3306)/name`; needs no parameters. " +
				"It has one address: a proxy stands before several servers",
			secret: redact.DSN, read: into(&c.DatabaseDSN, dsn),
		}, {
			variable: "SECKILL_REDIS_URL", otherwise: "embedded Redis", unit: "URL",
			meaning: "`redis://…`; a comma-separated list, or `redis+cluster://host`, is a Redis Cluster; `redis+sentinel://user:pass@h1,h2,h3/primary/0`",
			secret:  redact.Addresses, read: into(&c.RedisURL, redisURLs),
		}, {
			variable: "SECKILL_REDIS_POOL_SIZE", otherwise: "32 for each processor", unit: "connections",
			meaning: "to each server of SECKILL_REDIS_URL, 1 to 10000; when they are too few, calls wait for one and fail after " +
				"SECKILL_REDIS_TIMEOUT. `?pool_size=` in any Redis URL wins",
			read: into(&c.RedisLimits.PoolSize, wholeNumber(1, redisurl.MaxPoolSize)),
		}, {
			variable: "SECKILL_REDIS_TIMEOUT", fallback: "2s", unit: "duration",
			meaning: "how long one answer of Redis, or a free connection, is waited for, at least `10ms`; when it is too short, slow answers " +
				"become 503 and locks are asked for twice. `?timeout=` in any Redis URL wins",
			read: into(&c.RedisLimits.Timeout, durationFrom(redisurl.MinTimeout,
				"an answer over a network needs as long on a bad day")),
		}, {
			variable: "SECKILL_ORDER_MODE", fallback: "sync", unit: "`sync` or `async`",
			meaning: "how orders reach the database: in the request, or through a durable queue",
			read:    into(&c.OrderMode, oneOf(model.ModeSync, model.ModeAsync)),
		}, {
			variable: "SECKILL_ROLE", fallback: "all", unit: "`all`, `api` or `worker`",
			meaning: "what this instance does: everything, serve, or consume",
			read:    into(&c.Role, oneOf(RoleAll, RoleAPI, RoleWorker)),
		}, {
			variable: "SECKILL_NATS_URL", otherwise: "embedded JetStream server", unit: "URLs, comma-separated",
			meaning: "the queue of `async`; not used in `sync`",
			secret:  redact.Addresses, read: into(&c.NATSURL, natsURLs),
		}, {
			variable: "SECKILL_NATS_REPLICAS", fallback: "1", unit: "servers",
			meaning: "copies the queue keeps of every message, 1 to 5; used in `async`",
			read:    into(&c.NATSReplicas, wholeNumber(1, 5)),
		}, {
			variable: "SECKILL_EVENTS", otherwise: "none", unit: "name of a stream",
			meaning: "every change of an order or a voucher is published as a CloudEvent to this JetStream stream of SECKILL_NATS_URL",
			read:    into(&c.Events, streamName),
		}, {
			variable: "SECKILL_MIGRATE", fallback: "on", unit: "`on` or `off`",
			meaning: "apply schema migrations at start",
			read:    into(&c.Migrate, boolean),
		}, {
			variable: "SECKILL_BACKLOG_MAX_AGE", fallback: "30s", unit: "duration",
			meaning: "a voucher whose oldest queued order is older than this takes no new ones (503); used in `async`",
			read:    into(&c.BacklogMaxAge, durationFrom(time.Millisecond, "a shorter age refuses every order")),
		}, {
			variable: "SECKILL_LOCK_MODE", fallback: "redis",
			unit:    "`redis`, `multilock`, `redlock`, `setnx`, `mysql` or `none`",
			meaning: "the lock of a user during a purchase; `redis` is re-entrant and shared with Redisson",
			read: into(&c.LockMode, oneOf(model.LockRedis, model.LockMultilock, model.LockRedlock, model.LockSetNX,
				model.LockMySQL, model.LockNone)),
		}, {
			variable: "SECKILL_LOCK_REDIS_URLS", otherwise: "none", unit: "URLs, comma-separated",
			meaning: "the independent instances of `multilock` (three) and `redlock` (an odd number)",
			secret:  redact.Addresses, read: into(&c.LockRedisURLs, list(redisURL)),
		}, {
			variable: "SECKILL_LOCK_WAIT", fallback: "1s", unit: "duration",
			meaning: "how long a request waits for the user's lock; `0s` tries once",
			read:    into(&c.LockWait, durationFrom(0, "no wait is shorter than none")),
		}, {
			variable: "SECKILL_LOCK_LEASE", fallback: "30s", unit: "duration",
			meaning: "how long a lock outlives its holder's process, at least `100ms`; renewed while the holder lives",
			read: into(&c.LockLease, durationFrom(100*time.Millisecond,
				"a lease must outlast several round trips and three renewals")),
		}, {
			variable: "SECKILL_LOCK_SYNCED", fallback: "all", unit: "`all` or replicas",
			meaning: "replicas of its Redis that must have a lock before it counts, so that a promotion does not forget it: those that are connected, or a number; " +
				"`0` waits for none. With a number that are not there no lock is given",
			read: into(&c.LockSynced, replicas),
		}, {
			variable: "SECKILL_STOCK_STRATEGY", fallback: "conditional",
			unit:    "`conditional`, `pessimistic` or `optimistic`",
			meaning: "how stock is taken: a guarded UPDATE, `SELECT … FOR UPDATE`, or a version column",
			read: into(&c.StockStrategy, oneOf(model.StockConditional, model.StockPessimistic,
				model.StockOptimistic)),
		}, {
			variable: "SECKILL_PAYMENT_WINDOW", fallback: "15m", unit: "duration",
			meaning: "unpaid orders expire after this",
			read:    into(&c.PaymentWindow, durationFrom(time.Second, "nobody pays faster")),
		}, {
			variable: "SECKILL_PAYMENT_SIMULATOR", otherwise: "`on` when embedded, else `off`", unit: "`on` or `off`",
			meaning: "the built-in payment provider for trying out: no real money moves",
			read:    into(&c.PaymentSimulator, boolean),
		}, {
			variable: "SECKILL_PAYMENT_SIMULATOR_ADDR", fallback: "127.0.0.1:0", unit: "host:port",
			meaning: "its listener, with the pages on which buyers pay; port 0 is a free one",
			read:    into(&c.PaymentSimulatorAddr, address),
		}, {
			variable: "SECKILL_PAYMENT_URL", otherwise: "none", unit: "URL",
			meaning: "a payment provider elsewhere, such as another instance's simulator, which knows the first webhook secret",
			read:    into(&c.PaymentURL, providerURL),
		}, {
			variable: "SECKILL_PAYMENT_RETURN_URL", otherwise: "none", unit: "URL",
			meaning: "the page of the shop to which the payment provider sends buyers back; `{order_id}` in it stands for the order's",
			read:    into(&c.PaymentReturnURL, returnURL),
		}, {
			variable: "SECKILL_WEBHOOK_SECRETS", otherwise: "none: webhooks are refused",
			unit:    "secrets, comma-separated",
			meaning: "secrets of the payment provider's webhooks, each of at least 24 bytes, `whsec_<base64>` or plain (base64 without `whsec_` is read in both ways); all verify, and the first signs the simulator's",
			secret:  hide, read: into(&c.WebhookSecrets, list(webhookSecret)),
		}, {
			variable: "SECKILL_CODE_KEY", otherwise: "generated and kept in the data dir when embedded",
			unit:    "secret of at least 32 bytes",
			meaning: "seals the codes with which paid vouchers are used, and finds them; required with a real database once payments are configured",
			secret:  hide, read: into(&c.CodeKey, strongSecret),
		}, {
			variable: "SECKILL_CURRENCY", fallback: "CNY", unit: "ISO 4217 code",
			meaning: "the currency of every price",
			read:    into(&c.Currency, currency),
		}, {
			variable: "SECKILL_JWT_SECRET", otherwise: "generated and kept in the data dir when embedded",
			unit: "secret of at least 32 bytes, or `kid=secret,…`",
			meaning: "signs and verifies tokens (HS256), required with a real database but for workers; " +
				"of several the first signs and all verify",
			secret: showKeys, read: into(&c.JWTKeys, keys),
		}, {
			variable: "SECKILL_JWT_ISSUER", fallback: "seckill", unit: "text",
			meaning: "the `iss` that tokens must have",
			read:    into(&c.JWTIssuer, anyText),
		}, {
			variable: "SECKILL_JWT_AUDIENCE", fallback: "seckill", unit: "text",
			meaning: "the `aud` that tokens must have",
			read:    into(&c.JWTAudience, anyText),
		}, {
			variable: "SECKILL_JWT_JWKS_URL", otherwise: "none", unit: "`issuer=url` or `issuer=file`, comma-separated",
			meaning: "public keys (JWKS) of other issuers, whose tokens (RS, PS and ES 256, 384 and 512, EdDSA) name users, and " +
				"administrators only where it says `issuer!=url`; by https, or http from this machine. Options behind the place, " +
				"each after a `;`: `aud=account` (instead of `SECKILL_JWT_AUDIENCE`; several with `+`), `role=realm_access.roles`, " +
				"`groups=groups` (dotted paths to a text or a list)",
			read: into(&c.JWTIssuers, issuers),
		}, {
			variable: "SECKILL_RATE_USER", fallback: "20/s", unit: "requests per `s`, `m` or `h`",
			meaning: "limit on what one user writes (purchases, cancellations, places, payments), shared by the instances; `0` is off",
			read:    into(&c.RateUser, model.ParseRate),
		}, {
			variable: "SECKILL_RATE_ADDR", fallback: "1000/s", unit: "requests per `s`, `m` or `h`",
			meaning: "limit on every route per client address (IPv6: /64), shared by the instances; `0` is off",
			read:    into(&c.RateAddr, model.ParseRate),
		}, {
			variable: "SECKILL_CORS_ORIGINS", otherwise: "none", unit: "origins, comma-separated",
			meaning: "pages of these origins, such as `https://shop.example`, may call the API from browsers",
			read:    into(&c.CORSOrigins, list(pageOrigin)),
		}, {
			variable: "SECKILL_CONSOLE", otherwise: "`on` when embedded, else `off`", unit: "`on` or `off`",
			meaning: "the console in the browser, `/console` on the main listener, for administrators with an account",
			read:    into(&c.Console, boolean),
		}, {
			variable: "SECKILL_LOG_LEVEL", fallback: "info", unit: "`debug`, `info`, `warn` or `error`",
			meaning: "the least important records that are logged",
			read:    into(&c.LogLevel, level),
		}, {
			variable: "SECKILL_LOG_FORMAT", otherwise: "text on a terminal, else json", unit: "`text` or `json`",
			meaning: "how records are written",
			read:    into(&c.LogFormat, oneOf(LogText, LogJSON)),
		},
	}, tlsSettings(c)...)
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
