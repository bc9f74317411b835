package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seckill/config"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret = "0123456789abcdef0123456789abcdef"
	dsn    = "root:hunter2@tcp(127.0.0.1:3306)/seckill"
)

func load(t *testing.T, environ ...string) config.Config {
	t.Helper()
	c := check.Value(config.Load(environ))(t)
	return c
}

func refused(t *testing.T, environ ...string) (variables []string, message string) {
	t.Helper()
	_, err := config.Load(environ)
	wrong, ok := errors.AsType[*config.Error](err)
	check.Need(t, ok, "Load(%q) = %v; want a *config.Error", environ, err)
	for _, p := range wrong.Problems {
		variables = append(variables, p.Variable)
	}
	return variables, err.Error()
}

func TestDefaultsAreTheContracts(t *testing.T) {
	t.Parallel()
	c := load(t, "PATH=/bin", "HOME=/root", "SECKILL_LOG_LEVEL=")
	check.That(t, c.Embedded() && c.DrainGrace == 0,
		"no setting at all means embedded, and nobody has to notice a stop: %s", c.DrainGrace)
	got := fmt.Sprintln(c.HTTPAddr, c.OpsAddr, c.TrustedProxies, c.DataDir, c.DatabaseDSN, c.RedisURL, c.Migrate,
		c.OrderMode, c.Role, c.NATSURL, c.NATSReplicas, c.BacklogMaxAge, c.LockMode, c.LockRedisURLs, c.LockWait,
		c.LockLease, c.StockStrategy, c.PaymentWindow, c.PaymentURL, c.PaymentReturnURL, c.PaymentSimulator,
		c.PaymentSimulatorAddr, c.WebhookSecrets, c.CodeKey, c.Currency, c.JWTKeys, c.JWTIssuer,
		c.JWTAudience, c.JWTIssuers, c.RateUser, c.RateAddr, c.LogLevel, c.LogFormat)
	want := fmt.Sprintln(":8080", "127.0.0.1:8081", "[]", "./data", "", "", true,
		"sync", "all", "", 1, "30s", "redis", "[]", "1s",
		"30s", "conditional", "15m0s", "", "", true, "127.0.0.1:0", "[]", "", "CNY", "[]", "seckill",
		"seckill", "[]", "20/s", "1000/s", "INFO", "")
	check.That(t, got == want, "defaults:\n%s\nwant\n%s", got, want)
}

func TestValues(t *testing.T) {
	t.Parallel()
	tests := []struct {
		set  string
		got  func(config.Config) any
		want any
	}{
		{"HTTP_ADDR=[::1]:0", func(c config.Config) any { return c.HTTPAddr }, "[::1]:0"},
		{
			"TRUSTED_PROXIES=10.1.2.3/8, 192.0.2.1", func(c config.Config) any { return c.TrustedProxies },
			[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32")},
		},
		{
			"CORS_ORIGINS=https://shop.example, http://127.0.0.1:3000,http://[::1]:3000",
			func(c config.Config) any { return c.CORSOrigins },
			[]string{"https://shop.example", "http://127.0.0.1:3000", "http://[::1]:3000"},
		},
		{"MIGRATE=off", func(c config.Config) any { return c.Migrate }, false},
		{"MIGRATE=0", func(c config.Config) any { return c.Migrate }, false},
		{"MIGRATE=false", func(c config.Config) any { return c.Migrate }, false},
		{"MIGRATE=on", func(c config.Config) any { return c.Migrate }, true},
		{"MIGRATE=TRUE", func(c config.Config) any { return c.Migrate }, true},
		{"MIGRATE=1", func(c config.Config) any { return c.Migrate }, true},
		{"PAYMENT_SIMULATOR=off", func(c config.Config) any { return c.PaymentSimulator }, false},
		{"CONSOLE=off", func(c config.Config) any { return c.Console }, false},
		{"LOCK_WAIT=0s", func(c config.Config) any { return c.LockWait }, time.Duration(0)},
		{"LOCK_WAIT=250ms", func(c config.Config) any { return c.LockWait }, 250 * time.Millisecond},
		{"LOCK_LEASE=100ms", func(c config.Config) any { return c.LockLease }, 100 * time.Millisecond},
		{"PAYMENT_WINDOW=1h30m", func(c config.Config) any { return c.PaymentWindow }, 90 * time.Minute},
		{"STOCK_STRATEGY=optimistic", func(c config.Config) any { return c.StockStrategy }, model.StockOptimistic},
		{"CURRENCY=EUR", func(c config.Config) any { return c.Currency }, "EUR"},
		{"RATE_USER=0", func(c config.Config) any { return c.RateUser }, model.Rate{}},
		{"RATE_USER=0/s", func(c config.Config) any { return c.RateUser }, model.Rate{}},
		{"RATE_ADDR=5/m", func(c config.Config) any { return c.RateAddr }, model.Rate{Events: 5, Per: time.Minute}},
		{"RATE_ADDR=7/h", func(c config.Config) any { return c.RateAddr }, model.Rate{Events: 7, Per: time.Hour}},
		{"LOG_LEVEL=debug", func(c config.Config) any { return c.LogLevel }, slog.LevelDebug},
		{"LOG_LEVEL=error", func(c config.Config) any { return c.LogLevel }, slog.LevelError},
		{"LOG_FORMAT=json", func(c config.Config) any { return c.LogFormat }, config.LogJSON},
		{
			"REDIS_URL=redis://a:1, redis://b:2/0", func(c config.Config) any { return c.RedisURL },
			"redis://a:1, redis://b:2/0",
		},
		{
			"REDIS_URL=redis+sentinel://a, b/shop/1", func(c config.Config) any { return c.RedisURL },
			"redis+sentinel://a, b/shop/1",
		},
		{"NATS_URL=nats://a:4222", func(c config.Config) any { return c.NATSURL }, "nats://a:4222"},
		{"NATS_REPLICAS=3", func(c config.Config) any { return c.NATSReplicas }, 3},
		{
			"JWT_JWKS_URL=https://shop.example=https://shop.example/keys?v=1, club!=http://127.0.0.1:8/k,office ! = file:///run/keys.json,b=./keys",
			func(c config.Config) any { return c.JWTIssuers },
			[]token.Issuer{
				{Name: "https://shop.example", Keys: "https://shop.example/keys?v=1"},
				{Name: "club", Keys: "http://127.0.0.1:8/k", Admins: true},
				{Name: "office", Keys: "/run/keys.json", Admins: true},
				{Name: "b", Keys: "./keys"},
			},
		},
		{
			"JWT_JWKS_URL=a!=https://a/keys;aud=account+shop-web;role=realm_access.roles;groups=cognito:groups, b=./keys ; role = https://shop.example/roles",
			func(c config.Config) any { return c.JWTIssuers },
			[]token.Issuer{
				{
					Name: "a", Keys: "https://a/keys", Admins: true, Audiences: []string{"account", "shop-web"},
					Role: "realm_access.roles", Groups: "cognito:groups",
				},
				{Name: "b", Keys: "./keys", Role: "https://shop.example/roles"},
			},
		},
		{
			"JWT_SECRET=" + secret, func(c config.Config) any { return c.JWTKeys },
			[]token.Key{{ID: "1", Secret: secret}},
		},
	}
	for _, test := range tests {
		t.Run(test.set, func(t *testing.T) {
			t.Parallel()
			if got := test.got(load(t, "SECKILL_"+test.set)); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestWrongValues(t *testing.T) {
	t.Parallel()
	for _, set := range []string{
		"HTTP_ADDR=8080", "HTTP_ADDR=:http", "HTTP_ADDR=:70000", "OPS_ADDR=:8080", "OPS_ADDR=0.0.0.0:8080",
		"TRUSTED_PROXIES=10.0.0.0/99", "TRUSTED_PROXIES=10.0.0.1,,10.0.0.2", "TRUSTED_PROXIES=all",
		"TRUSTED_PROXIES=0.0.0.0/0", "TRUSTED_PROXIES=10.0.0.1,::/0", "TRUSTED_PROXIES=128.0.0.0/1",
		"TRUSTED_PROXIES=::ffff:0:0/96", "TRUSTED_PROXIES=::/64",
		"CORS_ORIGINS=*", "CORS_ORIGINS=null", "CORS_ORIGINS=shop.example", "CORS_ORIGINS=https://*.example",
		"CORS_ORIGINS=https://shop.example/",
		"CORS_ORIGINS=https://shop.example:443", "CORS_ORIGINS=https://Shop.example",
		"CORS_ORIGINS=https://a@shop.example", "CORS_ORIGINS=ftp://shop.example",
		"CORS_ORIGINS=https://shop.example:0", "CORS_ORIGINS=https://shop.example:",
		"CORS_ORIGINS=https://café.example", "CORS_ORIGINS=https://a,,https://b", "CORS_ORIGINS=https://a?b",
		"DATA_DIR= ", "MIGRATE=yes", "ORDER_MODE=maybe", "ROLE=boss", "NATS_URL=nats", "NATS_URL=http://a:4222",
		"NATS_URL=nats://a:99999", "NATS_URL=nats://:4222", "NATS_REPLICAS=0",
		"NATS_REPLICAS=many", "BACKLOG_MAX_AGE=0s", "BACKLOG_MAX_AGE=30", "LOCK_MODE=Redis", "LOCK_WAIT=soon",
		"LOCK_WAIT=-1s", "LOCK_LEASE=0s", "LOCK_LEASE=99ms", "LOCK_LEASE=-30s", "LOCK_REDIS_URLS=redis://a:1,b",
		"STOCK_STRATEGY=pessimistic", "STOCK_STRATEGY=hope", "PAYMENT_WINDOW=0s", "PAYMENT_SIMULATOR=maybe",
		"PAYMENT_SIMULATOR_ADDR=8082", "PAYMENT_RETURN_URL=/orders/{order_id}",
		"PAYMENT_RETURN_URL=javascript:alert(1)", "PAYMENT_RETURN_URL=https://a:b@shop.example",
		"PAYMENT_RETURN_URL=https://{order_id}:x/", "WEBHOOK_SECRETS=whsec_not base64", "WEBHOOK_SECRETS=whsec_",
		"WEBHOOK_SECRETS=a,,b",
		"EVENTS_URLS=ftp://x/", "EVENTS_URLS=https://me:pw@x/", "EVENTS_URLS=https://x/#y", "EVENTS_URLS=https://ü/", "EVENTS_SECRET=x",
		"EVENTS_URLS=https://x/" + strings.Repeat("x", 512), "EVENTS_PRIVATE=maybe",
		"WEBHOOK_SECRETS=x", "WEBHOOK_SECRETS=whsec_eA==", "WEBHOOK_SECRETS=twenty-three bytes of i",
		"WEBHOOK_SECRETS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw,x",
		"WEBHOOK_SECRETS=abababababababababababababababab",
		"CODE_KEY=short", "CODE_KEY=abababababababababababababababababab",
		"CURRENCY=eur", "CURRENCY=EURO", "CURRENCY=€", "RATE_USER=20", "RATE_USER=20/d", "RATE_USER=-1/s",
		"RATE_USER=1e3/s", "RATE_USER=99999999999/s", "RATE_ADDR=off", "LOG_LEVEL=loud", "LOG_FORMAT=xml",
		"REDIS_URL=127.0.0.1:6379", "REDIS_URL=http://a", "REDIS_URL=redis://a:1/zero", "REDIS_URL=redis://",
		"REDIS_URL=redis://a:1?pools=1", "REDIS_POOL_SIZE=0", "REDIS_TIMEOUT=1ms", "LOCK_SYNCED=some", "LOCK_SYNCED=-1",
		"REDIS_URL=redis+sentinel://a", "LOCK_REDIS_URLS=redis+cluster://a",
		"REDIS_URL=redis://:12/ss@a:1", "REDIS_URL=redis://:12?ss@a:1", "NATS_URL=nats://user:12/ss@a:4222",
		"NATS_URL=nats://user:12#ss@a:4222",
		"JWT_SECRET=short", "JWT_ISSUER= ", "JWT_AUDIENCE= ", "JWT_JWKS_URL=https://a/keys", "JWT_JWKS_URL=a=",
		"JWT_JWKS_URL=!=keys",
		"JWT_JWKS_URL=a=http://shop.example/keys", "JWT_JWKS_URL=a=ftp://b/keys", "JWT_JWKS_URL=a=https:///keys",
		"JWT_JWKS_URL=a=https://user:hunter2@b/keys", "JWT_JWKS_URL=a=https://b,a!=https://c", "JWT_JWKS_URL=a=b,,c=d",
		"JWT_JWKS_URL=a=file://b/c",
		"JWT_JWKS_URL=a=b;", "JWT_JWKS_URL=a=b;aud", "JWT_JWKS_URL=a=b;aud=", "JWT_JWKS_URL=a=b;aud=x+",
		"JWT_JWKS_URL=a=b;role=", "JWT_JWKS_URL=a=b;sub=email",
		"JWT_JWKS_URL=a=b;role=x;role=y", "JWT_JWKS_URL=a=;role=x", "JWT_JWKS_URL=a=b;Role=x",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			name, _, _ := strings.Cut(set, "=")
			if variables, message := refused(t, "SECKILL_"+set); !slices.Equal(variables, []string{"SECKILL_" + name}) {
				t.Errorf("problems: %s", message)
			}
		})
	}
	for _, wrong := range []string{"root@tcp(db)", "mysql://root@db/x", "root@tcp(db)/", "root@tcp(db)/?a=b", "root@tcp(h1:3306,h2)/x"} {
		variables, message := refused(t, "SECKILL_DATABASE_DSN="+wrong, "SECKILL_JWT_SECRET="+secret)
		severally := strings.Contains(message, "wants one address, of a proxy before them")
		if !slices.Equal(variables, []string{"SECKILL_DATABASE_DSN"}) || severally != strings.Contains(wrong, ",") {
			t.Errorf("%s: %s", wrong, message)
		}
	}
}

func TestTooShortSaysWhy(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"LOCK_LEASE=99ms":    "at least 100ms, because a lease must outlast several round trips and three renewals",
		"LOCK_WAIT=-1s":      "at least 0s, because",
		"BACKLOG_MAX_AGE=0s": "at least 1ms, because",
		"PAYMENT_WINDOW=1ms": "at least 1s, because",
	} {
		_, message := refused(t, "SECKILL_"+set)
		check.That(t, strings.Contains(message, want), "%s: %s", set, message)
	}
}

func TestEveryProblemIsInOneMessage(t *testing.T) {
	t.Parallel()
	variables, message := refused(t,
		"SECKILL_ORDER_MODE=maybe", "SECKILL_LOCK_WAIT=soon", "SECKILL_DATABASE_DSN="+dsn, "SECKILL_CURENCY=EUR")
	want := []string{"SECKILL_CURENCY", "SECKILL_JWT_SECRET", "SECKILL_LOCK_WAIT", "SECKILL_ORDER_MODE"}
	check.That(t, slices.Equal(variables, want), "problems of %q, want %q, sorted:\n%s", variables, want, message)
	for _, part := range append(want, `"maybe"`, `"soon"`, "did you mean SECKILL_CURRENCY?") {
		check.That(t, strings.Contains(message, part), "the message lacks %s:\n%s", part, message)
	}
	check.That(t, !strings.Contains(message, "hunter2"), "the message tells the password")
}

func TestEveryProblemOfTheIssuersIsTold(t *testing.T) {
	t.Parallel()
	_, message := refused(t, "SECKILL_JWT_JWKS_URL=https://shop.example/keys,a=http://b/,a=https://c:hunter2@d/,e=https://f,e=https://g,h=i;hunter2=j,k=l;aud=,m=n;role=a;role=b")
	for _, part := range []string{
		"entry 1 is not issuer=url", `entry 2 has the URL "http://b/", which is neither https`, "entry 3 has a URL with a user", "entry 5 names an issuer",
		"entry 6 has an option that is not aud=, role= or groups=", "entry 7 has an option aud= with nothing behind it",
		"entry 8 has the option role= twice",
	} {
		check.That(t, strings.Contains(message, part), "the message lacks %s:\n%s", part, message)
	}
	check.That(t, !strings.Contains(message, "hunter2"), "the message tells the password:\n%s", message)
}

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	for name, suggestion := range map[string]string{
		"SECKILL_LOCKWAIT":       "did you mean SECKILL_LOCK_WAIT?",
		"SECKILL_REDIS_URLS":     "did you mean SECKILL_REDIS_URL?",
		"SECKILL_JWT_SECRET_FLE": "did you mean SECKILL_JWT_SECRET_FILE?",
		"SECKILL_CURRENCY_FILE":  "only secrets are read from files",
		"SECKILL_COFFEE_MACHINE": "is not a setting",
		"SECKILL_PORT":           "is not a setting",
		"seckill_payment_window": "did you mean SECKILL_PAYMENT_WINDOW?",
		"Seckill_Paymnt_Window":  "did you mean SECKILL_PAYMENT_WINDOW?",
	} {
		variables, message := refused(t, name+"=8080")
		check.That(t, slices.Equal(variables, []string{name}) && strings.Contains(message, suggestion),
			"%s: %s", name, message)
	}
	if _, message := refused(t, "SECKILL_COFFEE_MACHINE=on"); strings.Contains(message, "mean") {
		t.Errorf("a suggestion from nowhere: %s", message)
	}
	// Empty is unset, other programs' variables are theirs, and Kubernetes' for a Service named seckill are no typo.
	load(t, "SECKILL_TYPO=", "SECKIL_ORDER_MODE=async", "SECKILL_SERVICE_HOST=10.0.0.1", "SECKILL_SERVICE_PORT=80",
		"SECKILL_SERVICE_PORT_HTTP=80", "SECKILL_PORT=tcp://10.0.0.1:80", "SECKILL_PORT_80_TCP=tcp://10.0.0.1:80",
		"SECKILL_PORT_80_TCP_ADDR=10.0.0.1", "SECKILL_API_SERVICE_HOST=10.0.0.2")
}

// Who sells from a real database decides whether orders can be paid; who tries the service out can pay at once.
func TestWhereOrdersCanBePaid(t *testing.T) {
	t.Parallel()
	database := []string{"SECKILL_DATABASE_DSN=" + dsn, "SECKILL_JWT_SECRET=" + secret}
	key := "SECKILL_CODE_KEY=" + secret
	webhooks := "SECKILL_WEBHOOK_SECRETS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw,a plain one of thirty bytes"
	url := "SECKILL_PAYMENT_URL=http://127.0.0.1:8082"
	for name, try := range map[string]struct {
		environ             []string
		simulator, payments bool
	}{
		"embedded":                         {nil, true, true},
		"embedded, turned off":             {[]string{"SECKILL_PAYMENT_SIMULATOR=off"}, false, false},
		"embedded, with another provider":  {[]string{url, webhooks}, false, true},
		"real database":                    {database, false, false},
		"real database, and the simulator": {append([]string{"SECKILL_PAYMENT_SIMULATOR=on", key}, database...), true, true},
		"real database, and webhooks":      {append([]string{webhooks, key}, database...), false, true},
		"real database, and a provider":    {append([]string{webhooks, key, url}, database...), false, true},
	} {
		c := load(t, try.environ...)
		check.Equal(t, name+": the simulator", c.PaymentSimulator, try.simulator)
		check.Equal(t, name+": payments", c.Payments(), try.payments)
	}
	for _, environ := range [][]string{
		append([]string{"SECKILL_PAYMENT_SIMULATOR=on"}, database...), append([]string{webhooks}, database...),
		append([]string{webhooks, url}, database...),
	} {
		if variables, message := refused(t, environ...); !slices.Equal(variables, []string{"SECKILL_CODE_KEY"}) {
			t.Errorf("without a key for codes: %s", message)
		}
	}
	_, err := config.Load(append([]string{webhooks}, database...), config.WithoutTokens())
	check.That(t, err == nil, "a migration needs no key for codes: %v", err)
	if variables, message := refused(t, url); !slices.Equal(variables, []string{"SECKILL_WEBHOOK_SECRETS"}) {
		t.Errorf("a provider without webhooks: %s", message)
	}
	if variables, message := refused(t, url, webhooks, "SECKILL_PAYMENT_SIMULATOR=on"); !slices.Equal(variables,
		[]string{"SECKILL_PAYMENT_SIMULATOR"}) {
		t.Errorf("two providers: %s", message)
	}
}

func TestContradictions(t *testing.T) {
	t.Parallel()
	shared := []string{"SECKILL_DATABASE_DSN=" + dsn, "SECKILL_JWT_SECRET=" + secret, "SECKILL_REDIS_URL=redis://a:1"}
	three := "SECKILL_LOCK_REDIS_URLS=redis://a:1,redis://b:1,redis://c:1"
	tests := map[string]struct {
		environ []string
		want    string // part of the message
		not     string // no part of it
	}{
		"pessimistic on SQLite": {[]string{"SECKILL_STOCK_STRATEGY=pessimistic"}, "SECKILL_STOCK_STRATEGY", ""},
		"mysql lock on SQLite":  {[]string{"SECKILL_LOCK_MODE=mysql"}, "needs SECKILL_DATABASE_DSN", ""},
		"multilock of none":     {[]string{"SECKILL_LOCK_MODE=multilock"}, "exactly three", ""},
		"multilock of four": {
			[]string{"SECKILL_LOCK_MODE=multilock", three + ",redis://d:1"}, "exactly three", "",
		},
		"redlock of one":  {[]string{"SECKILL_LOCK_MODE=redlock", "SECKILL_LOCK_REDIS_URLS=redis://a:1"}, "odd number", ""},
		"redlock of four": {[]string{"SECKILL_LOCK_MODE=redlock", three + ",redis://d:1"}, "odd number", ""},
		"one instance twice": {
			[]string{"SECKILL_LOCK_REDIS_URLS=redis://a:1,redis://b:1,redis://a:1"}, "one instance twice", "",
		},
		"unreadable quorum is reported once": {
			[]string{"SECKILL_LOCK_MODE=redlock", "SECKILL_LOCK_REDIS_URLS=a"}, "is not a URL", "odd number",
		},
		"worker of nothing": {
			[]string{"SECKILL_ORDER_MODE=async", "SECKILL_ROLE=worker"},
			"SECKILL_NATS_URL is required for the role worker", "",
		},
		"api with a queue of its own": {
			append(slices.Clip(shared), "SECKILL_ORDER_MODE=async", "SECKILL_ROLE=api"), "SECKILL_NATS_URL is required",
			"SECKILL_REDIS_URL",
		},
		"worker with an unreadable queue": {
			// A worker has no secret of tokens either.
			[]string{shared[0], shared[2], "SECKILL_ORDER_MODE=async", "SECKILL_ROLE=worker", "SECKILL_NATS_URL=nats"},
			"is not a URL", "required",
		},
		"receivers without a secret": {[]string{"SECKILL_EVENTS_URLS=https://a/"}, "SECKILL_EVENTS_SECRET is required", ""},
		"a receiver by http":         {[]string{"SECKILL_EVENTS_URLS=http://a/"}, "SECKILL_EVENTS_PRIVATE is on", ""},
		"a receiver twice":           {[]string{"SECKILL_EVENTS_URLS=https://a/,https://a/"}, "has a URL twice", ""},
		"replicas of the embedded queue": {
			[]string{"SECKILL_ORDER_MODE=async", "SECKILL_NATS_REPLICAS=3"}, "the embedded queue is one", "",
		},
		"no secret on a real database": {[]string{"SECKILL_DATABASE_DSN=" + dsn}, "SECKILL_JWT_SECRET is required", ""},
		"ourselves as another issuer":  {[]string{"SECKILL_JWT_ISSUER=a", "SECKILL_JWT_JWKS_URL=b=https://b,a=https://a"}, `names the issuer "a", which is SECKILL_JWT_ISSUER`, ""},
		"one port twice":               {[]string{"SECKILL_HTTP_ADDR=:8081"}, "same listener", ""},
		"broken secret is not a missing one": {
			[]string{"SECKILL_DATABASE_DSN=" + dsn, "SECKILL_JWT_SECRET=x"}, "at least 32", "required",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, message := refused(t, test.environ...)
			if !strings.Contains(message, test.want) || test.not != "" && strings.Contains(message, test.not) {
				t.Errorf("want %q and not %q in:\n%s", test.want, test.not, message)
			}
		})
	}
	real := []string{"SECKILL_DATABASE_DSN=" + dsn, "SECKILL_JWT_SECRET=" + secret}
	load(t, append(real, "SECKILL_STOCK_STRATEGY=pessimistic", "SECKILL_LOCK_MODE=mysql")...)
	load(t, "SECKILL_LOCK_MODE=multilock", three)
	load(t, "SECKILL_ORDER_MODE=async")
	load(t, "SECKILL_NATS_URL=nats://a:4222", "SECKILL_NATS_REPLICAS=3") // of no use in sync, and harmless
	load(t, "SECKILL_ROLE=worker")
	for _, role := range []string{"all", "api", "worker"} {
		load(t, append(slices.Clip(shared), "SECKILL_ORDER_MODE=async", "SECKILL_NATS_URL=nats://a:4222",
			"SECKILL_ROLE="+role)...)
	}
	load(t, "SECKILL_LOCK_MODE=redlock", three+",redis://d:1,redis://e:1")
	load(t, "SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0")
	load(t, "SECKILL_HTTP_ADDR=127.0.0.2:8081")
	_, err := config.Load(real[:1], config.WithoutTokens())
	check.That(t, err == nil, "a migration needs no secret for tokens: %v", err)
}

func TestJWTSecrets(t *testing.T) {
	t.Parallel()
	other := "fedcba9876543210fedcba9876543210"
	base64 := "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=" // of 32 bytes
	double := "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIz0w=="
	for text, want := range map[string][]token.Key{
		secret:                            {{ID: "1", Secret: secret}},
		base64:                            {{ID: "1", Secret: base64}},
		double:                            {{ID: "1", Secret: double}},
		"with space, and comma " + secret: {{ID: "1", Secret: "with space, and comma " + secret}},
		"new=" + secret:                   {{ID: "new", Secret: secret}},
		"1=" + base64:                     {{ID: "1", Secret: base64}},
		"2=" + secret + ",1=" + other:     {{ID: "2", Secret: secret}, {ID: "1", Secret: other}},
		"2=" + base64 + ", 1=" + double:   {{ID: "2", Secret: base64}, {ID: "1", Secret: double}},
	} {
		got := load(t, "SECKILL_JWT_SECRET="+text).JWTKeys
		check.That(t, reflect.DeepEqual(got, want), "%s was read as %d keys: %v", text, len(got), got)
	}
	for _, text := range []string{
		secret[1:], "1=" + secret[1:], strings.Repeat("x", 64), "1=" + strings.Repeat("ab", 32),
		"2=" + secret + ",1=" + strings.Repeat("0", 32), "2=" + secret + ",1=x", "2=" + secret + ",2=" + other,
		"2=" + secret + "," + other, "c2hvcnQ=", "1=", ",", "2=" + secret + ",",
	} {
		_, message := refused(t, "SECKILL_JWT_SECRET="+text)
		check.That(t, !strings.Contains(message, secret[1:]) && !strings.Contains(message, other),
			"the message tells the secret: %s", message)
	}
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	file := func(content string) string {
		name := filepath.Join(t.TempDir(), "secret")
		check.Must(t, os.WriteFile(name, []byte(content), 0o600))
		return name
	}
	c := load(t, "SECKILL_JWT_SECRET_FILE="+file(secret+"\n"), "SECKILL_DATABASE_DSN_FILE="+file(dsn+"\r\n"),
		"SECKILL_REDIS_URL_FILE="+file("redis://a:1"))
	check.That(t, c.DatabaseDSN == dsn && c.RedisURL == "redis://a:1" && c.JWTKeys[0].Secret == secret,
		"the files were not read as they are")
	for _, around := range []string{secret + " \r\n\n", "\n" + secret, "\uFEFF" + secret + "\t\n"} {
		for _, environ := range []string{"SECKILL_JWT_SECRET_FILE=" + file(around), "SECKILL_JWT_SECRET=" + around} {
			check.Equal(t, fmt.Sprintf("%q", environ), load(t, environ).JWTKeys[0].Secret, secret)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for name, environ := range map[string][]string{
		"missing":   {"SECKILL_JWT_SECRET_FILE=" + missing},
		"empty":     {"SECKILL_JWT_SECRET_FILE=" + file("\n")},
		"too long":  {"SECKILL_JWT_SECRET_FILE=" + file(strings.Repeat("x", 70_000))},
		"wrong":     {"SECKILL_JWT_SECRET_FILE=" + file("short")},
		"two lines": {"SECKILL_JWT_SECRET_FILE=" + file("a="+secret+"\nb="+secret)},
		"a break":   {"SECKILL_JWT_SECRET_FILE=" + file(secret[:8]+"\r"+secret[8:])},
		"a folder":  {"SECKILL_JWT_SECRET_FILE=" + t.TempDir()},
	} {
		if variables, message := refused(t, environ...); !slices.Equal(variables, []string{"SECKILL_JWT_SECRET_FILE"}) {
			t.Errorf("%s: %s", name, message)
		}
	}
	if _, message := refused(t, "SECKILL_JWT_SECRET_FILE="+secret); strings.Contains(message, secret) {
		t.Errorf("a secret in the place of its file's name is shown: %s", message)
	}
	_, message := refused(t, "SECKILL_REDIS_URL=redis://a:1", "SECKILL_REDIS_URL_FILE="+missing)
	check.That(t, strings.Contains(message, "set one of them"), "both: %s", message)
	load(t, "SECKILL_REDIS_URL=redis://a:1", "SECKILL_REDIS_URL_FILE=")
}

func TestFlagsWin(t *testing.T) {
	t.Parallel()
	c := check.Value(config.Load([]string{"SECKILL_HTTP_ADDR=:1", "SECKILL_DATA_DIR=/env", "SECKILL_CURRENCY=EUR"},
		config.Flags(map[string]string{"SECKILL_HTTP_ADDR": ":2", "SECKILL_DATA_DIR": ""})))(t)
	check.That(t, c.HTTPAddr == ":2" && c.DataDir == "/env", "address %s, data dir %s", c.HTTPAddr, c.DataDir)
	sources := make(map[string]config.Source)
	for _, s := range c.Settings() {
		sources[s.Variable] = s.Source
	}
	if sources["SECKILL_HTTP_ADDR"] != config.SourceFlag || sources["SECKILL_CURRENCY"] != config.SourceEnv ||
		sources["SECKILL_OPS_ADDR"] != config.SourceDefault {
		t.Errorf("sources: %v", sources)
	}
}

// A stop has to be noticed by load balancers, which stand before real servers.
func TestAStopIsNoticedBeforeItEnds(t *testing.T) {
	t.Parallel()
	database := []string{
		"SECKILL_DATABASE_DSN=seckill:secret@tcp(127.0.0.1:3306)/seckill",
		"SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more",
	}
	for grace, environ := range map[time.Duration][]string{
		5 * time.Second: database, 0: append([]string{"SECKILL_DRAIN_GRACE=0s"}, database...),
		time.Minute: append([]string{"SECKILL_DRAIN_GRACE=1m"}, database...), time.Second: {"SECKILL_DRAIN_GRACE=1s"},
	} {
		check.Equal(t, strings.Join(environ, " "), load(t, environ...).DrainGrace, grace)
	}
}

// The console is served where somebody tries the product out, and elsewhere only when asked for.
func TestConsoleIsOnWhenEmbedded(t *testing.T) {
	t.Parallel()
	database := []string{
		"SECKILL_DATABASE_DSN=seckill:secret@tcp(127.0.0.1:3306)/seckill",
		"SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more",
	}
	for name, test := range map[string]struct {
		environ []string
		on      bool
	}{
		"embedded":                 {nil, true},
		"embedded, turned off":     {[]string{"SECKILL_CONSOLE=off"}, false},
		"real database":            {database, false},
		"real database, turned on": {append([]string{"SECKILL_CONSOLE=on"}, database...), true},
	} {
		c, err := config.Load(test.environ)
		if err != nil || c.Console != test.on {
			t.Errorf("%s: the console is on: %t, %v", name, c.Console, err)
		}
	}
}

func TestSettingsShowNoSecret(t *testing.T) {
	t.Parallel()
	c := load(t,
		"SECKILL_DATABASE_DSN=root:hun:ter2@/x@tcp(127.0.0.1:3306)/shop?connectionAttributes=hunter2",
		"SECKILL_REDIS_URL=rediss://app:hunter2@a:1/0?skip_verify=on,rediss://app:hunter2@b:2?skip_verify=on",
		"SECKILL_LOCK_REDIS_URLS=rediss://hunter2@c:3",
		"SECKILL_NATS_URL=nats://hunter2@d:4222",
		"SECKILL_JWT_SECRET=new="+secret+"hunter2,old=hunter2"+secret)
	shown := map[string]string{}
	for _, s := range c.Settings() {
		shown[s.Variable] = s.Value
		check.That(t, s.Unit != "" && s.Meaning != "" && s.Default != "" && s.Value != "" && s.Source != "",
			"a cell is empty: %+v", s)
		check.That(t, s.Secret != (s.Flag != ""), "%s: secret %v and flag %q", s.Variable, s.Secret, s.Flag)
	}
	for variable, want := range map[string]string{
		"SECKILL_DATABASE_DSN":    "root:***@tcp(127.0.0.1:3306)/shop",
		"SECKILL_REDIS_URL":       "rediss://app:***@a:1/0,rediss://app:***@b:2",
		"SECKILL_LOCK_REDIS_URLS": "rediss://***@c:3",
		"SECKILL_NATS_URL":        "nats://***@d:4222",
		"SECKILL_JWT_SECRET":      "new=***,old=***",
		"SECKILL_HTTP_ADDR":       ":8080",
		"SECKILL_WEBHOOK_SECRETS": "none: webhooks are refused",
	} {
		check.Equal(t, "what is shown of "+variable, shown[variable], want)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("started", slog.Any("config", c))
	keys := check.Value(json.Marshal(fmt.Sprint(c.JWTKeys)))(t)
	everything := fmt.Sprintf("%v %+v %#v %v %+v %#v %s %s", c, c, c, c.JWTKeys, c.JWTKeys, c.JWTKeys, log.String(),
		keys)
	check.That(t, !strings.Contains(everything, "hunter2") && !strings.Contains(everything, secret),
		"a secret is shown: %s", everything)
}

func TestMarkdownHasEverySetting(t *testing.T) {
	t.Parallel()
	text := config.Markdown()
	for _, s := range config.Table() {
		if !strings.Contains(text, "| `"+s.Variable+"` "+map[bool]string{true: "(or `…_FILE`) ", false: ""}[s.Secret]+"|") {
			t.Errorf("%s is missing, or it is not said whether it is a secret", s.Variable)
		}
	}
	for line := range strings.Lines(text) {
		check.That(t, strings.Count(line, "|")-strings.Count(line, `\|`) == 5, "not four columns: %s", line)
	}
}
