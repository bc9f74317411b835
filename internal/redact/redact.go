// Package redact keeps secrets out of everything that people and machines read:
// settings that are shown, log records and error messages.
//
// There are two ways. Address, Addresses and DSN show where a server is, and nothing that they do not understand.
// Secrets is the net behind them: it knows the secrets of the settings and takes them out of any text, also where a
// library quotes the URL that it was given.
package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Mark stands in the place of a secret.
const Mark = "***"

// Addresses shows the servers of a comma-separated list of URLs; see Address. Of a list
// with a part that cannot be shown nothing is.
func Addresses(list string) string {
	var shown []string
	for _, part := range split(list) {
		shown = append(shown, Address(part))
	}
	if slices.Contains(shown, Mark) {
		return Mark
	}
	return strings.Join(shown, ",")
}

// split divides a list at the commas that a URL follows: any other comma may be a piece of a password.
func split(list string) []string {
	var parts []string
	for part := range strings.SplitSeq(list, ",") {
		if last := len(parts) - 1; last >= 0 && !strings.Contains(part, "://") {
			parts[last] += "," + part
			continue
		}
		parts = append(parts, strings.TrimSpace(part))
	}
	return parts
}

// hostname is all that a host and a port are made of. What else a URL's parser takes
// for a host may be a piece of a password.
var hostname = regexp.MustCompile(`^(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$`)

// database is the path of a URL that names a database by its number.
var database = regexp.MustCompile(`^(/[0-9]{0,5})?$`)

// Address shows the server of a URL: its password, a name without a password (which may be a token) and its parameters
// are left out. A URL that is not of the form scheme://user:password@host:port/number is not shown at all, because what
// looks like its host or its path may be a piece of a password with a "/", a "?" or a "#".
func Address(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || !hostname.MatchString(u.Host) || !database.MatchString(u.Path) ||
		strings.Contains(u.RawQuery+u.Fragment, "@") {
		return Mark
	}
	user := ""
	if u.User != nil {
		user = Mark + "@"
		if _, has := u.User.Password(); has {
			user = url.User(u.User.Username()).String() + ":" + user
		}
	}
	return u.Scheme + "://" + user + u.Host + u.Path
}

// dsn is user:password@net(address)/name?parameters, as go-sql-driver/mysql reads it. Its address is one that
// a network has; the password is greedy, as it is for the driver.
var dsn = regexp.MustCompile(`^(?:([A-Za-z0-9._%-]*)(:.*)?@)?((?:tcp|unix)(?:\([A-Za-z0-9_./:,\[\]%-]*\))?)?/([A-Za-z0-9_$-]*)(?:\?[^/]*)?$`)

// DSN shows where a database is. The password and the parameters, some of which may be secret too, are left out. A DSN
// that is not of the driver's form is not shown at all: what looks like its address may be a piece of a password.
func DSN(text string) string {
	part := dsn.FindStringSubmatch(text)
	if part == nil {
		return Mark
	}
	user, password, address, name := part[1], part[2], part[3], part[4]
	if user != "" || password != "" {
		if password != "" {
			user += ":" + Mark
		}
		user += "@"
	}
	return user + address + "/" + name
}
