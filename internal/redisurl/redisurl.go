// Package redisurl reads what the settings say of a Redis: one server, a Cluster, or Sentinels that know the primary.
//
//	redis://user:password@host:6379/0            one server
//	redis+cluster://user:password@host:6379      a Cluster, by any of its nodes or an address of them all
//	redis://…,redis://…                          a Cluster, by several nodes
//	redis+sentinel://user:password@h1,h2,h3/primary/0
//
// ?pool_size=64&timeout=2s sets limits of the client, rediss means TLS. Errors quote nothing: the text has a password.
package redisurl

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	sentinelPort = "26379"

	cluster  = "cluster" // a kind, behind the + of a scheme, as sentinel
	sentinel = "sentinel"
)

var (
	errShape = errors.New("is not a URL such as redis://host:6379/0, redis+cluster://host:6379 or " +
		"redis+sentinel://host1,host2,host3/primary/0 (rediss for TLS)")
	// ErrPassword is that the URL's password ends its host for the parser. URLs of every kind of server know it.
	ErrPassword = errors.New("has a password with a /, a ? or a #, which must be written as %2F, %3F or %23")
	errDatabase = errors.New("has a path that is not a database number, such as /0")
	errCluster  = errors.New("names a database other than 0, and a Redis Cluster has no other")
	errPrimary  = errors.New("does not say which primary the Sentinels are asked for: redis+sentinel://host1,host2/primary/0")
	errList     = errors.New("is a list, and names something else than servers: each part is redis://host:port")
	errAgree    = errors.New("is a list of URLs that differ in more than the host: a Cluster has one user, one password and one kind of connection")
	errOption   = errors.New("has an option that is not known, or not here, or more than once: there is pool_size=64, timeout=2s, " +
		"skip_verify=on (with rediss) and sentinel_login=on (with redis+sentinel), and the database is the path")
)

// Bounds of the Limits.
const (
	MaxPoolSize = 10_000                // what a server takes by itself (maxclients)
	MinTimeout  = 10 * time.Millisecond // what an answer may take on a network that is not well
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
	parts := strings.Split(text, ",")
	if scheme, _, _ := strings.Cut(text, "://"); strings.HasSuffix(scheme, "+"+sentinel) {
		parts = []string{text} // the URL of Sentinels is a list itself
	}
	var all Target
	for i, part := range parts {
		one, err := parse(strings.TrimSpace(part))
		switch {
		case err != nil:
			return Target{}, err
		case i == 0:
			all = one
			continue
		case all.Primary+one.Primary != "":
			return Target{}, errList
		case one.Username != all.Username, one.Password != all.Password, one.TLS != all.TLS,
			one.SkipVerify != all.SkipVerify, one.Limits != all.Limits:
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

// parse reads one URL. The library's parser reads it for each host: it knows neither several nor our kinds and options.
func parse(text string) (t Target, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	scheme, kind, _ := strings.Cut(scheme, "+")
	if !ok || scheme != "redis" && scheme != "rediss" || !slices.Contains([]string{"", cluster, sentinel}, kind) {
		return t, errShape
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, rest = rest[:end], rest[end:]
	} else {
		rest = ""
	}
	at := strings.LastIndexByte(authority, '@') + 1
	path, query, _ := strings.Cut(rest, "?")
	switch path = strings.Trim(path, "/"); {
	case at == 0 && strings.Contains(text, "@"):
		return t, ErrPassword
	case strings.Contains(rest, "#"):
		return t, errShape
	case kind == sentinel:
		if t.Primary, path, _ = strings.Cut(path, "/"); t.Primary == "" {
			return t, errPrimary
		}
	}
	t.TLS, t.Cluster = scheme == "rediss", kind == cluster
	for host := range strings.SplitSeq(authority[at:], ",") {
		if err := t.add(authority[:at], strings.TrimSpace(host), path); err != nil {
			return t, err
		}
	}
	return t, t.options(query)
}

// add reads the URL of one host. The library's errors quote what may be a password.
func (t *Target) add(user, host, path string) error {
	if host == "" {
		return errShape
	}
	one, err := redis.ParseURL("redis://" + user + host + "/" + path)
	switch {
	case err != nil && !strings.Contains(err.Error(), "database number") && !strings.Contains(err.Error(), "URL path"):
		return errShape
	case err != nil, one.DB < 0:
		return errDatabase
	}
	name, port, _ := net.SplitHostPort(one.Addr)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errShape
	}
	if t.Primary != "" && !strings.HasSuffix(host, ":"+port) {
		port = sentinelPort
	}
	t.Hosts = append(t.Hosts, net.JoinHostPort(name, port))
	t.Username, t.Password, t.Database = one.Username, one.Password, one.DB
	return nil
}

// options reads our own options. Each may be there once.
func (t *Target) options(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errOption
	}
	for name, given := range values {
		ok := len(given) == 1
		switch {
		case name == "pool_size":
			t.Limits.PoolSize, err = strconv.Atoi(given[0])
			ok = ok && err == nil && t.Limits.PoolSize > 0 && t.Limits.PoolSize <= MaxPoolSize
		case name == "timeout":
			t.Limits.Timeout, err = time.ParseDuration(given[0])
			ok = ok && err == nil && t.Limits.Timeout >= MinTimeout
		case name == "skip_verify" && t.TLS:
			ok = ok && onOff(given[0], &t.SkipVerify)
		case name == "sentinel_login" && t.Primary != "":
			ok = ok && onOff(given[0], &t.SentinelLogin)
		default:
			ok = false
		}
		if !ok {
			return errOption
		}
	}
	return nil
}

func onOff(text string, option *bool) (known bool) {
	*option = slices.Contains([]string{"on", "true", "1"}, text)
	return *option || slices.Contains([]string{"off", "false", "0"}, text)
}
