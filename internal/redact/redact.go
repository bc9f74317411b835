// Package redact keeps secrets out of what people and machines read: settings that are shown, log records and errors.
//
// Address, Addresses and DSN show where a server is, and nothing that they do not understand. Secrets is the net behind
// them: it takes the known secrets of the settings out of any text, also where a library quotes its URL.
package redact

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Mark stands in the place of a secret.
const Mark = "***"

// Addresses shows the servers of a comma-separated list of URLs; see Address. One that cannot be shown hides all.
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

// hostname is what a host and a port are made of. Anything else that a parser takes may be a piece of a password.
var hostname = regexp.MustCompile(`^(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$`)

var database = regexp.MustCompile(`^(/[0-9]{0,5})?$`) // the path of a URL that names a database by its number

// Address shows the server of a URL, without password, parameters and a name without password (maybe a token). Anything
// but scheme://user:password@host:port/number is hidden: host or path may be a piece of a password with /, ? or #.
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

// dsn is user:password@net(address)/name?parameters of go-sql-driver/mysql. The password is greedy, as there.
var dsn = regexp.MustCompile(`^(?:([A-Za-z0-9._%-]*)(:.*)?@)?((?:tcp|unix)(?:\([A-Za-z0-9_./:,\[\]%-]*\))?)?/([A-Za-z0-9_$-]*)(?:\?[^/]*)?$`)

// DSN shows where a database is, without password and parameters. Another form than the driver's is hidden whole.
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

// Handler takes the secrets out of every record before next: out of its message and each attribute, however deep.
func (s *Secrets) Handler(next slog.Handler) slog.Handler { return handler{next, s} }

type handler struct {
	slog.Handler

	secrets *Secrets
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, h.secrets.Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.secrets.attrs(a)...)
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(h.secrets.attrs(attrs...)), h.secrets}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(h.secrets.Text(name)), h.secrets}
}

func (s *Secrets) attrs(attrs ...slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = slog.Attr{Key: s.Text(a.Key), Value: s.value(a.Value.Resolve())}
	}
	return clean
}

func (s *Secrets) value(v slog.Value) slog.Value {
	switch v.Kind() { //nolint:exhaustive // the others hold no text
	case slog.KindString:
		return slog.StringValue(s.Text(v.String()))
	case slog.KindGroup:
		return slog.GroupValue(s.attrs(v.Group()...)...)
	case slog.KindAny:
		// An error, or any other value: written out, because its parts may print anything. Without a secret it stays.
		text := fmt.Sprintf("%+v", v.Any())
		if clean := s.Text(text); clean != text {
			return slog.StringValue(clean)
		}
	}
	return v
}

// least is a secret's length in bytes to be looked for: the gaps of a shorter one, a common word, would reveal it.
const least = 8

// Secrets takes known secrets out of texts. The zero Secrets, and a nil one, know none. It is safe for concurrent use.
type Secrets struct{ replacer *strings.Replacer }

// New makes a Secrets that knows values in each of their Forms. Those of fewer than eight bytes are not looked for.
func New(values ...string) *Secrets {
	var forms []string
	for _, value := range values {
		if len(value) >= least {
			forms = append(forms, Forms(value)...)
		}
	}
	// The longest first, so that a secret which contains another one leaves nothing behind.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, form := range slices.Compact(forms) {
		pairs = append(pairs, form, Mark)
	}
	return &Secrets{replacer: strings.NewReplacer(pairs...)}
}

// Forms are the ways in which a text is written by what prints it: by URLs, by quoting and by JSON, and in base64.
func Forms(text string) []string {
	encoded, _ := json.Marshal(text) // a string always can be
	forms := []string{
		text,
		url.QueryEscape(text),
		url.PathEscape(text),
		strings.TrimPrefix(url.UserPassword("", text).String(), ":"),
		inner(strconv.Quote(text)),
		inner(string(encoded)),
		base64.StdEncoding.EncodeToString([]byte(text)),
		base64.RawURLEncoding.EncodeToString([]byte(text)),
	}
	for _, form := range forms {
		forms = append(forms, escapes.ReplaceAllStringFunc(form, strings.ToLower)) // %2f means what %2F does
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

func inner(quoted string) string { return quoted[1 : len(quoted)-1] }

var escapes = regexp.MustCompile(`%[0-9A-F]{2}`)

// Text is the text without the secrets.
func (s *Secrets) Text(text string) string {
	if s == nil || s.replacer == nil {
		return text
	}
	return s.replacer.Replace(text)
}

// OfURLs are a list's secrets, as written and as meant: passwords, names without one (maybe tokens), URLs with either.
func OfURLs(list string) []string {
	found := credentials(list) // as if it were one: a password may look like another URL
	for _, part := range split(list) {
		found = append(found, credentials(part)...)
	}
	return found
}

func credentials(text string) []string {
	// Up to the last "@", as a person reads it: a parser ends the authority at a "/" of the password.
	_, rest, _ := strings.Cut(text, "//") // behind the scheme, if there is one
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return nil
	}
	name, password, has := strings.Cut(rest[:at], ":")
	if !has {
		password = name
	}
	found := []string{password, text}
	if meant, err := url.PathUnescape(password); err == nil {
		found = append(found, meant)
	}
	return found
}

// OfDSN are the secrets in a go-sql-driver DSN with a password: from the first ":" to each "@" (person and driver may
// differ on the password's end), the text behind that ":", and the whole.
func OfDSN(text string) []string {
	_, rest, _ := strings.Cut(text, ":")
	if !strings.Contains(rest, "@") {
		return nil
	}
	found := []string{text, rest}
	for i := range len(rest) {
		if rest[i] == '@' {
			found = append(found, rest[:i])
		}
	}
	return found
}
