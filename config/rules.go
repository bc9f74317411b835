package config

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// refuseContradictions finds settings that are right alone and wrong together.
// A setting that could not be read counts as absent here; it was reported.
func (r *reader) refuseContradictions(c Config) {
	realDatabase := c.origins["SECKILL_DATABASE_DSN"].source != SourceDefault // even a broken one is meant
	verifies := c.Role != RoleWorker && !r.withoutTokens
	if realDatabase && c.origins["SECKILL_JWT_SECRET"].source == SourceDefault && verifies {
		r.problem("SECKILL_JWT_SECRET", "is required with a real database, "+
			"for example from openssl rand -base64 32")
	}
	for _, other := range c.JWTIssuers {
		if other.Name == c.JWTIssuer {
			r.problem("SECKILL_JWT_JWKS_URL", fmt.Sprintf("names the issuer %q, which is SECKILL_JWT_ISSUER, the service itself", other.Name))
		}
	}
	if !realDatabase && c.StockStrategy == StockPessimistic {
		r.problem("SECKILL_STOCK_STRATEGY", "is pessimistic, and the embedded SQLite has no row locks: "+
			"choose conditional or optimistic, or set SECKILL_DATABASE_DSN")
	}
	if !realDatabase && c.LockMode == LockMySQL {
		r.problem("SECKILL_LOCK_MODE", "is mysql, which needs SECKILL_DATABASE_DSN")
	}
	if c.Async() && c.origins["SECKILL_NATS_URL"].source == SourceDefault && c.NATSReplicas > 1 {
		r.problem("SECKILL_NATS_REPLICAS", "asks for several servers, and the embedded queue is one: set SECKILL_NATS_URL")
	}
	if c.Events != "" && c.origins["SECKILL_NATS_URL"].source == SourceDefault {
		r.problem("SECKILL_EVENTS", "names a stream of a NATS server: set SECKILL_NATS_URL")
	}
	r.refuseQuorum(c)
	r.refuseLonelyRole(c)
	r.refusePayments(c, realDatabase)
	if overlap(c.HTTPAddr, c.OpsAddr) {
		r.problem("SECKILL_OPS_ADDR", "("+c.OpsAddr+") is the same listener as SECKILL_HTTP_ADDR ("+c.HTTPAddr+")")
	}
}

// refusePayments finds what is missing before money may move.
func (r *reader) refusePayments(c Config, realDatabase bool) {
	if realDatabase && c.Payments() && !c.given("SECKILL_CODE_KEY") && !r.withoutTokens {
		r.problem("SECKILL_CODE_KEY", "is required with a real database once payments are configured, "+
			"for example from openssl rand -base64 32: who pays gets a code, which it seals")
	}
	if c.PaymentURL != "" && c.PaymentSimulator {
		r.problem("SECKILL_PAYMENT_SIMULATOR", "is on, and SECKILL_PAYMENT_URL names another provider: there is one")
	}
	if c.PaymentURL != "" && !c.given("SECKILL_WEBHOOK_SECRETS") {
		r.problem("SECKILL_WEBHOOK_SECRETS", "is required with SECKILL_PAYMENT_URL: without it no payment would ever be heard of")
	}
}

// refuseLonelyRole finds instances that share the work of async with others
// and name nothing that they could share: what is embedded is inside one
// process, and neither a worker nor an api instance does everything alone.
func (r *reader) refuseLonelyRole(c Config) {
	if !c.Async() || c.Role == RoleAll {
		return
	}
	for _, needed := range []struct{ variable, inside string }{
		{"SECKILL_DATABASE_DSN", "database"}, {"SECKILL_REDIS_URL", "Redis"}, {"SECKILL_NATS_URL", "queue"},
	} {
		if c.origins[needed.variable].source == SourceDefault { // even a broken one is meant
			r.problem(needed.variable, "is required for the role "+string(c.Role)+" in async: an embedded "+needed.inside+
				" is inside one process, where no other instance reaches it")
		}
	}
}

// refuseQuorum holds the locks that need several independent instances to the
// numbers for which their promises hold.
func (r *reader) refuseQuorum(c Config) {
	const variable = "SECKILL_LOCK_REDIS_URLS"
	if c.origins[variable].source != SourceDefault && c.LockRedisURLs == nil {
		return // it could not be read
	}
	n := len(c.LockRedisURLs)
	switch {
	case c.LockMode == LockMultilock && n != 3:
		r.problem(variable, "must name exactly three instances for the lock mode multilock")
	case c.LockMode == LockRedlock && (n < 3 || n%2 == 0):
		r.problem(variable, "must name an odd number of instances, at least three, for the lock mode redlock")
	}
	sorted := slices.Sorted(slices.Values(c.LockRedisURLs))
	if len(slices.Compact(sorted)) != n {
		r.problem(variable, "names one instance twice: they must be independent")
	}
}

// overlap reports whether two addresses cannot both be listened on.
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
