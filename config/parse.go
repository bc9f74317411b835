package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"seckill/internal/payment"
	"seckill/internal/redisurl"
	"seckill/internal/token"
)

const (
	maxKeyID = 32 // bytes: shorter than base64 of 32 bytes, whose padding is no key id's "="
	// minVariety is a secret's least number of different bytes: 32 random digits, the poorest, fail once in 10 million.
	minVariety = 6
	// maxReturnURL, in bytes, is what browsers and providers take, with the ids of orders in it.
	maxReturnURL = 1024
	// maxReceiverURL, in bytes, is what the database keeps.
	maxReceiverURL = 512
)

func anyText(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("is blank")
	}
	return text, nil
}

// streamName refuses what JetStream does not take for the name of a stream.
func streamName(text string) (string, error) {
	if strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return "", errors.New("must be of A-Z, a-z, 0-9, _ and -")
	}
	return text, nil
}

func oneOf[T ~string](words ...T) func(string) (T, error) {
	last := len(words) - 1
	var most []string
	for _, word := range words[:last] {
		most = append(most, string(word))
	}
	return func(text string) (T, error) {
		if slices.Contains(words, T(text)) {
			return T(text), nil
		}
		return "", fmt.Errorf("%q is not %s or %s", text, strings.Join(most, ", "), words[last])
	}
}

func boolean(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "on", "true", "1":
		return true, nil
	case "off", "false", "0":
		return false, nil
	default:
		return false, fmt.Errorf("%q is not on or off (nor true, false, 1 or 0)", text)
	}
}

// durationFrom reads a duration of at least the one given, and tells people why it must not be shorter.
func durationFrom(least time.Duration, because string) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration such as 250ms, 30s or 15m", text)
		}
		if d < least {
			return 0, fmt.Errorf("%q is too short: at least %s, because %s", text, least, because)
		}
		return d, nil
	}
}

func wholeNumber(least, most int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q is not a whole number from %d to %d", text, least, most)
		}
		return n, nil
	}
}

func replicas(text string) (int, error) {
	if text == "all" {
		return AllReplicas, nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%q is neither all nor a number of replicas", text)
	}
	return int(n), nil
}

func address(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("%q is not an address such as :8080 or 127.0.0.1:8080", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q does not end in a port from 0 to 65535", text)
	}
	return text, nil
}

// proxyNetwork reads a network that may be trusted to say who a client is. None is wider than the widest of a
// deployment's own, 10.0.0.0/8 (RFC 1918) and fc00::/7 (RFC 4193): wider ones hold clients.
func proxyNetwork(text string) (netip.Prefix, error) {
	p, err := prefix(text)
	if mapped := p.Bits() - 96; err == nil && p.Addr().Is4In6() && mapped >= 0 {
		p = netip.PrefixFrom(p.Addr().Unmap(), mapped)
	}
	widest := 7
	if p.Addr().Is4() {
		widest = 8
	}
	if err == nil && (p.Bits() < widest || p.Overlaps(netip.MustParsePrefix("::ffff:0:0/96"))) {
		err = fmt.Errorf("%q holds clients too, who could then claim any address: "+
			"name the proxies' own network, /%d or narrower", text, widest)
	}
	return p, err
}

// prefix reads a CIDR, or one address, which is the CIDR of itself.
func prefix(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.Prefix{}, fmt.Errorf("%q is not a CIDR such as 10.0.0.0/8", text)
}

// browserOrigin is an origin as browsers write it (RFC 6454, 6.1), with a port that is not the usual one.
var browserOrigin = regexp.MustCompile(`^https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?$`)

// pageOrigin reads an origin; null is that of every sandboxed page, and is refused.
func pageOrigin(text string) (string, error) {
	usual := ":80"
	if strings.HasPrefix(text, "https:") {
		usual = ":443"
	}
	u, err := url.Parse(text)
	if err == nil && u.Port() != "" {
		_, err = strconv.ParseUint(u.Port(), 10, 16)
	}
	if err != nil || !browserOrigin.MatchString(text) || strings.HasSuffix(text, usual) {
		return "", fmt.Errorf("%q is not an origin as browsers write it, such as https://shop.example or "+
			"http://127.0.0.1:3000, and nothing behind it", text)
	}
	return text, nil
}

func currency(text string) (string, error) {
	if len(text) != 3 || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "", fmt.Errorf("%q is not a currency code of ISO 4217 such as CNY or EUR", text)
	}
	return text, nil
}

func level(text string) (level slog.Level, err error) {
	if text, err = oneOf("debug", "info", "warn", "error")(text); err == nil {
		err = level.UnmarshalText([]byte(text))
	}
	return level, err
}

// list reads parts that are separated by commas, with or without spaces.
func list[T any](parse func(string) (T, error)) func(string) ([]T, error) {
	return func(text string) ([]T, error) {
		var values []T
		for part := range strings.SplitSeq(text, ",") {
			part = strings.TrimSpace(part)
			if part == "" {
				return nil, errors.New("has an empty entry in its list")
			}
			value, err := parse(part)
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		return values, nil
	}
}

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
	_, hosts, listed := strings.Cut(text[strings.LastIndexByte(text[:slash], '@')+1:slash], "tcp(")
	if listed && strings.Contains(hosts, ",") {
		return "", errors.New("names several servers; the service wants one address, of a proxy before them: see deployments/engines/haproxy")
	}
	return text, dsnOptions(text)
}

func redisURL(text string) (string, error) {
	target, err := redisurl.Parse(text)
	if err == nil && (target.Cluster || target.Primary != "") {
		err = errors.New("is a Cluster or asks Sentinels: an instance of a quorum is one server, redis://host:6379/0")
	}
	return text, err
}

// redisURLs is one server, a Cluster, or a primary that Sentinels know.
func redisURLs(text string) (string, error) {
	_, err := redisurl.Parse(text)
	return text, err
}

func natsURLs(text string) (string, error) {
	urls, err := list(natsURL)(text)
	return strings.Join(urls, ","), err
}

func natsURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "nats" && u.Scheme != "tls":
		return "", errors.New("is not a URL such as nats://host:4222 or tls://host:4222")
	case u.User == nil && strings.Contains(text, "@"):
		return "", redisurl.ErrPassword
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("has something behind the port of a server, which would do nothing")
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
		return "", errors.New("names a port that is not from 1 to 65535")
	}
	return text, nil
}

// keys reads a secret (key id 1), even with "=" or commas, or a list: a part of it is kid, "=" and more than padding.
func keys(text string) ([]token.Key, error) {
	parts := strings.Split(text, ",")
	found := make([]token.Key, 0, len(parts))
	for _, part := range parts {
		if key, ok := keyed(strings.TrimSpace(part)); ok {
			found = append(found, key)
		}
	}
	switch {
	case len(found) == 0:
		found = []token.Key{{ID: "1", Secret: text}}
	case len(found) < len(parts):
		return nil, errors.New("mixes parts with and without a key id: write kid=secret in each")
	}
	seen := make(map[string]bool, len(found))
	for _, key := range found {
		if seen[key.ID] {
			return nil, errors.New("has two secrets with the same key id")
		}
		seen[key.ID] = true
		if _, err := strongSecret(key.Secret); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func strongSecret(text string) (string, error) {
	different := slices.Compact(slices.Sorted(slices.Values([]byte(text))))
	switch {
	case len(text) < token.MinSecret:
		return "", fmt.Errorf("has a secret of %d bytes and needs at least %d, "+
			"for example from openssl rand -base64 32", len(text), token.MinSecret)
	case len(different) < minVariety:
		return "", fmt.Errorf("has a secret of only %d different characters, which is quickly guessed: "+
			"take one from openssl rand -base64 32", len(different))
	}
	return text, nil
}

// webhookSecret is as good as the code that uses it wants it to be: it opens the till.
func webhookSecret(text string) (string, error) {
	if _, err := payment.SecretKey(text); err != nil {
		return "", fmt.Errorf("has a secret that cannot be used: %w", err)
	}
	return text, nil
}

// webURL reads a URL of http or https without a user.
func webURL(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	return u, err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil
}

func providerURL(text string) (string, error) {
	if u, ok := webURL(text); !ok || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("is not of the form https://host/path")
	}
	return text, nil
}

func receiverURL(text string) (string, error) {
	u, ok := webURL(text)
	ascii := strings.IndexFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
	if !ok || !ascii || u.Fragment != "" || len(text) > maxReceiverURL {
		return "", fmt.Errorf("has a URL that is not of the form https://host/path, without a user, of at most %d bytes",
			maxReceiverURL)
	}
	return text, nil
}

func returnURL(text string) (string, error) {
	if _, ok := webURL(strings.ReplaceAll(text, "{order_id}", "1")); !ok || len(text) > maxReturnURL {
		return "", fmt.Errorf("is not of the form https://shop/page?order={order_id}, of at most %d bytes",
			maxReturnURL)
	}
	return text, nil
}

func keyed(part string) (token.Key, bool) {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	id, secret, _ := strings.Cut(part, "=")
	ok := id != "" && len(id) <= maxKeyID && strings.Trim(id, allowed) == "" && strings.Trim(secret, "=") != ""
	return token.Key{ID: id, Secret: secret}, ok
}

// issuers reads a list of issuer=place, or issuer!=place for administrators. What is wrong has a number.
func issuers(text string) ([]token.Issuer, error) {
	parts, err := list(anyText)(text)
	if err != nil {
		return nil, err
	}
	var (
		all   []token.Issuer
		wrong []string
	)
	for n, part := range parts {
		one, err := issuer(part)
		if err == nil && slices.ContainsFunc(all, func(other token.Issuer) bool { return other.Name == one.Name }) {
			err = errors.New("names an issuer that another one names")
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("entry %d %v", n+1, err))
		}
		all = append(all, one)
	}
	if len(wrong) > 0 {
		return nil, errors.New("cannot be read: " + strings.Join(wrong, "; "))
	}
	return all, nil
}

// issuer reads one of them, and the options behind its place, separated by semicolons.
func issuer(text string) (i token.Issuer, err error) {
	name, place, _ := strings.Cut(text, "=")
	name, i.Admins = strings.CutSuffix(strings.TrimSpace(name), "!")
	place, options, optional := strings.Cut(place, ";")
	if i.Name = strings.TrimSpace(name); i.Name == "" || !strings.Contains(text, "=") {
		return i, errors.New("is not issuer=url")
	}
	if i.Keys, err = keysPlace(strings.TrimSpace(place)); err != nil || !optional {
		return i, err
	}
	var audiences string
	fields := map[string]*string{"aud": &audiences, "role": &i.Role, "groups": &i.Groups}
	for option := range strings.SplitSeq(options, ";") {
		name, value, _ := strings.Cut(option, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch field := fields[name]; {
		case field == nil:
			return i, errors.New("has an option that is not aud=, role= or groups=")
		case *field != "":
			return i, fmt.Errorf("has the option %s= twice", name)
		case value == "" || field == &audiences && slices.Contains(strings.Split(value, "+"), ""):
			return i, fmt.Errorf("has an option %s= with nothing behind it", name)
		default:
			*field = value
		}
	}
	if audiences != "" {
		i.Audiences = strings.Split(audiences, "+")
	}
	return i, nil
}

// keysPlace reads where an issuer's keys are. Who can change them on the way can name users: http only on this machine.
func keysPlace(text string) (string, error) {
	if text == "" {
		return "", errors.New("has no URL or file")
	}
	if !strings.Contains(text, "://") {
		return text, nil // a path
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", errors.New("has a URL that does not parse")
	case u.User != nil:
		return "", errors.New("has a URL with a user: the keys are public")
	case u.Scheme == "file" && u.Host == "" && u.Path != "":
		return u.Path, nil
	case u.Hostname() == "":
		return "", errors.New("has a URL without a host")
	case u.Scheme == "https",
		u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()):
		return text, nil
	default:
		return "", fmt.Errorf("has the URL %q, which is neither https nor a file, nor http from this machine itself",
			text)
	}
}
