package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// least is the length, in bytes, from which a secret is looked for. A shorter one is a word that records may contain by
// themselves: taken out of them it would make them unreadable, and the gaps would tell it.
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
		forms = append(forms, lowerEscapes(form))
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// inner is a quoted text without its quotes.
func inner(quoted string) string { return quoted[1 : len(quoted)-1] }

// lowerEscapes writes %2F as %2f, which means the same.
func lowerEscapes(text string) string {
	var lower strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			lower.WriteString(strings.ToLower(text[i : i+3]))
			i += 2
			continue
		}
		lower.WriteByte(text[i])
	}
	return lower.String()
}

// Text is the text without the secrets.
func (s *Secrets) Text(text string) string {
	if s == nil || s.replacer == nil {
		return text
	}
	return s.replacer.Replace(text)
}

// OfURLs are the secrets in a comma-separated list of URLs, as they are written and as they are meant: passwords, names
// without a password, which may be tokens, and the URLs that have one of them.
func OfURLs(list string) []string {
	found := credentials(list) // as if it were one: a password may look like another URL
	for _, part := range split(list) {
		found = append(found, credentials(part)...)
	}
	return found
}

func credentials(text string) []string {
	// Up to the last "@", as a person reads it: a password with a "/" ends the authority
	// for the parser, which then takes the rest of it for a path.
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

// OfDSN are the secrets in a DSN of go-sql-driver that has a password: whatever stands
// between the first ":" and one of the "@", because a person and the driver may differ in
// where a password ends, the text behind that ":", and the whole.
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
