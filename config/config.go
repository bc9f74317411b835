// Package config reads the settings of the service from the environment. It alone does, and the environment is handed
// to it, so that a test can hand it anything. The table of README.md says of every setting its variable, default,
// unit and meaning; flags and the output of `seckill config` are made from it. table.go has the parsers.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"seckill/internal/budget"
	"seckill/internal/redact"
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
	EventsURLs    []string
	EventsSecret  string
	EventsPrivate bool // receivers may have addresses that are not public
	NATSReplicas  int
	BacklogMaxAge time.Duration

	DatabaseTLS, RedisTLS, NATSTLS TLS    // how the servers are spoken to, and as whom
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
	var lacks []string
	if !c.Embedded() && c.RedisURL == "" {
		lacks = append(lacks, "SECKILL_REDIS_URL")
	}
	if !c.Embedded() && c.EmbeddedQueue() {
		lacks = append(lacks, "SECKILL_NATS_URL")
	}
	return strings.Join(lacks, " and ")
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

const (
	prefixAll  = "SECKILL_" // opens the name of every variable of the service
	suffixFile = "_FILE"    // of the variable that names the file with a secret
	maxFile    = 64 << 10   // of a secret, in bytes: larger than any, smaller than a log named by mistake
)

const byteOrderMark = "\uFEFF" // some editors put it before a text

// Source says where a value came from.
type Source string

// The sources.
const (
	SourceDefault Source = "default"
	SourceEnv     Source = "env"
	SourceFile    Source = "file"
	SourceFlag    Source = "flag"
)

type reader struct {
	environment   map[string]string // set and not empty
	standard      map[string]string // OpenTelemetry's variables; see readTracing
	flags         map[string]string
	withoutTokens bool
	problems      []Problem
}

func newReader(environ []string) *reader {
	r := &reader{environment: make(map[string]string), standard: make(map[string]string)}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if len(name) >= len(prefixAll) && strings.EqualFold(name[:len(prefixAll)], prefixAll) {
			r.environment[name] = value // of two with one name the last counts, as everywhere
		}
		if strings.HasPrefix(name, standardPrefix) {
			r.standard[name] = strings.TrimSpace(value)
		}
	}
	for name, value := range r.environment {
		if value == "" {
			delete(r.environment, name)
		}
	}
	return r
}

// lookUp finds how a setting is written: by a flag, in the environment, in the file that it names, or by default.
func (r *reader) lookUp(s setting) origin {
	if text := r.flags[s.variable]; text != "" {
		return origin{text: text, source: SourceFlag, variable: s.variable}
	}
	text, file := r.environment[s.variable], ""
	if s.secret != nil {
		file = r.environment[s.variable+suffixFile]
	}
	o, err := origin{text: text, source: SourceEnv, variable: s.variable}, error(nil)
	switch {
	case text != "" && file != "":
		o.text, err = "", errors.New("is set, and "+s.variable+suffixFile+" too: set one of them")
	case file != "":
		o.source, o.variable = SourceFile, s.variable+suffixFile
		var content []byte
		if content, err = readAtMost(file, maxFile); err != nil {
			break
		}
		if o.text, err = oneLine(string(content)); err != nil {
			err = fmt.Errorf("%s %w", file, err)
		}
	case text == "":
		return origin{text: s.fallback, source: SourceDefault, variable: s.variable}
	case s.secret != nil:
		o.text, err = oneLine(text)
	}
	if err != nil {
		r.problem(o.variable, err.Error())
	}
	return o
}

// oneLine strips what editors, shells and Kubernetes add. A break inside is refused: a list, or a secret pasted badly.
func oneLine(text string) (string, error) {
	text = strings.TrimSpace(strings.TrimPrefix(text, byteOrderMark))
	switch {
	case text == "":
		return "", errors.New("is empty")
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", errors.New("has several lines, or another control character: write a secret in one line, " +
			"several of them with commas between")
	}
	return text, nil
}

func readAtMost(name string, most int64) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // the operator names the file
	if cause, ok := errors.AsType[*fs.PathError](err); ok && !filepath.IsAbs(name) {
		// Whoever put the secret itself here must not read it in a log.
		return nil, fmt.Errorf("names no file that can be read: %w (a path that does not begin with / is not shown)",
			cause.Err)
	}
	if err != nil {
		return nil, err // names the file
	}
	defer func() { _ = file.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("%s is larger than %d bytes, which no secret is", name, most)
	}
	return content, err
}

// refuseUnknown finds variables that look like ours and are not: a typo must not silently do nothing.
func (r *reader) refuseUnknown() {
	known := make(map[string]bool)
	for _, s := range table(new(Config)) {
		known[s.variable] = true
		if s.secret != nil {
			known[s.variable+suffixFile] = true
		}
	}
	for name, value := range r.environment {
		if known[name] || kubernetes.MatchString(name+"="+value) {
			continue
		}
		text := "is not a setting"
		if base, isFile := strings.CutSuffix(name, suffixFile); isFile && known[base] {
			text += ": only secrets are read from files; set " + base
		} else if like := nearest(strings.ToUpper(name), known); like != "" {
			text += ": did you mean " + like + "?"
		}
		r.problem(name, text)
	}
}

// kubernetes sets these for a Service "seckill…": SECKILL_SERVICE_HOST, SECKILL_PORT_80_TCP.
var kubernetes = regexp.MustCompile(`^[^=]*(_SERVICE_HOST=|_SERVICE_PORT[=_]|_PORT=.*://|_PORT_[^=]*_(TCP|UDP))`)

// nearest finds the name that a typo was meant to be, or nothing: a third of the letters after the prefix may be wrong.
func nearest(name string, known map[string]bool) string {
	best, distance := "", max(2, (len(name)-len(prefixAll))/3)+1
	for candidate := range known {
		d := edits(name, candidate)
		if d < distance || d == distance && best != "" && candidate < best {
			best, distance = candidate, d
		}
	}
	return best
}

// edits counts the letters to insert, remove or replace (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func (r *reader) problem(variable, text string) {
	p := Problem{Variable: variable, Text: text}
	if !slices.Contains(r.problems, p) {
		r.problems = append(r.problems, p)
	}
}

func (r *reader) refuse(wrong bool, variable, text string) {
	if wrong {
		r.problem(variable, text)
	}
}

// Problem is one thing that is wrong with the settings.
type Problem struct {
	Variable string
	Text     string // completes a sentence that begins with the variable
}

// Error is everything that is wrong with the settings, sorted by variable.
type Error struct {
	Problems []Problem
}

// Error implements error: one message, one line per problem.
func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString("the settings cannot be used:")
	for _, p := range e.Problems {
		text.WriteString("\n  " + p.Variable + " " + p.Text)
	}
	return text.String()
}

// Setting is one setting as people may see it.
type Setting struct {
	Variable string
	Flag     string // of the same name, without the dashes; empty for secrets
	Value    string // effective; secrets redacted
	Default  string
	Unit     string
	Meaning  string
	Secret   bool
	Source   Source
}

// Settings lists the effective settings, secrets redacted.
func (c Config) Settings() []Setting {
	var all []Setting
	for _, s := range table(new(Config)) {
		o := c.origins[s.variable]
		shown := Setting{
			Variable: s.variable, Value: cmp.Or(o.text, s.otherwise), Default: cmp.Or(s.fallback, s.otherwise),
			Unit: s.unit, Meaning: s.meaning, Secret: s.secret != nil, Source: o.source,
		}
		if !shown.Secret { // every user of the machine sees a command line
			name := strings.ToLower(strings.TrimPrefix(s.variable, prefixAll))
			shown.Flag = strings.ReplaceAll(name, "_", "-")
		} else if o.text != "" {
			shown.Value = s.secret(o.text)
		}
		all = append(all, shown)
	}
	return all
}

// Table lists every setting with its default and no value.
func Table() []Setting { return Config{}.Settings() }

const redacted = redact.Mark // shown in place of a secret wherever settings are shown

func hide(string) string { return redacted }

func showKeys(text string) string {
	parsed, err := keys(text)
	if err != nil {
		return redacted
	}
	shown := make([]string, len(parsed))
	for i, key := range parsed {
		shown[i] = key.String()
	}
	return strings.Join(shown, ",")
}

// Secrets lists what must be seen nowhere of an environment: whatever settings with secrets say, usable or not.
func Secrets(environ []string) []string {
	r := newReader(environ)
	var found []string
	for _, s := range table(new(Config)) {
		if s.secret == nil {
			continue
		}
		found = append(found, secretsIn(r.environment[s.variable])...)
		if file := r.environment[s.variable+suffixFile]; file != "" {
			text, _ := readAtMost(file, maxFile) // Load reports it
			for line := range strings.Lines(strings.TrimPrefix(string(text), byteOrderMark)) {
				found = append(found, secretsIn(strings.TrimSpace(line))...)
			}
		}
	}
	found = append(found, r.tracingSecrets()...)
	return append(found, r.secretFiles()...)
}

// secretsIn finds the secrets in any setting. What is no list of URLs is taken for all that it might be.
func secretsIn(text string) []string {
	found := redact.OfURLs(text)
	if strings.Contains(text, "://") && redact.Addresses(text) != redacted {
		return found
	}
	_, behind, _ := strings.Cut(text, ":") // all that is there of a DSN without an address
	found = append(append(found, text, behind), redact.OfDSN(text)...)
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		found = append(found, part)
		if key, ok := keyed(part); ok {
			found = append(found, key.Secret)
		}
	}
	return found
}
