package config

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// redacted stands for a secret wherever settings are shown.
const redacted = "***"

// minSecret is the shortest secret for HS256, in bytes: RFC 7518, section 3.2,
// asks for as many as the hash has.
const minSecret = 32

// maxKeyID bounds key ids, in bytes. No base64 text of minSecret bytes is as
// short, so that the padding at its end is never taken for a key id's "=".
const maxKeyID = 32

// dsn looks at the shape only: the driver has the last word.
func dsn(text string) (string, error) {
	if strings.Contains(text, "://") {
		return "", errors.New("is a URL; the driver wants user:password@tcp(host:3306)/name")
	}
	slash := strings.LastIndexByte(text, '/')
	if slash < 0 {
		return "", errors.New("has no / before a database name; the driver wants user:password@tcp(host:3306)/name")
	}
	if name, _, _ := strings.Cut(text[slash+1:], "?"); name == "" {
		return "", errors.New("names no database; the driver wants user:password@tcp(host:3306)/name")
	}
	return text, nil
}

func redisURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || u.Host == "" {
		return "", errors.New("is not a URL such as redis://host:6379/0 (or rediss:// for TLS)")
	}
	if number := strings.Trim(u.Path, "/"); number != "" {
		if _, err := strconv.ParseUint(number, 10, 16); err != nil {
			return "", errors.New("has a path that is not a database number, such as /0")
		}
	}
	return text, nil
}

func redisURLs(text string) (string, error) { return joined(text, redisURL) }

func natsURLs(text string) (string, error) {
	return joined(text, func(part string) (string, error) {
		u, err := url.Parse(part)
		if err != nil || u.Hostname() == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return "", errors.New("is not a URL such as nats://host:4222 or tls://host:4222")
		}
		if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > 65535) {
			return "", errors.New("names a port that is not from 1 to 65535")
		}
		return part, nil
	})
}

// joined checks every part of a list that is used as one text.
func joined(text string, parse func(string) (string, error)) (string, error) {
	parts, err := list(parse)(text)
	if err != nil {
		return "", err
	}
	return strings.Join(parts, ","), nil
}

// keys reads one secret, which gets the key id 1, or a list of kid=secret. A
// secret may itself contain "=" and commas: the text is a list when one of its
// parts opens with a key id, an "=", and something that is not only padding.
func keys(text string) ([]Key, error) {
	parts := strings.Split(text, ",")
	found := make([]Key, 0, len(parts))
	for _, part := range parts {
		if key, ok := keyed(strings.TrimSpace(part)); ok {
			found = append(found, key)
		}
	}
	switch {
	case len(found) == 0:
		found = []Key{{ID: "1", Secret: text}}
	case len(found) < len(parts):
		return nil, errors.New("mixes parts with and without a key id: write kid=secret in each")
	}
	seen := make(map[string]bool, len(found))
	for _, key := range found {
		if seen[key.ID] {
			return nil, errors.New("has two secrets with the same key id")
		}
		seen[key.ID] = true
		if n := len(key.Secret); n < minSecret {
			return nil, fmt.Errorf("has a secret of %d bytes: HS256 needs at least %d, "+
				"for example from openssl rand -base64 32", n, minSecret)
		}
	}
	return found, nil
}

func keyed(part string) (Key, bool) {
	id, secret, found := strings.Cut(part, "=")
	if !found || id == "" || len(id) > maxKeyID || strings.Trim(secret, "=") == "" {
		return Key{}, false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return Key{}, false
		}
	}
	return Key{ID: id, Secret: secret}, true
}

// hide shows that there is something.
func hide(string) string { return redacted }

// showDSN shows where a database is and hides the password. Parameters are cut
// off, because some of them may be secret too.
func showDSN(text string) string {
	slash := strings.LastIndexByte(text, '/')
	if slash < 0 {
		return redacted
	}
	name, _, _ := strings.Cut(text[slash:], "?")
	at := strings.LastIndexByte(text[:slash], '@')
	if at < 0 {
		return text[:slash] + name
	}
	user, _, hasPassword := strings.Cut(text[:at], ":")
	if hasPassword {
		user += ":" + redacted
	}
	return user + text[at:slash] + name
}

// showURLs shows where servers are and hides passwords and parameters.
func showURLs(text string) string {
	var shown []string
	for part := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(strings.TrimSpace(part))
		if err != nil || u.Host == "" {
			return redacted
		}
		user := ""
		if u.User != nil {
			user = u.User.Username()
			if _, has := u.User.Password(); has {
				user += ":" + redacted
			} else {
				user = redacted // a name alone may be a token
			}
			user += "@"
		}
		shown = append(shown, u.Scheme+"://"+user+u.Host+u.Path)
	}
	return strings.Join(shown, ",")
}

// showKeys shows the key ids.
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
