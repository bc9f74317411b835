// Package redisurl reads what the settings say of a Redis: of one server, of a Cluster,
// or of the Sentinels that know which server is the primary now.
//
//	redis://user:password@host:6379/0            one server
//	redis+cluster://user:password@host:6379      a Cluster, by any of its nodes or an address of them all
//	redis://…,redis://…                          a Cluster, by several nodes
//	redis+sentinel://user:password@h1,h2,h3/primary/0
//
// ?pool_size=64&timeout=2s behind it are limits of the client. With rediss in the place of redis the servers are reached by TLS. Errors quote
// nothing of the text, which holds a password.
package redisurl

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	serverPort   = "6379"
	sentinelPort = "26379"

	// The kinds, behind the + of a scheme.
	cluster  = "cluster"
	sentinel = "sentinel"

	// optionSkipVerify, of TLS: on takes any certificate.
	optionSkipVerify = "skip_verify"
	// optionPoolSize and optionTimeout are the Limits.
	optionPoolSize = "pool_size"
	optionTimeout  = "timeout"
	// optionSentinelLogin: on has the Sentinels asked with the user and the password too.
	optionSentinelLogin = "sentinel_login"
)

var (
	errShape = errors.New("is not a URL such as redis://host:6379/0, redis+cluster://host:6379 or " +
		"redis+sentinel://host1,host2,host3/primary/0 (rediss for TLS)")
	// ErrPassword tells of a URL whose password ends its host for the parser, which
	// would connect to a piece of it. URLs of every kind of server know it.
	ErrPassword = errors.New("has a password with a /, a ? or a #, which must be written as %2F, %3F or %23")
	errDatabase = errors.New("has a path that is not a database number, such as /0")
	errCluster  = errors.New("names a database other than 0, and a Redis Cluster has no other")
	errPrimary  = errors.New("does not say which primary the Sentinels are asked for: redis+sentinel://host1,host2/primary/0")
	errHosts    = errors.New("names several hosts in one URL: a Cluster is a list of URLs, or redis+cluster:// and one host")
	errList     = errors.New("is a list, and names something else than servers: each part is redis://host:port")
	errAgree    = errors.New("is a list of URLs that differ in more than the host: a Cluster has one user, one password and one kind of connection")
	errOption   = errors.New("has an option that is not known, or not here, or more than once: there is " +
		optionPoolSize + "=64, " + optionTimeout + "=2s, " + optionSkipVerify + "=on (with rediss) and " + optionSentinelLogin + "=on (with redis+sentinel), and the database is the path")
)

const (
	// MaxPoolSize is what a server takes by itself (maxclients).
	MaxPoolSize = 10_000
	// MinTimeout is what an answer may take on a network that is not well.
	MinTimeout = 10 * time.Millisecond
)

// Limits are those of a client; 0: its default.
type Limits struct {
	PoolSize int           // connections to each server
	Timeout  time.Duration // of an answer, and of waiting for a connection
}

// Or returns the limits, and others where there are none.
func (l Limits) Or(others Limits) Limits {
	return Limits{cmp.Or(l.PoolSize, others.PoolSize), cmp.Or(l.Timeout, others.Timeout)}
}

// Target is what a URL, or a list of them, means.
type Target struct {
	Hosts   []string // host:port: the server, nodes of the Cluster, or the Sentinels
	Cluster bool
	Primary string // the Sentinels' name of it; empty: there are none

	Username, Password string
	Database           int
	TLS, SkipVerify    bool
	SentinelLogin      bool // the Sentinels want the user and the password too
	Limits             Limits
}

// Parse reads one URL, or a comma-separated list of them.
func Parse(text string) (Target, error) {
	var all Target
	for i, part := range split(text) {
		one, err := parse(strings.TrimSpace(part))
		switch {
		case err != nil:
			return Target{}, err
		case i == 0:
			all = one
			continue
		case all.Primary+one.Primary != "":
			return Target{}, errList
		case one.Username != all.Username, one.Password != all.Password, one.TLS != all.TLS, one.SkipVerify != all.SkipVerify, one.Limits != all.Limits:
			return Target{}, errAgree
		}
		all.Cluster, all.Database = true, max(all.Database, one.Database)
		all.Hosts = append(all.Hosts, one.Hosts...)
	}
	if all.Cluster && all.Database != 0 {
		return Target{}, errCluster
	}
	return all, nil
}

// split divides a list. The URL of Sentinels is a list itself.
func split(text string) []string {
	if scheme, _, _ := strings.Cut(text, "://"); strings.HasSuffix(scheme, "+"+sentinel) {
		return []string{text}
	}
	return strings.Split(text, ",")
}

func parse(text string) (t Target, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	scheme, kind, _ := strings.Cut(scheme, "+")
	if !ok || scheme != "redis" && scheme != "rediss" || !slices.Contains([]string{"", cluster, sentinel}, kind) {
		return t, errShape
	}
	t.TLS, t.Cluster = scheme == "rediss", kind == cluster
	// The parser knows no list of hosts: it gets the URL without them.
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@') + 1
	u, err := url.Parse("redis://" + rest[:at] + "host" + rest[end:])
	switch {
	case err != nil || u.Fragment != "":
		return t, errShape
	case u.User == nil && strings.Contains(text, "@"):
		return t, ErrPassword
	}
	t.Username = u.User.Username()
	t.Password, _ = u.User.Password()
	port := serverPort
	if kind == sentinel {
		port = sentinelPort
	}
	if t.Hosts, err = hosts(rest[at:end], port); err != nil {
		return t, err
	}
	if len(t.Hosts) > 1 && kind != sentinel {
		return t, errHosts
	}
	if err = t.path(u.Path, kind == sentinel); err != nil {
		return t, err
	}
	return t, t.options(u.RawQuery)
}

// host is all that a host and a port are made of.
var host = regexp.MustCompile(`^(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]*)(?::([0-9]{1,5}))?$`)

func hosts(list, port string) ([]string, error) {
	if list == "" {
		return nil, errShape
	}
	var all []string
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		part := host.FindStringSubmatch(one)
		if part == nil || one == "" {
			return nil, errShape
		}
		name, own := strings.Trim(part[1], "[]"), part[2]
		if n, err := strconv.Atoi(own); own != "" && (err != nil || n < 1 || n > 65535) {
			return nil, errShape
		}
		if name == "" {
			name = "localhost"
		}
		if own == "" {
			own = port
		}
		all = append(all, net.JoinHostPort(name, own))
	}
	return all, nil
}

func (t *Target) path(path string, sentinels bool) error {
	number := strings.Trim(path, "/")
	if sentinels {
		t.Primary, number, _ = strings.Cut(number, "/")
		if t.Primary == "" {
			return errPrimary
		}
	}
	if number == "" {
		return nil
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return errDatabase
	}
	t.Database = int(n)
	return nil
}

func (t *Target) options(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errOption
	}
	known := map[string]*bool{}
	if t.TLS {
		known[optionSkipVerify] = &t.SkipVerify
	}
	if t.Primary != "" {
		known[optionSentinelLogin] = &t.SentinelLogin
	}
	for name := range maps.Keys(values) {
		value := values.Get(name)
		option, ok := known[name]
		switch {
		case len(values[name]) != 1:
			return errOption
		case name == optionPoolSize:
			t.Limits.PoolSize, err = strconv.Atoi(value)
			ok = err == nil && t.Limits.PoolSize > 0 && t.Limits.PoolSize <= MaxPoolSize
		case name == optionTimeout:
			t.Limits.Timeout, err = time.ParseDuration(value)
			ok = err == nil && t.Limits.Timeout >= MinTimeout
		}
		if !ok {
			return errOption
		}
		if option == nil {
			continue
		}
		switch value {
		case "on", "true", "1":
			*option = true
		case "off", "false", "0":
		default:
			return errOption
		}
	}
	return nil
}
