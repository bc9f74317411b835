// Package config reads the settings of the service from the environment. It alone does, and the environment is handed
// to it, so that a test can hand it anything. The table of README.md says of every setting its variable, default,
// unit and meaning; flags and the output of `seckill config` are made from it. table.go has the parsers.
package config

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"seckill/internal/budget"
	"seckill/internal/redisurl"
	"seckill/internal/token"
	"seckill/model"
)

// Config holds the settings, checked. Its String and LogValue show no secret.
type Config struct {
	HTTPAddr       string // main listener, host:port
	OpsAddr        string // operations listener, host:port
	TrustedProxies []netip.Prefix
	DataDir        string
	DrainGrace     time.Duration // from the signal to stop until no more connections are taken

	DatabaseDSN string          // of go-sql-driver; empty: SQLite in DataDir
	RedisURL    string          // as internal/redisurl reads it; empty: embedded
	RedisLimits redisurl.Limits // of SECKILL_REDIS_URL
	Migrate     bool

	OrderMode     model.OrderMode
	Role          Role
	NATSURL       string // comma-separated; empty: embedded; used in async
	Events        string // stream of events for other systems; empty: none
	NATSReplicas  int
	BacklogMaxAge time.Duration

	DatabaseTLS, RedisTLS, NATSTLS TLS    // how the servers are spoken to, and as whom; see tls.go
	NATSCredentials                string // file of a user's credentials; empty: none
	NATSNKey                       string // file of a user's seed; empty: none

	LockMode      model.LockMode
	LockRedisURLs []string
	LockWait      time.Duration // zero: try once
	LockLease     time.Duration
	LockSynced    int // replicas; AllReplicas: those that are connected
	StockStrategy model.StockStrategy

	PaymentWindow        time.Duration
	PaymentURL           string // of a provider; empty: the simulator, or none
	PaymentReturnURL     string // of the shop, to which the provider sends buyers back; empty: to none
	PaymentSimulator     bool
	PaymentSimulatorAddr string // its listener, host:port
	WebhookSecrets       []string
	CodeKey              string // empty: generated and kept in DataDir when embedded
	Currency             string // ISO 4217

	JWTKeys     []token.Key // empty: generated and kept in DataDir
	JWTIssuer   string
	JWTAudience string
	JWTIssuers  []token.Issuer // others, beside JWTIssuer

	RateUser model.Rate // on what one user writes
	RateAddr model.Rate // on every route, per client address

	CORSOrigins []string // of pages whose scripts may call the API
	Console     bool     // serve the console in the browser

	LogLevel  slog.Level
	LogFormat LogFormat // empty: text on a terminal, else json

	Tracing Tracing

	origins map[string]origin // by variable
}

// origin is where the value of a setting came from, and how it was written.
type origin struct {
	text     string
	source   Source
	variable string // in which the operator wrote it
}

// given reports whether a setting has a value, even a broken one.
func (c Config) given(variable string) bool { return c.origins[variable].source != SourceDefault }

// Embedded reports whether the service runs on its own SQLite file instead of a real database.
func (c Config) Embedded() bool { return c.DatabaseDSN == "" }

// Payments reports whether orders can be paid, or were to be.
func (c Config) Payments() bool {
	return c.PaymentSimulator || c.PaymentURL != "" || len(c.WebhookSecrets) > 0
}

// Async reports whether orders reach the database through the queue.
func (c Config) Async() bool { return c.OrderMode == model.ModeAsync }

// EmbeddedQueue reports whether the queue is inside the service's process.
func (c Config) EmbeddedQueue() bool { return c.Async() && c.NATSURL == "" }

// LacksForSeveral names the settings without which a real database has one instance; SQLite has a claim for it.
func (c Config) LacksForSeveral() string {
	switch queue := c.EmbeddedQueue(); {
	case c.Embedded(), c.RedisURL != "" && !queue:
		return ""
	case c.RedisURL != "":
		return "SECKILL_NATS_URL"
	case !queue:
		return "SECKILL_REDIS_URL"
	default:
		return "SECKILL_REDIS_URL and SECKILL_NATS_URL"
	}
}

// WithoutDatabase is how long an instance is ready without it: in async it sells on for a while, as in a failover.
func (c Config) WithoutDatabase() time.Duration {
	if c.Async() && c.Role != RoleWorker {
		return min(c.BacklogMaxAge, budget.Answer)
	}
	return 0
}

// String shows that there are settings and nothing of them: they contain secrets. See Settings for what may be shown.
func (Config) String() string { return "config.Config (not shown, it contains secrets)" }

// GoString keeps %#v from showing secrets.
func (c Config) GoString() string { return c.String() }

// LogValue keeps a log from showing secrets.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Role is what an instance does.
type Role string

// The roles.
const (
	RoleAll    Role = "all"
	RoleAPI    Role = "api"    // serves, and consumes no orders
	RoleWorker Role = "worker" // consumes, and serves only its health
)

// AllReplicas is, for LockSynced, as many as are connected.
const AllReplicas = -1

// LogFormat is how log records are written.
type LogFormat string

// The log formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Option changes how settings are read.
type Option func(*reader)

// Flags gives values named on the command line, by variable. They win over the environment; an empty one is absent.
func Flags(values map[string]string) Option { return func(r *reader) { r.flags = values } }

// WithoutTokens is for commands without tokens, such as a migration: SECKILL_JWT_SECRET may be absent there.
func WithoutTokens() Option { return func(r *reader) { r.withoutTokens = true } }

// Load reads the settings from an environment like os.Environ's. The *Error names every problem at once.
func Load(environ []string, options ...Option) (Config, error) {
	r := newReader(environ)
	for _, option := range options {
		option(r)
	}
	var c Config
	c.origins = make(map[string]origin)
	for _, s := range table(&c) {
		o := r.lookUp(s)
		c.origins[s.variable] = o
		if o.text == "" {
			continue
		}
		if err := s.read(o.text); err != nil {
			r.problem(o.variable, err.Error())
		}
	}
	if !c.given("SECKILL_PAYMENT_SIMULATOR") {
		c.PaymentSimulator = !c.given("SECKILL_DATABASE_DSN") && !c.given("SECKILL_PAYMENT_URL")
	}
	if !c.given("SECKILL_CONSOLE") {
		c.Console = !c.given("SECKILL_DATABASE_DSN")
	}
	if !c.given("SECKILL_DRAIN_GRACE") && c.given("SECKILL_DATABASE_DSN") {
		c.DrainGrace = 5 * budget.Look // load balancers that ask every second have left the instance out by then
	}
	r.refuseUnknown()
	r.readTLS(&c)
	r.refuseContradictions(c)
	c.Tracing = r.readTracing()
	if len(r.problems) > 0 {
		slices.SortFunc(r.problems, func(a, b Problem) int {
			return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Text, b.Text))
		})
		return Config{}, &Error{Problems: r.problems}
	}
	return c, nil
}
